// plan --costs: a table of layers alone is cut, and whatever is wrong with it is said.
#include "tests/app/run_program.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gpipe::app {
namespace {

// Made up. Costs 4 2 3 1 5 3: K = 2 gives 9 | 9, K = 3 gives 6 | 4 | 8 or 6 | 9 | 3 (bottleneck 8).
const char* const k_layers = R"([
  {"name": "a", "forward_ms": 1, "backward_ms": 3, "activation_bytes": 4096, "parameter_bytes": 10},
  {"name": "b", "forward_ms": 1.5, "backward_ms": 0.5, "activation_bytes": 2048.0},
  {"name": "c", "forward_ms": 1, "backward_ms": 2, "activation_bytes": 512, "note": "of no matter"},
  {"name": "d", "forward_ms": 0.5, "backward_ms": 0.5, "activation_bytes": 1024},
  {"name": "e", "forward_ms": 2, "backward_ms": 3, "activation_bytes": 64},
  {"name": "f", "forward_ms": 1, "backward_ms": 2}
])";

test::Outcome plan(const std::string& table, const std::string& flags) {
  const test::TempFolder folder;
  test::write_file(folder / "costs.json", table);
  return test::run_program(folder, "plan --costs costs.json " + flags);
}

}  // namespace

TEST_CASE("plan --costs --json gives counts, stage costs, bottleneck and variance") {
  const auto two = plan(k_layers, "--partitions 2 --json");
  REQUIRE(two.code == 0);
  const auto answer = nlohmann::json::parse(two.out);
  CHECK(answer["objective"] == "bottleneck");
  CHECK(answer["counts"] == nlohmann::json::array({3, 3}));
  CHECK(answer["stage_ms"] == nlohmann::json::array({9.0, 9.0}));
  CHECK(answer["bottleneck_ms"] == 9.0);
  CHECK(answer["variance_ms2"] == 0.0);
  CHECK(answer["bytes_cut"] == 512);
  const auto three = nlohmann::json::parse(plan(k_layers, "--partitions 3 --json").out);
  CHECK(three["counts"] == nlohmann::json::array({2, 2, 2}));
  CHECK(three["bottleneck_ms"] == 8.0);
  const auto speeds = nlohmann::json::parse(plan(k_layers, "--partitions 2 --json --set 'pipeline.speeds=[2, 1]'").out);
  CHECK(speeds["counts"] == nlohmann::json::array({5, 1}));  // 15 / 2 and 3
}

TEST_CASE("plan --costs prints a table, and takes an object with layers") {
  const auto outcome = plan(fmt::format("{{\"cost\": \"forward_ms + backward_ms\", \"layers\": {}}}", k_layers),
                            "--partitions 2 --objective variance");
  CAPTURE(outcome.out);
  CHECK(outcome.code == 0);
  CHECK(outcome.out.find("a .. c") != std::string::npos);
  CHECK(outcome.out.find("100.0 %") != std::string::npos);
  CHECK(outcome.out.find("512 B") != std::string::npos);
  CHECK(outcome.out.find("variance: the slowest stage takes 9.000 ms") != std::string::npos);
}

TEST_CASE("plan --costs refuses what it cannot cut with exit code 2, in words") {
  const auto refused = [](const std::string& table, const std::string& flags, const std::string& words) {
    const auto outcome = plan(table, flags);
    CAPTURE(flags);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.find(words) != std::string::npos);
  };
  refused(k_layers, "--partitions 7", "7 partitions of 6 layers");
  refused(k_layers, "--partitions 0", "pipeline.partitions");
  refused(k_layers, "--objective fastest", "one of bottleneck, variance, cumulative");
  refused(k_layers, "--set train.seed=1", "no use for it");
  refused(k_layers, "--micro-batches 4", "no use for it");
  refused(k_layers, "other.yaml", "needs no configuration");
  refused(k_layers, "--partitions 2 --set 'pipeline.speeds=[1]'", "1 entries for 2 devices");
  refused("[]", "", "empty");
  refused("[1, 2]", "", "layer 1: wanted an object");
  refused("{\"a\": {\"layers\": []}, \"b\": {\"layers\": []}}", "", "2 tables of layers (\"a\", \"b\")");
  refused("\"text\"", "", "wanted a list of layers");
  refused("[{\"forward_ms\": 1}]", "", "layer 1: \"backward_ms\" is missing");
  refused("[{\"forward_ms\": 1, \"backward_ms\": -1}]", "", "-1");
  refused("[{\"forward_ms\": \"1\", \"backward_ms\": 1}]", "", "string, wanted a number");
  refused("[{\"forward_ms\": 1, \"forward_ms\": 2, \"backward_ms\": 1}]", "", "twice");
  refused("[{\"forward_ms\": 1e999, \"backward_ms\": 1}]", "", "JSON");
  refused("[{\"forward_ms\": 1, \"backward_ms\": 1}", "", "not valid JSON");
  refused(std::string(100000, '['), "", "deep");
  const test::TempFolder folder;
  const auto missing = test::run_program(folder, "plan --costs nowhere.json");
  CHECK(missing.code == 2);
  CHECK(missing.err.find("nowhere.json") != std::string::npos);
}

}  // namespace gpipe::app
