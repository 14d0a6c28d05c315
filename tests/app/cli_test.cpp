// The command line as plain data, and what it says to a slip.
#include "app/cli.h"

#include "core/base/error.h"
#include "tests/app/run_program.h"
#include "tests/app/samples.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace gpipe::app {
namespace {

Command parse(const std::vector<std::string>& arguments) { return parse_command_line(arguments, test::small_catalog()); }

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    parse(arguments);
  } catch (const base::ConfigError& error) { return error.what(); }
  return "accepted";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a configuration alone is trained") {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"a.yaml"}, {"dir/a"}, {"train", "a.yaml"}, {"--quiet", "a.yml"}, {"--threads", "2", "a.yaml"}}) {
    const Command command = parse(arguments);
    CHECK(command.verb == "train");
    CHECK(command.config_file == arguments.back());
  }
}

TEST_CASE("every flag of train arrives") {
  const Command command =
      parse({"train", "a.yaml",    "--set",   "train.seed=3", "--profile", "--resume",       "--output",
             "out",   "--device",  "cpu",     "--threads",    "2",         "--partitions=4", "--micro-batches",
             "8",     "--dry-run", "--quiet", "--json",       "--set",     "train.epochs=1", "--trace",
             "5"});
  CHECK(command.config_file == "a.yaml");
  CHECK(command.profile);
  CHECK(command.resume);
  CHECK(command.dry_run);
  CHECK(command.quiet);
  CHECK(command.json);
  CHECK(command.trace == 5);
  std::vector<std::string> set;
  for (const Override& override : command.overrides) {
    set.push_back(override.value.where().text() + " " + override.path + "=" + override.value.text());
  }
  CHECK(set == std::vector<std::string>{"--set train.seed train.seed=3", "--set train.epochs train.epochs=1",
                                        "--device pipeline.device=cpu", "--threads pipeline.threads=2",
                                        "--partitions pipeline.partitions=4", "--micro-batches pipeline.micro_batches=8",
                                        "--output output.folder=out"});
}

TEST_CASE("--resume stands with and without a folder, before and after the configuration") {
  CHECK(parse({"train", "a.yaml", "--resume"}).resume);
  CHECK(parse({"train", "a.yaml", "--resume"}).resume_from.empty());
  CHECK(parse({"train", "--resume", "a.yaml"}).config_file == "a.yaml");
  CHECK(parse({"train", "--resume", "a.yaml"}).resume_from.empty());
  CHECK(parse({"train", "--resume", "runs/a", "a.yaml"}).resume_from == "runs/a");
  CHECK(parse({"train", "--resume", "--quiet", "a.yaml"}).resume_from.empty());
  CHECK(!parse({"train", "a.yaml"}).resume);
}

TEST_CASE("evaluation and prediction take a checkpoint, and prediction its own output") {
  CHECK(parse({"eval", "a.yaml", "--checkpoint", "c", "--json"}).checkpoint == "c");
  const Command predict = parse({"predict", "a.yaml", "--input", "{csv: {path: x.csv}}", "--output", "p.csv"});
  CHECK(predict.predict_input == "{csv: {path: x.csv}}");
  CHECK(predict.predict_output == "p.csv");
  CHECK(predict.overrides.empty());
}

TEST_CASE("simulate takes costs instead of a configuration, schedules repeated or by commas") {
  const Command command = parse({"simulate", "--schedule", "1f1b,gpipe", "--schedule=zb_h1", "--stages", "4", "--micro-batches",
                                 "8", "--backward-weight", "0.5", "--svg", "1"});
  CHECK(command.simulate.schedules == std::vector<std::string>{"1f1b,gpipe", "zb_h1"});
  CHECK(command.simulate.stages == 4);
  CHECK(command.simulate.micro_batches == 8);
  CHECK(command.simulate.forward == 1);
  CHECK(command.simulate.backward_weight == 0.5);
  CHECK(command.simulate.svg == "1");
  CHECK(command.overrides.empty());
  CHECK(
      contains(refusal({"simulate", "--schedule", "gpipe", "--stages", "4", "--micro-batches", "8", "a.yaml"}), "one argument"));
  CHECK(contains(parse({"simulate", "--help"}).text, "1..4096; required"));
}

TEST_CASE("verbs without a configuration take none") {
  for (const std::string verb : {"devices", "version", "schema"}) {
    CHECK(parse({verb}).verb == verb);
    CHECK(contains(refusal({verb, "a.yaml"}), "one argument too many"));
  }
  CHECK(parse({"--version"}).verb == "version");
}

TEST_CASE("misspelt verbs and flags name the nearest known one") {
  CHECK(contains(refusal({"trian", "a.yaml"}), "unknown command \"trian\", did you mean \"train\"?"));
  CHECK(contains(refusal({"evaluate"}), "known: train, eval"));
  CHECK(contains(refusal({"train", "a.yaml", "--treads", "2"}), "unknown flag \"--treads\", did you mean --threads?"));
  CHECK(contains(refusal({"train", "a.yaml", "--micro_batches=2"}), "did you mean --micro-batches?"));
  CHECK(contains(refusal({"plan", "a.yaml", "--jsn"}), "did you mean --json?"));
  CHECK(contains(refusal({"check", "a.yaml", "--zzzzzz"}), "try gpipe-train check --help"));
  CHECK(contains(refusal({"check", "a.yaml", "-q"}), "unknown flag \"-q\""));
}

TEST_CASE("a command line that says too little or too much is refused") {
  CHECK(contains(refusal({}), "wanted a command or a configuration"));
  CHECK(contains(refusal({"train"}), "a configuration is missing"));
  CHECK(contains(refusal({"train", "a.yaml", "b.yaml"}), "\"b.yaml\" is one argument too many"));
  CHECK(contains(refusal({"train", "a.yaml", "--threads"}), "--threads"));
  CHECK(contains(refusal({"train", "a.yaml", "--threads", "1", "--threads", "2"}), "--threads"));
  CHECK(contains(refusal({"train", "a.yaml", "--set"}), "--set"));
  CHECK(contains(refusal({"train", "a.yaml", "--set", "x"}), "KEY=VALUE"));
  CHECK(contains(refusal({"train", "a.yaml", "--quiet=maybe"}), "--quiet"));
}

TEST_CASE("help shows defaults, ranges and units from the table of settings") {
  const std::string train = parse({"train", "--help"}).text;
  CHECK(contains(train, "integer 1..1024 threads; default 1"));
  CHECK(contains(train, "--resume"));
  CHECK(contains(parse({"--help"}).text, "verify"));
  CHECK(parse({"--help"}).verb == "help");
  CHECK(parse({"help"}).verb == "help");
  const std::string reference = parse({"config", "--help"}).text;
  for (const char* part : {"micro_batches", "learning_rate", "momentum", "at least 0 and below 1", "csv", "cosine", "1f1b"}) {
    CAPTURE(part);
    CHECK(contains(reference, part));
  }
}

}  // namespace gpipe::app
