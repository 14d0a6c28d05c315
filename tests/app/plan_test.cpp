// plan as people use it: the page, its picture, the search, and `pipeline: auto`.
#include "tests/app/run_program.h"
#include "tests/app/samples.h"
#include "tests/app/tiny_run.h"
#include "tests/support/xml.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <sstream>

namespace gpipe::app {
namespace {

using test::contains;
using test::Outcome;
using test::run_program;
using test::TempFolder;
using test::write_file;

nlohmann::json json_of(const Outcome& outcome) { return nlohmann::json::parse(outcome.out, nullptr, false); }

std::string with_pipeline(const std::string& pipeline) {
  const std::string before = "pipeline: {partitions: 2, micro_batches: 2, bind_threads: false}";
  std::string text = test::made_up_config;
  return text.replace(text.find(before), before.size(), pipeline);
}

}  // namespace

TEST_CASE("plan tells time, memory and idle share of every stage, in words and as JSON") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::tiny_config());
  const Outcome text = run_program(folder, "plan run.yaml");
  REQUIRE(text.code == 0);
  for (const char* part : {"predicted: ", "samples/s", "% idle", "on the fullest device", "stage 0 -> 1", "F forward"})
    CHECK(contains(text.out, part));
  const auto json = json_of(run_program(folder, "plan run.yaml --json"));
  REQUIRE(json.is_object());
  CHECK(json["predicted"]["step_seconds"] > 0.0);
  CHECK(json["predicted"]["bubble"] > 0.0);
  CHECK(json["memory"]["fits"] == true);
  REQUIRE(json["stages"].size() == 2);
  size_t arenas = 0;
  for (const auto& stage : json["stages"]) {
    CHECK(stage["seconds"]["step"] > 0.0);
    arenas += stage["memory_bytes"]["total"].get<size_t>();
  }
  CHECK(json["arena_bytes"] == arenas);
}

TEST_CASE("plan --svg draws the simulated step, one bar a task") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::tiny_config());
  REQUIRE(run_program(folder, "plan run.yaml --svg step.svg --set pipeline.schedule=zb_h1").code == 0);
  const std::string svg = test::content_of(folder / "step.svg");
  CHECK(test::xml_fault(svg).empty());
  for (const char* part : {"forward", "weight gradients", "idle", "zb_h1"}) CHECK(contains(svg, part));
}

TEST_CASE("plan names the cut that would even the stages out") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::tiny_config());
  const Outcome outcome = run_program(folder, "plan run.yaml --set 'pipeline.balance=[6, 1]'");
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.out, "warning: stage 0 takes "));
  CHECK(contains(outcome.out, "move the cut"));
}

TEST_CASE("plan --search ranks the pipelines, and the lines that it prints make the best one") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::made_up_config);
  const auto json = json_of(run_program(folder, "plan run.yaml --search --json"));
  REQUIRE(json["candidates"].size() > 10);
  for (size_t i = 1; i < json["candidates"].size(); ++i)
    CHECK(json["candidates"][i - 1]["step_seconds"].get<double>() <= 1.006 * json["candidates"][i]["step_seconds"].get<double>());
  const Outcome text = run_program(folder, "plan run.yaml --search");
  REQUIRE(text.code == 0);
  const size_t at = text.out.rfind("\npipeline:") + 1;
  const std::string lines = text.out.substr(at, text.out.find("\n\n", at) - at);
  write_file(folder / "best.yaml", with_pipeline(lines));
  const auto best = json_of(run_program(folder, "plan best.yaml --json"));
  const auto& first = json["candidates"][0];
  for (const char* key : {"partitions", "micro_batches", "schedule", "rematerialize"}) CHECK(best[key] == first[key]);
  CHECK(best["predicted"]["step_seconds"].get<double>() == doctest::Approx(first["step_seconds"].get<double>()));
  CHECK(best["memory"]["bytes"] == first["fullest_device_bytes"]);
}

TEST_CASE("a search in which nothing fits ends with 4, by how much, and what would") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::made_up_config);
  const Outcome outcome = run_program(folder, "plan run.yaml --search --set pipeline.memory_limit=1KiB");
  CHECK(outcome.code == 4);
  CHECK(contains(outcome.out, "nothing fits"));
  CHECK(contains(outcome.out, "too much"));
  write_file(folder / "auto.yaml", with_pipeline("pipeline: {search: true, memory_limit: 1KiB}"));
  const Outcome train = run_program(folder, "train auto.yaml");
  CHECK(train.code == 4);
  CHECK(contains(train.err, "nothing fits"));
  CHECK_FALSE(std::filesystem::exists(folder / "run"));
}

TEST_CASE("a plan over its limit still shows its page, and ends with 4") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::tiny_config());
  const Outcome outcome = run_program(folder, "plan run.yaml --set pipeline.memory_limit=30KiB");
  CHECK(outcome.code == 4);
  CHECK(contains(outcome.out, "of the limit of 30.0 KiB"));
  CHECK(contains(outcome.out, "predicted: "));
}

