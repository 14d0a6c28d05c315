// The algorithms of a run on GPUs: measured with the costs, kept in profile and checkpoints, repeated by a resume. On CPUs there
// are none, and the same commands work.
#include "tests/app/tiny_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <random>

namespace gpipe::app {
namespace {

using test::Child;
using test::contains;
using test::Outcome;
using test::TempFolder;

bool on_gpus() { return test::program_device() == "cuda"; }

/// With two channels, so that the order of a convolution's sums shows.
std::vector<std::string> words(std::vector<std::string> all, const std::vector<std::string>& more = {}) {
  for (const char* data : {"train", "validation"}) {
    all.emplace_back("--set");
    all.push_back(fmt::format("data.{}.csv.shape=[4, 8, 2]", data));
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// The program in a folder that has run.yaml; on emulated GPUs that measure by `seed`.
std::unique_ptr<Child> start(const TempFolder& folder, const std::vector<std::string>& arguments, int seed = 1) {
  test::write_file(folder / "run.yaml", test::tiny_config());
  const char* emulated = std::getenv("GPIPE_EMULATED_CUDA");
  const std::string options = fmt::format("{},seed={}", emulated != nullptr ? emulated : "", seed);
  return std::make_unique<Child>(folder.path(), arguments,
                                 [&] { setenv("GPIPE_EMULATED_CUDA", options.c_str(), emulated != nullptr ? 1 : 0); });
}
Outcome run(const TempFolder& folder, const std::vector<std::string>& arguments, int seed = 1) {
  return start(folder, arguments, seed)->outcome();
}

nlohmann::json algorithms_in(const std::filesystem::path& file) {
  return test::read_json(file).value("algorithms", nlohmann::json::object());
}

/// What the newest checkpoint holds.
nlohmann::json algorithms_of(const TempFolder& folder) {
  return algorithms_in(test::checkpoints_of(folder / "run").back() / "state.json");
}

}  // namespace

TEST_CASE(
    "a run with measured algorithms goes on with them when it was killed, its profile is gone and others would be measured") {
  const TempFolder plain;
  REQUIRE(run(plain, words({"train", "run.yaml", "--quiet"})).code == 0);
  CHECK(algorithms_of(plain).empty() != on_gpus());
  std::mt19937 random(5);
  int differ = 0;
  for (int seed = 1; seed <= 12 && (seed <= 2 || (on_gpus() && differ == 0)); ++seed) {
    CAPTURE(seed);
    const TempFolder folder, whole;
    const auto child = start(folder, words({"train", "run.yaml", "--quiet", "--profile"}), seed);
    REQUIRE(test::wait_until([&] { return std::filesystem::exists(folder / "run/config.yaml") || !child->running(); }));
    test::wait_until([&] { return !child->running(); }, std::chrono::milliseconds(random() % 100));
    child->signal(SIGKILL);
    child->wait();
    const std::string profile = (whole / "p.json").string();
    std::filesystem::rename(folder / "run/profile.json", profile);
    const Outcome resumed =
        run(folder,
            words({"train", "run.yaml", "--quiet", "--resume"},
                  seed == 1 ? std::vector<std::string>{"--partitions", "1"} : std::vector<std::string>{"--profile"}),
            seed + 100);
    CAPTURE(resumed.err);
    REQUIRE(resumed.code == 0);
    REQUIRE(run(whole, words({"train", "run.yaml", "--quiet", "--profile-from", profile})).code == 0);
    CHECK(test::timeless_metrics(folder / "run") == test::timeless_metrics(whole / "run"));
    CHECK((test::final_state(folder / "run") == test::final_state(whole / "run")));
    for (const TempFolder* each : {&folder, &whole}) {
      CHECK(algorithms_of(*each) == algorithms_in(profile));
      CHECK(algorithms_in(*each / "run/plan.json") == algorithms_in(profile));
    }
    differ += test::final_state(folder / "run") == test::final_state(plain / "run") ? 0 : 1;
  }
  CHECK((differ > 0) == on_gpus());
}

TEST_CASE("a checkpoint's algorithms count more than a profile's, for a resume and for eval") {
  const TempFolder folder, other;
  REQUIRE(run(folder, words({"train", "run.yaml", "--quiet", "--set", "train.steps=5"})).code == 0);
  REQUIRE(run(other, words({"profile", "run.yaml", "--output", "p.json"})).code == 0);
  auto profile = test::read_json(other / "p.json");
  CHECK(profile.contains("algorithms") == on_gpus());
  if (on_gpus()) REQUIRE(profile["algorithms"].size() == algorithms_of(folder).size());
  if (on_gpus())
    for (auto& choice : profile["algorithms"]) choice = "7";  // which no convolution can be run with
  test::write_file(other / "p.json", profile.dump());
  const std::vector<std::string> from{"--profile-from", (other / "p.json").string()};
  const Outcome fresh = run(other, words({"train", "run.yaml", "--quiet"}, from));
  CHECK(fresh.code == (on_gpus() ? 2 : 0));
  CHECK(contains(fresh.err, "algorithm \"7\" was chosen before") == on_gpus());
  const auto before = algorithms_of(folder);
  const Outcome resumed = run(folder, words({"train", "run.yaml", "--quiet", "--resume"}, from));
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(algorithms_of(folder) == before);
  CHECK(run(folder, words({"eval", "run.yaml"})).code == 0);
}

TEST_CASE("what a profile says nothing of is chosen without it, and told") {
  const TempFolder folder;
  REQUIRE(run(folder, words({"profile", "run.yaml", "--output", "p.json", "--set", "train.deterministic=false"})).code == 0);
  const Outcome planned = run(folder, words({"plan", "run.yaml", "--json", "--profile-from", "p.json"}));
  CHECK(planned.code == 0);
  CHECK(contains(planned.err, "p.json has no choice for 2 of the algorithms") == on_gpus());
  for (const std::string same : {"true", "false"}) {
    const std::vector<std::string> set{"--set", "train.deterministic=" + same};
    REQUIRE(run(folder, words({"profile", "run.yaml", "--output", same + ".json"}, set)).code == 0);
    const Outcome silent = run(folder, words({"plan", "run.yaml", "--profile-from", same + ".json"}, set));
    CHECK(silent.code == 0);
    CHECK(silent.err.empty());
  }
}

TEST_CASE("train.deterministic: false is for GPUs: another value is told on a resume, and verify wants the default") {
  const TempFolder folder;
  const std::vector<std::string> any{"--set", "train.deterministic=false"};
  REQUIRE(run(folder, words({"train", "run.yaml", "--quiet", "--set", "train.steps=5"})).code == 0);
  const auto before = algorithms_of(folder);
  const Outcome resumed = run(folder, words({"train", "run.yaml", "--quiet", "--resume"}, any));
  CAPTURE(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(contains(resumed.err, "train.deterministic was true and is false now") == on_gpus());
  CHECK((algorithms_of(folder) != before) == on_gpus());  // chosen anew
  const Outcome verified = run(folder, words({"verify", "run.yaml"}, any));
  CHECK(verified.code == (on_gpus() ? 2 : 0));
  CHECK(contains(verified.err, "train.deterministic=true") == on_gpus());
  CHECK(run(folder, words({"verify", "run.yaml", "--profile"})).code == 0);
}

TEST_CASE("a run that goes on on another device says so") {
  if (!on_gpus()) return;
  const TempFolder folder;
  REQUIRE(run(folder, words({"train", "run.yaml", "--quiet", "--set", "train.steps=5"})).code == 0);
  const Outcome resumed = run(folder, words({"train", "run.yaml", "--quiet", "--resume", "--device", "cpu"}));
  CHECK(resumed.code == 0);
  CHECK(contains(resumed.err, "warning: the device was"));
  CHECK(contains(resumed.err, "cuDNN"));
}

}  // namespace gpipe::app
