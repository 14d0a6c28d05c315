// Each exit code of the table that one process can reach, through the program: what it says, and what it leaves.
#include "core/pipeline/verify.h"
#include "tests/app/tiny_run.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>

namespace gpipe::app {
namespace {

using test::contains;
using test::Outcome;
using test::run_child;
using test::TempFolder;

/// A folder with the made-up run's configuration in it.
struct Place : TempFolder {
  Place() { test::write_file(*this / "run.yaml", test::made_up_config); }
  Outcome train(std::vector<std::string> more = {}, const std::function<void()>& in_child = {}) const {
    more.insert(more.begin(), {"train", "run.yaml"});
    return run_child(*this, more, in_child);
  }
  bool has_run() const { return std::filesystem::exists(*this / "run"); }
  nlohmann::json result() const { return test::read_json(*this / "run/result.json"); }
};

}  // namespace

TEST_CASE("exit 0: a run that finishes, and result.json says so") {
  const Place place;
  CHECK(place.train().code == 0);
  CHECK(place.result()["status"] == "finished");
  CHECK(place.result()["exit_code"] == 0);
}

TEST_CASE("exit 1: verify names the first node, micro-batch and direction that differ") {
  using Digests = pipeline::DigestRecorder::Digests;
  const graph::Network network = test::network_of("[linear: {out_features: 4}, relu, linear: {out_features: 3}]", {5}, 3);
  Digests unpiped;
  for (int micro = 0; micro < 2; ++micro)
    for (int node = 0; node < 4; ++node)
      for (int backward = 0; backward < 2; ++backward) unpiped[{backward, micro, node, 0}] = 100U + static_cast<uint64_t>(node);
  CHECK(pipeline::first_difference(unpiped, unpiped, network).empty());
  Digests piped = unpiped;
  piped[{1, 0, 1, 0}] = 1;  // later than those that follow: backward comes after forward
  piped[{0, 1, 2, 0}] = 2;
  piped[{0, 1, 3, 0}] = 3;
  const std::string first = pipeline::first_difference(piped, unpiped, network);
  CHECK(contains(first, "node 3 (" + network.nodes[2].name + "), micro-batch 1, forward"));
  CHECK(contains(first, "0000000000000002 by the plan, 0000000000000066 unpiped"));
  piped = unpiped;
  piped[{1, 0, 1, 0}] = 1;
  piped[{1, 0, 0, 0}] = 1;  // backward goes down: node 1 comes before node 0
  CHECK(contains(pipeline::first_difference(piped, unpiped, network),
                 "node 2 (" + network.nodes[1].name + "), micro-batch 0, backward"));
  piped.erase({0, 0, 0, 0});
  CHECK(contains(pipeline::first_difference(piped, unpiped, network), "not computed by the plan"));
}

TEST_CASE("exit 2: a configuration error creates nothing") {
  const Place place;
  for (const char* set :
       {"train.batch_size=0", "network.0.linear.out_features=0", "pipeline.partitions=9", "train.batch_size=100"}) {
    CAPTURE(set);
    const Outcome outcome = place.train({"--set", set});
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, "error: "));
    CHECK(outcome.out.empty());
    CHECK(!place.has_run());
  }
}

TEST_CASE("exit 3: bad data is told with its place, and creates nothing") {
  const Place place;
  test::write_file(place / "bad.csv", "a,b,label\n1,2,0\n1,x,1\n");
  const Outcome outcome = place.train({"--set", "data.train={csv: {path: bad.csv, label: label}}"});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 3);
  CHECK(contains(outcome.err, "bad.csv"));
  CHECK(contains(outcome.err, "3"));
  CHECK(!place.has_run());
}

TEST_CASE("exit 4: a plan over its memory limit says by how much, and creates nothing") {
  const Place place;
  const Outcome outcome = place.train({"--set", "pipeline.memory_limit=1KiB"});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 4);
  CHECK(contains(outcome.err, "of the limit of 1.0 KiB"));
  CHECK(!place.has_run());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a sanitizer needs all the address space there is

TEST_CASE("exit 4: an address space that the arena does not fit is told in words, and in result.json") {
  const Place place;
  const std::vector<std::string> big{"--set", "network.0.linear.out_features=300000", "--set", "data.train.synthetic.shape=[64]"};
  const Outcome outcome = place.train(big, [] { test::limit(RLIMIT_AS, rlim_t{300} << 20); });
  CAPTURE(outcome.err);
  CHECK(outcome.code == 4);
  CHECK(contains(outcome.err, "memory"));
  CHECK(place.result()["status"] == "out_of_memory");
  CHECK(place.result()["exit_code"] == 4);
}

TEST_CASE("E13: whatever the address space, a run ends with 0 or 4, never by a crash") {
  const auto limited = [](const std::vector<std::string>& words, rlim_t mebibytes) {
    const Place place;
    return run_child(place, words, [mebibytes] { test::limit(RLIMIT_AS, mebibytes << 20); });
  };
  rlim_t loads = 20;  // so much takes the program itself
  while (loads < 1000 && limited({"version"}, loads).code != 0) loads += 4;
  int fits = 0, fails = 0;
  // Within the first few MiB more, oneDNN cannot get the pages for the code that it makes, and does not survive that.
  for (const rlim_t more : {8, 10, 12, 16, 20, 30, 50, 100, 200, 400, 1000}) {
    const Outcome outcome = limited({"train", "run.yaml", "--quiet"}, loads + more);
    CAPTURE(more);
    CAPTURE(outcome.err);
    CHECK((outcome.code == 0 || outcome.code == 4));
    ++(outcome.code == 0 ? fits : fails);
  }
  CHECK(fits > 0);
  CHECK(fails > 0);
}