TEST_CASE("pipeline: auto takes the best, writes down what it took, and goes on with that") {
  const TempFolder folder;
  write_file(folder / "run.yaml", with_pipeline("pipeline: auto"));
  REQUIRE(run_program(folder, "train run.yaml --quiet").code == 0);
  const std::string config = test::content_of(folder / "run/config.yaml");
  CHECK(contains(config, "search: false"));
  CHECK(contains(config, "partitions: "));
  CHECK(run_program(folder, "eval run.yaml --quiet").code == 0);
  const Outcome resumed = run_program(folder, "train run.yaml --resume");
  CHECK(resumed.code == 0);
  CHECK(contains(resumed.out, "nothing is left to do"));
  CHECK_FALSE(contains(resumed.err, "warning"));
}

TEST_CASE("verify finds the same bits on every schedule") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::tiny_config());
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_auto", "zb_v"})
    for (const char* policy : {"full", "none", "keep_first", "auto"}) {
      CAPTURE(fmt::format("{} {}", schedule, policy));
      const Outcome outcome = run_program(
          folder, fmt::format("verify run.yaml --micro-batches 4 --set pipeline.schedule={} --set pipeline.rematerialize={}",
                              schedule, policy));
      CHECK(outcome.code == 0);
      CHECK(contains(outcome.out, "the same bits as unpiped"));
    }
}

TEST_CASE("predicted and measured stand side by side when a run has ended, and the arenas are equal") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::made_up_config);
  const Outcome outcome = run_program(folder, "train run.yaml --profile");
  REQUIRE(outcome.code == 0);
  CHECK(contains(outcome.out, "predicted  measured"));
  const auto prediction = test::read_json(folder / "run/result.json")["prediction"];
  CHECK(prediction["arena_bytes"]["predicted"] == prediction["arena_bytes"]["measured"]);
  CHECK(prediction["step_seconds"]["measured"] > 0.0);
  CHECK(prediction["steps"] == 5);
  CHECK(contains(prediction["times"].get<std::string>(), "measured here"));
}

TEST_CASE("--svg replaces a picture, follows a link, and refuses what is no regular file") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::made_up_config);
  write_file(folder / "old.svg", "old");
  std::filesystem::create_symlink("old.svg", folder / "link.svg");
  CHECK(run_program(folder, "plan run.yaml --svg link.svg").code == 0);
  CHECK(std::filesystem::is_symlink(folder / "link.svg"));
  CHECK(contains(test::content_of(folder / "old.svg"), "</svg>"));
  REQUIRE(mkfifo((folder / "pipe").c_str(), 0600) == 0);
  for (const char* verb : {"plan run.yaml", "simulate --schedule gpipe --stages 2 --micro-batches 2"}) {
    const Outcome refused = run_program(folder, fmt::format("{} --svg pipe", verb));
    CHECK(refused.code == 6);
    CHECK(contains(refused.err, "no regular file"));
    CHECK(run_program(folder, fmt::format("{} --svg .", verb)).code == 6);
  }
  CHECK(std::filesystem::is_fifo(folder / "pipe"));
}

TEST_CASE("flags that plan cannot honour together are refused, and JSON is one line") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::made_up_config);
  write_file(folder / "costs.json", R"([{"forward_ms": 1, "backward_ms": 2}, {"forward_ms": 1, "backward_ms": 2}])");
  CHECK(run_program(folder, "plan run.yaml --search --svg x.svg").code == 2);
  for (const char* flag : {"--search", "--profile", "--profile-from x", "--svg x.svg"})
    CHECK(run_program(folder, fmt::format("plan --costs costs.json --partitions 2 {}", flag)).code == 2);
  for (const char* line :
       {"plan run.yaml --json", "plan run.yaml --search --json", "plan --costs costs.json --partitions 2 --json"}) {
    const Outcome outcome = run_program(folder, line);
    CHECK(outcome.code == 0);
    CHECK(std::count(outcome.out.begin(), outcome.out.end(), '\n') == 1);
  }
}

TEST_CASE("a search takes the first K of a list with one entry a device") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::made_up_config);
  for (const char* list : {"pipeline.speeds=[1,0.5]", "pipeline.memory_limit=[1GiB,1GiB]"}) {
    const auto json = json_of(run_program(folder, fmt::format("plan run.yaml --search --json --set '{}'", list)));
    std::set<int> tried;
    for (const auto& candidate : json["candidates"]) tried.insert(candidate["partitions"].get<int>());
    CHECK(tried == std::set<int>{1, 2});
  }
  const Outcome unknown = run_program(folder, "plan run.yaml --search --set 'pipeline.search_keeps=[schedul]'");
  CHECK(unknown.code == 2);
  CHECK(contains(unknown.err, "did you mean \"schedule\"?"));
}

TEST_CASE("the seconds that devices worked are those of the step, on lines with a validation too") {
  const TempFolder folder;
  write_file(folder / "run.yaml", test::tiny_config());
  REQUIRE(run_program(folder, "train run.yaml --quiet").code == 0);
  std::istringstream text(test::content_of(folder / "run/metrics.jsonl"));
  int validated = 0;
  for (std::string line; std::getline(text, line);) {
    const auto json = nlohmann::json::parse(line);
    double busy = 0;
    for (const double seconds : json["busy_seconds"]) busy += seconds;
    const double step = json["seconds"].get<double>() - json["seconds_waiting"].get<double>();
    CHECK(json["bubble"].get<double>() == doctest::Approx(1 - busy / (2 * step)).epsilon(0.01));
    validated += json.contains("validation_loss") ? 1 : 0;
  }
  CHECK(validated > 3);
}

}  // namespace gpipe::app
