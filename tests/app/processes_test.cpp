// A run in several processes that mpirun starts: files, bits and endings are those of one process.
#include "tests/app/tiny_run.h"

#include <doctest/doctest.h>

#include <fstream>

namespace gpipe::app {
namespace {

using test::Child;
using test::contains;
using test::Outcome;
using test::TempFolder;

constexpr const char* k_mpirun = "/usr/bin/mpirun";

bool can_launch() {
  const bool can =
      std::filesystem::exists(k_mpirun) && std::filesystem::exists(test::program().parent_path() / "libgpipe_mpi.so");
  if (!can) MESSAGE("skipped: no mpirun, or built without MPI");
  return can;
}

/// On this host alone, with more processes than it has cores, and as root.
std::vector<std::string> mpirun(int processes) {
  return {k_mpirun,
          "--oversubscribe",
          "--allow-run-as-root",
          "--bind-to",
          "none",
          "--mca",
          "btl",
          "self,vader",
          "--mca",
          "oob_tcp_if_include",
          "lo",
          "-n",
          std::to_string(processes)};
}

/// Open MPI keeps what it has until the process ends, by way of modules that are gone when leaks are looked for.
void allow_leaks() { setenv("ASAN_OPTIONS", "detect_leaks=0", 1); }

Outcome launch(const TempFolder& folder, int processes, const std::vector<std::string>& arguments) {
  return Child(folder.path(), arguments, allow_leaks, mpirun(processes)).outcome();
}

/// The run of one process that others are compared with.
struct Alone {
  TempFolder folder;
  Outcome outcome;
  Alone() {
    test::write_file(folder / "run.yaml", test::tiny_config());
    outcome = test::run_child(folder, {"train", "run.yaml", "--quiet"});
  }
};
const Alone& alone() {
  static const Alone run;
  return run;
}

void check_as_alone(const TempFolder& folder) {
  REQUIRE(alone().outcome.code == 0);
  CHECK(test::timeless_metrics(folder / "run") == test::timeless_metrics(alone().folder / "run"));
  CHECK((test::final_state(folder / "run") == test::final_state(alone().folder / "run")));
  CHECK(test::read_json(folder / "run/result.json")["status"] == "finished");
}

/// How often a text has a part.
int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("two and four processes write the metrics and weights of one, and say everything once") {
  if (!can_launch()) return;
  for (const int processes : {2, 4}) {
    CAPTURE(processes);
    const TempFolder folder;
    test::write_file(folder / "run.yaml", test::tiny_config());
    const Outcome outcome = launch(folder, processes, {"train", "run.yaml", "--partitions", std::to_string(processes)});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    check_as_alone(folder);
    CHECK(count(outcome.out, "run folder: run") == 1);
    CHECK(count(outcome.out, "training data: ") == 1);
    CHECK(count(outcome.err, "warning") == 0);
  }
}

TEST_CASE("a run stopped by a signal in several processes goes on in another number of them") {
  if (!can_launch()) return;
  const TempFolder folder;
  test::write_file(folder / "run.yaml", test::tiny_config());
  const std::vector<std::string> first{"train", "run.yaml", "--quiet", "--partitions", "2"};
  {
    Child child(folder.path(), first, allow_leaks, mpirun(2));
    REQUIRE(test::wait_until([&] { return test::checkpoints_of(folder / "run").size() >= 2 || !child.running(); }));
    child.signal(SIGUSR1);  // which mpirun hands on
    const Outcome outcome = child.outcome();
    CAPTURE(outcome.err);
    CHECK((outcome.code == 75 || outcome.code == 0));  // it may have come to its end
  }
  for (const int processes : {1, 4}) {
    const std::vector<std::string> words{"train", "run.yaml", "--quiet", "--resume", "--partitions", "4"};
    const Outcome outcome = processes == 1 ? test::run_child(folder, words) : launch(folder, processes, words);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    check_as_alone(folder);
  }
}

TEST_CASE("when a process is killed the others end too, and the run goes on from its checkpoint") {
  if (!can_launch()) return;
  const TempFolder folder;
  test::write_file(folder / "run.yaml", test::tiny_config());
  const std::vector<std::string> words{"train", "run.yaml", "--quiet", "--set", "pipeline.transfer_timeout=30"};
  {
    Child child(folder.path(), words, allow_leaks, mpirun(2));
    REQUIRE(test::wait_until([&] { return test::checkpoints_of(folder / "run").size() >= 2 || !child.running(); }));
    child.signal_last_child(SIGKILL);
    CHECK(child.outcome().code >= 0);  // no hang
  }
  std::vector<std::string> again = words;
  again.push_back("--resume");
  const Outcome outcome = launch(folder, 2, again);
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  check_as_alone(folder);
}

TEST_CASE("a process that stands still is waited for as long as the configuration says, then the run ends with 7") {
  if (!can_launch()) return;
  const TempFolder folder;
  test::write_file(folder / "run.yaml", test::tiny_config());
  Child child(folder.path(),
              {"train", "run.yaml", "--quiet", "--set", "train.steps=100000", "--set", "pipeline.transfer_timeout=1"},
              allow_leaks, mpirun(2));
  REQUIRE(test::wait_until([&] { return test::checkpoints_of(folder / "run").size() >= 2 || !child.running(); }));
  child.signal_last_child(SIGSTOP);
  const Outcome outcome = child.outcome();
  CHECK(outcome.code == 7);
  CHECK(contains(outcome.err, "process 0 waited longer than 1 s for another"));
  CHECK(test::read_json(folder / "run/result.json")["exit_code"] == 7);
}

TEST_CASE("processes that were given different settings end with exit code 2 before they start") {
  if (!can_launch()) return;
  for (const char* setting : {"train.learning_rate=0.5", "train.seed=5", "train.steps=2", "data.train.csv.range=[0, 201]"}) {
    const TempFolder folder;
    test::write_file(folder / "run.yaml", test::tiny_config());
    const std::vector<std::string> both{"train", "run.yaml", ":",     "-n",   "1", test::program().string(),
                                        "train", "run.yaml", "--set", setting};
    const Outcome outcome = Child(folder.path(), both, allow_leaks, mpirun(1)).outcome();
    CAPTURE(setting);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 2);
    CHECK(count(outcome.err, "the processes were given different settings") == 1);
    CHECK_FALSE(std::filesystem::exists(folder / "run"));
  }
}

TEST_CASE("what several processes cannot do is refused once, with exit code 2") {
  if (!can_launch()) return;
  const auto refused = [](int processes, const std::vector<std::string>& arguments, const std::string& words, int times = 1) {
    const TempFolder folder;
    test::write_file(folder / "run.yaml", test::tiny_config());
    const Outcome outcome = launch(folder, processes, arguments);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 2);
    CHECK(count(outcome.err, words) == times);
    CHECK_FALSE(std::filesystem::exists(folder / "run"));
  };
  refused(3, {"train", "run.yaml"}, "pipeline.partitions: 2 for 3 processes");
  refused(2, {"train", "run.yaml", "--trace", "2"}, "--trace records the stages of one process");
  refused(2, {"train", "run.yaml", "--set", "pipeline.search=true"}, "pipeline.search chooses for one process");
  refused(2, {"train", "run.yaml", "--resume", "--set", "pipeline.search=true"}, "give the config.yaml of its folder");
  refused(2, {"train", "run.yaml", "--set", "train.lerning_rate=1"}, "unknown key");
  refused(2, {"plan", "run.yaml"}, "plan runs in one process, and a launcher started 2", 2);  // they know nothing of each other
}

}  // namespace gpipe::app