#endif

TEST_CASE("exit 5: a run that diverges says so, and its last checkpoint is whole") {
  const Place place;
  const Outcome outcome =
      place.train({"--set", "train.learning_rate=1000", "--set", "train.steps=500", "--set", "train.loss=cross_entropy", "--set",
                   "train.optimizer={sgd: {momentum: 0.99}}", "--set", "checkpoint.every_steps=1"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 5);
  CHECK(contains(outcome.err, "learning rate 1000"));
  CHECK(place.result()["status"] == "diverged");
  CHECK(contains(place.result()["message"].get<std::string>(), "step"));
  const auto all = test::checkpoints_of(place / "run");
  REQUIRE(!all.empty());
  const Outcome eval = run_child(place, {"eval", "run.yaml", "--checkpoint", all.back().string(), "--json"});
  CAPTURE(eval.err);
  CHECK(eval.code == 0);
}

TEST_CASE("exit 6: an output folder that cannot be") {
  const Place place;
  test::write_file(place / "file", "");
  for (const std::string& folder : {std::string("file/run"), std::string("file"), "long/" + std::string(300, 'x')}) {
    CAPTURE(folder);
    const Outcome outcome = place.train({"--quiet", "--output", folder});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 6);
    CHECK(contains(outcome.err, folder.substr(0, 4)));
  }
  CHECK(place.train({"--quiet", "--output", "a/b/../c"}).code == 0);  // parents are made
  CHECK(std::filesystem::exists(place / "a/c/result.json"));
}

TEST_CASE("exit 6: a standard output that is full, and a file-size limit") {
  const Place full;
  CHECK(full.train({}, [] { dup2(open("/dev/full", O_WRONLY), 1); }).code == 6);
  CHECK(run_child(full, {"config", "run.yaml"}, [] { dup2(open("/dev/full", O_WRONLY), 1); }).code == 6);
  const Place limited;
  const Outcome outcome =
      limited.train({"--quiet", "--set", "network.0.linear.out_features=3000"}, [] { test::limit(RLIMIT_FSIZE, 40000); });
  CAPTURE(outcome.err);
  CHECK(outcome.code == 6);
  CHECK(contains(outcome.err, "file-size limit"));
  CHECK(limited.result()["status"] == "file_system_error");
  CHECK(limited.train({"--quiet"}).code == 0);  // what was begun stands in nobody's way
}

TEST_CASE("exit 6: a standard output that fills up in the middle ends the run with a result") {
  const Place place;
  const Outcome outcome = place.train({}, [] { dup2(open("/dev/full", O_WRONLY), 1); });
  CHECK(outcome.code == 6);
  CHECK(contains(outcome.err, "standard output"));
}

TEST_CASE("exit 3: data that changes under a run ends it with a result and a checkpoint to go on from") {
  const TempFolder folder;
  const auto csv = folder / "digits.csv";
  std::filesystem::copy_file(test::source_dir() / "data/digits.csv", csv);
  std::string config = test::tiny_config();
  const std::string original = (test::source_dir() / "data/digits.csv").string();
  for (size_t at = config.find(original); at != std::string::npos; at = config.find(original))
    config.replace(at, original.size(), csv.string());
  test::write_file(folder / "run.yaml", config);
  test::Child child(folder.path(), {"train", "run.yaml", "--quiet", "--set", "train.steps=1000000"});
  REQUIRE(test::wait_until([&] { return std::filesystem::exists(folder / "run/metrics.jsonl") || !child.running(); }));
  std::ofstream(csv, std::ios::app) << "0\n";
  const Outcome outcome = child.outcome();
  CAPTURE(outcome.err);
  CHECK(outcome.code == 3);
  CHECK(contains(outcome.err, "digits.csv"));
  const auto result = test::read_json(folder / "run/result.json");
  CHECK(result["status"] == "bad_data");
  CHECK(result["steps"] > 0);
  CHECK(!test::checkpoints_of(folder / "run").empty());
}

TEST_CASE("exit 8 and 9: no checkpoint, no such device; nothing is created") {
  const Place place;
  CHECK(place.train({"--resume"}).code == 8);
  CHECK(run_child(place, {"eval", "run.yaml"}).code == 8);
  CHECK(run_child(place, {"predict", "run.yaml", "--checkpoint", "nowhere"}).code == 8);
  CHECK(!place.has_run());
  const Outcome cuda = place.train({"--device", "cuda"});
  if (cuda.code != 0) {  // a build with CUDA may find one
    CHECK(cuda.code == 9);
    CHECK(contains(cuda.err, "--device cpu"));
    CHECK(!place.has_run());
  }
}

}  // namespace gpipe::app
