// The program as a user meets it: exit codes, what stands on which stream, and files that are no files.
#include "app/catalog.h"
#include "app/config_schema.h"
#include "tests/app/run_program.h"
#include "tests/app/samples.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <unistd.h>

namespace gpipe::app {
namespace {

using test::Outcome;
using test::run_program;
using test::TempFolder;
using test::write_file;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a good configuration is printed, and what is printed can be printed again") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::good_config);
  const Outcome first = run_program(folder, "config run.yaml --threads 3");
  CHECK(first.code == 0);
  CHECK(contains(first.out, "threads: 3"));
  CHECK(first.err.empty());
  write_file(folder / "run.yaml", first.out);
  CHECK(run_program(folder, "config run.yaml").out == first.out);
}

TEST_CASE("a bad configuration ends with 2, all faults on standard error, nothing on the other, nothing created") {
  const TempFolder folder;
  write_file(folder / "run.yaml", "network: [relu]\ntrain: {epoch: 1}\n");
  const Outcome outcome = run_program(folder, "check run.yaml --threads 0");
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, "error: run.yaml:2:9: train: unknown key \"epoch\", did you mean \"epochs\"?\n"));
  CHECK(contains(outcome.err, "error: --threads: pipeline.threads: 0 is out of range"));
  CHECK(contains(outcome.err, "data: missing value"));
  CHECK(run_program(folder, "chekc run.yaml").code == 2);
  CHECK(run_program(folder, "").code == 2);
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  CHECK(files == 3);  // run.yaml and the two streams
}

TEST_CASE("Y27: what is no readable regular file is refused with the reason, and never waited for") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "folder.yaml");
  REQUIRE(mkfifo((folder / "pipe.yaml").c_str(), 0600) == 0);
  write_file(folder / "secret.yaml", test::good_config);
  std::filesystem::permissions(folder / "secret.yaml", std::filesystem::perms::none);
  std::filesystem::create_symlink("loop.yaml", folder / "loop.yaml");
  struct Row {
    std::string file, says;
  };
  for (const Row& row : {Row{"folder.yaml", "folder"}, Row{"pipe.yaml", "pipe"}, Row{"/dev/zero", "device"},
                         Row{"missing.yaml", "No such file"}, Row{"loop.yaml", "loop"}, Row{"secret.yaml", "Permission"}}) {
    if (row.file == "secret.yaml" && geteuid() == 0) continue;  // nothing is unreadable to root
    CAPTURE(row.file);
    const Outcome outcome = run_program(folder, "check " + row.file);
    CHECK(outcome.code == 2);
    CAPTURE(outcome.err);
    CHECK(contains(outcome.err, row.file));
    CHECK(contains(outcome.err, row.says));
  }
}

TEST_CASE("E16: closed standard streams are reopened before any file is") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::good_config);
  CHECK(run_program(folder, "config run.yaml <&- 2>&-").code == 0);
  const Outcome outcome = run_program(folder, "config run.yaml >&- 2>&- <&-; test $? = 0");
  CHECK(outcome.code == 0);
  CHECK(test::content_of(folder / "run.yaml") == test::good_config);
}

TEST_CASE("a full standard output is an error of the file system") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::good_config);
  const Outcome outcome = run_program(folder, "config run.yaml > /dev/full; echo $?");
  CHECK(contains(outcome.out, "6"));
}

TEST_CASE("version, devices and help are printed with exit code 0") {
  const TempFolder folder;
  CHECK(contains(run_program(folder, "version").out, "gpipe-train "));
  CHECK(contains(run_program(folder, "devices").out, "cpu"));
  CHECK(contains(run_program(folder, "--help").out, "gpipe-train CONFIG"));
}

TEST_CASE("the schema names every layer, data set and optimizer, and its references resolve") {
  const TempFolder folder;
  const auto schema = nlohmann::json::parse(run_program(folder, "schema").out);
  CHECK(schema["$schema"] == "http://json-schema.org/draft-07/schema#");
  CHECK(schema["additionalProperties"] == false);
  const std::string text = schema.dump();
  const Catalog catalog = make_catalog();
  REQUIRE(!catalog.layers.empty());
  const auto& forms = schema["definitions"]["layer"]["oneOf"];
  // One form for words, one for each type, two for blocks with and without parameters.
  CHECK(forms.size() == 3 + catalog.layers.size() + catalog.composites.size());
  for (const auto* list : {&catalog.layers, &catalog.composites, &catalog.datasets, &catalog.optimizers, &catalog.rates,
                           &catalog.losses, &catalog.schedules}) {
    for (const CatalogEntry& entry : *list) {
      CAPTURE(entry.name);
      CHECK(contains(text, "\"" + entry.name + "\""));
      CHECK(!entry.summary.empty());
    }
  }
  for (size_t at = text.find("$ref\":\""); at != std::string::npos; at = text.find("$ref\":\"", at + 1)) {
    const std::string reference = text.substr(at + 7, text.find('"', at + 7) - at - 7);
    CAPTURE(reference);
    CHECK(schema.contains(nlohmann::json::json_pointer(reference.substr(1))));
  }
}

namespace {

const std::string made_up_data = R"(network: [{linear: {out_features: 8}}, relu, {linear: {out_features: 4}}]
pipeline: {partitions: 2, micro_batches: 2}
data: {train: {synthetic: {samples: 32, shape: [6], classes: 4}}, validation_split: 0.5}
train: {batch_size: 8, steps: 2}
)";

}  // namespace

TEST_CASE("check finds what is wrong with a layer, and with the metric of the best checkpoint") {
  const TempFolder folder;
  write_file(folder / "run.yaml", made_up_data);
  CHECK(run_program(folder, "check run.yaml").code == 0);
  const Outcome layer = run_program(folder, "check run.yaml --set network.0.linear.out_featurs=3");
  CHECK(layer.code == 2);
  CHECK(contains(layer.err, "did you mean \"out_features\"?"));
  const Outcome metric = run_program(folder, "check run.yaml --set checkpoint.best=validation_acuracy");
  CHECK(metric.code == 2);
  CHECK(contains(metric.err, "did you mean \"validation_accuracy\"?"));
}

TEST_CASE("what plan prints fits 120 columns") {
  const TempFolder folder;
  const std::string root = test::source_dir().string();
  std::filesystem::create_symlink(test::source_dir() / "data", folder / "data");
  const Outcome plan = run_program(folder, "plan " + root + "/configs/digits.yaml");
  REQUIRE(plan.code == 0);
  std::istringstream lines(plan.out);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 120);
}

}  // namespace gpipe::app
