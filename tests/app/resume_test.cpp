// A run that was cut short goes on as if nothing had been: killed at any moment, divided otherwise, or with a checkpoint lost.
#include "tests/app/tiny_run.h"

#include <doctest/doctest.h>

#include <fstream>
#include <random>

namespace gpipe::app {
namespace {

using test::Child;
using test::contains;
using test::Outcome;
using test::run_child;
using test::TempFolder;

/// A run that nobody disturbed; `settings` are those of the command line.
struct Undisturbed {
  explicit Undisturbed(std::vector<std::string> words = {}) : settings(std::move(words)) {
    test::write_file(folder / "run.yaml", test::tiny_config());
    const auto begin = std::chrono::steady_clock::now();
    outcome = run_child(folder, arguments());
    length = std::chrono::steady_clock::now() - begin;
    metrics = test::timeless_metrics(folder / "run");
    state = test::final_state(folder / "run");
  }
  std::vector<std::string> arguments() const {
    std::vector<std::string> all{"train", "run.yaml", "--quiet"};
    all.insert(all.end(), settings.begin(), settings.end());
    return all;
  }
  std::vector<std::string> settings;
  TempFolder folder;
  Outcome outcome;
  std::chrono::steady_clock::duration length{};
  std::vector<std::string> metrics;
  std::string state;
};

/// Made once for all tests of this file.
const Undisturbed& undisturbed() {
  static const Undisturbed run;
  return run;
}

void check_same(const TempFolder& folder, const Undisturbed& whole) {
  CHECK(test::timeless_metrics(folder / "run") == whole.metrics);
  CHECK((test::final_state(folder / "run") == whole.state));
  CHECK(test::read_json(folder / "run/result.json")["status"] == "finished");
}

/// Kills the run `times` times at moments drawn by `seed`, each start with a number of stages drawn from `partitions`. A
/// run that ends before is compared and begun anew.
void kill_and_resume(const Undisturbed& whole, int times, unsigned seed, const std::vector<std::string>& partitions) {
  REQUIRE(whole.outcome.code == 0);
  REQUIRE(!whole.metrics.empty());
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> share(0.0, 0.9);
  int kills = 0;
  while (kills < times) {
    const TempFolder folder;
    test::write_file(folder / "run.yaml", test::tiny_config());
    for (bool finished = false; !finished;) {
      std::vector<std::string> arguments = whole.arguments();
      if (std::filesystem::exists(folder / "run/config.yaml")) arguments.emplace_back("--resume");
      arguments.insert(arguments.end(), {"--partitions", partitions[random() % partitions.size()]});
      Child child(folder.path(), arguments);
      if (kills < times) {
        const auto moment = std::chrono::duration_cast<std::chrono::microseconds>(whole.length * share(random));
        test::wait_until([&] { return !child.running(); }, moment);
        child.signal(SIGKILL);
      }
      const Outcome outcome = child.outcome();
      CAPTURE(outcome.err);
      REQUIRE((outcome.code == 0 || outcome.code == 128 + SIGKILL));
      finished = outcome.code == 0;
      kills += finished ? 0 : 1;
    }
    check_same(folder, whole);
  }
}

/// A finished run in `folder`, whose newest checkpoint may then be spoilt.
std::vector<std::filesystem::path> finished_run(const TempFolder& folder) {
  std::filesystem::copy(undisturbed().folder.path(), folder.path(), std::filesystem::copy_options::recursive);
  return test::checkpoints_of(folder / "run");
}

void flip_a_byte(const std::filesystem::path& file) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-3, std::ios::end);
  const int byte = stream.get();
  stream.seekp(-3, std::ios::end);
  stream.put(static_cast<char>(byte ^ 1));
}

}  // namespace

TEST_CASE("E26: killed at thirty moments and resumed, a run ends with the same bits and the same metrics") {
  kill_and_resume(undisturbed(), 30, 2, {"2"});
}

TEST_CASE("averages of the weights are part of what a resumed run goes on from, and eval takes them") {
  const Undisturbed whole({"--set", "train.ema_decay=0.95"});
  kill_and_resume(whole, 4, 5, {"1", "3"});
  const auto lines = whole.metrics;
  const double validated = nlohmann::json::parse(lines.back())["validation_loss"].get<double>();
  const auto evaluate = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"eval", "run/config.yaml", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run_child(whole.folder, words);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    return nlohmann::json::parse(outcome.out)["loss"].get<double>();
  };
  CHECK(evaluate({}) == validated);
  CHECK(evaluate({"--set", "train.ema_decay=0"}) != validated);  // the weights themselves
  const Outcome without = run_child(undisturbed().folder, {"eval", "run/config.yaml", "--set", "train.ema_decay=0.9"});
  CHECK(without.code == 8);
  CHECK(contains(without.err, "train.ema_decay"));
}

TEST_CASE("a run starts from the weights of another, with a new last layer and the rest frozen") {
  const TempFolder folder;
  test::write_file(folder / "first.yaml", test::made_up_config);
  REQUIRE(run_child(folder, {"train", "first.yaml", "--quiet"}).code == 0);
  const std::vector<std::string> second{
      "train",    "first.yaml",
      "--output", "second",
      "--set",    "train.init_from={path: run/checkpoints/step-00000006, fresh: ['linear_2.*']}",
      "--set",    "train.parts=[{match: 'linear_1.*', frozen: true}]"};
  const Outcome outcome = run_child(folder, second);
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(contains(outcome.out, "2 tensors of run/checkpoints/step-00000006; fresh: linear_2.weight, linear_2.bias"));
  const auto weights = [&](const std::string& run, const std::string& tensor) {
    const std::string file = test::content_of(folder / run / "checkpoints/step-00000006/model.safetensors");
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    const auto offsets = nlohmann::json::parse(file.substr(8, header))[tensor]["data_offsets"];
    const size_t begin = offsets[0], end = offsets[1];
    return file.substr(8 + header + begin, end - begin);
  };
  CHECK((weights("run", "linear_1.weight") == weights("second", "linear_1.weight")));
  CHECK((weights("run", "linear_2.weight") != weights("second", "linear_2.weight")));
  // What does not fit is said before anything is created.
  const Outcome misfit =
      run_child(folder, {"train", "first.yaml", "--output", "third", "--set", "network.0.linear.out_features=9", "--set",
                         "train.init_from=run/checkpoints/step-00000006"});
  CHECK(misfit.code == 8);
  CHECK(contains(misfit.err, "linear_1.weight [9, 6] (there: F32 [8, 6])"));
  CHECK(!std::filesystem::exists(folder / "third"));
}

TEST_CASE("E26, K24: killed and resumed each time with another number of stages, other rules of update and saving") {
  const Undisturbed whole({"--set", "train.optimizer=adamw", "--set", "train.learning_rate=0.003", "--set", "output.log_every=3",
                           "--set", "checkpoint={every_steps: 7, every_epochs: 2, keep_last: 1, best: accuracy}", "--set",
                           "data.drop_last=false", "--set", "pipeline.rematerialize=none", "--set", "train.clip_norm=1"});
  kill_and_resume(whole, 10, 3, {"1", "2", "3", "5"});
}

TEST_CASE("K24: a run goes on with another number of stages, to the same weights") {
  const TempFolder folder;
  test::write_file(folder / "run.yaml", test::tiny_config());
  REQUIRE(run_child(folder, {"train", "run.yaml", "--quiet", "--set", "train.schedule=constant", "--partitions", "1"}).code == 0);
  const std::string state = test::final_state(folder / "run");
  std::filesystem::remove_all(folder / "run");
  const std::vector<std::string> constant{"--quiet", "--set", "train.schedule=constant", "--set"};
  std::vector<std::string> first{"train", "run.yaml", "--partitions", "3"},
      second{"train", "run.yaml", "--partitions", "5", "--resume"};
  for (auto* arguments : {&first, &second}) arguments->insert(arguments->end(), constant.begin(), constant.end());
  first.emplace_back("train.steps=17");
  second.emplace_back("train.steps=40");
  REQUIRE(run_child(folder, first).code == 0);
  const Outcome outcome = run_child(folder, second);
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK((test::final_state(folder / "run") == state));
}

TEST_CASE("C22: resuming after the end does nothing, says so, and keeps the result") {
  const TempFolder folder;
  finished_run(folder);
  const auto before = test::read_json(folder / "run/result.json");
  const Outcome outcome = run_child(folder, {"train", "run.yaml", "--resume"});
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.out, "nothing is left to do: the run has its 40 steps"));
  const auto after = test::read_json(folder / "run/result.json");
  for (const char* key : {"status", "exit_code", "steps", "epochs", "loss", "accuracy", "learning_rate", "validation", "best"}) {
    CAPTURE(key);
    CHECK(after.value(key, nlohmann::json()) == before.value(key, nlohmann::json()));
  }
  check_same(folder, undisturbed());
}

TEST_CASE("a damaged newest checkpoint is passed over with a warning, and the run still ends the same") {
  const TempFolder folder;
  const auto all = finished_run(folder);
  REQUIRE(all.size() >= 2);
  flip_a_byte(all.back() / "optimizer.safetensors");
  const Outcome outcome = run_child(folder, {"train", "run.yaml", "--resume"});
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.err, "warning: skipped"));
  CHECK(contains(outcome.err, all.back().filename().string()));
  CHECK(contains(outcome.out, "going on from run/checkpoints/" + all[all.size() - 2].filename().string()));
  check_same(folder, undisturbed());
}

TEST_CASE("K23: when every checkpoint is damaged, or there is none, nothing is started afresh") {
  const TempFolder folder;
  for (const auto& checkpoint : finished_run(folder)) flip_a_byte(checkpoint / "model.safetensors");
  const Outcome damaged = run_child(folder, {"train", "run.yaml", "--resume"});
  CHECK(damaged.code == 8);
  CHECK(contains(damaged.err, "none of the"));
  std::filesystem::remove_all(folder / "run/checkpoints");
  CHECK(run_child(folder, {"train", "run.yaml", "--resume"}).code == 8);
  std::filesystem::remove_all(folder / "run");
  const Outcome nothing = run_child(folder, {"train", "run.yaml", "--resume"});
  CHECK(nothing.code == 8);
  CHECK(contains(nothing.err, "no run to resume"));
  CHECK(!std::filesystem::exists(folder / "run"));
}

TEST_CASE("K17: a checkpoint of another model or optimizer is refused by the first difference") {
  const TempFolder folder;
  finished_run(folder);
  const std::string state = test::final_state(folder / "run");
  struct Row {
    std::string set, says;
  };
  for (const Row& row :
       {Row{"network.0.conv2d.out_channels=6", "[4, 1, 3, 3]"}, Row{"network.6.linear.bias=false", "another model"},
        Row{"network.2=gelu", "gelu"}, Row{"train.optimizer=adam", "another optimizer"},
        Row{"train.optimizer={sgd: {momentum: 0}}", "another optimizer"}}) {
    CAPTURE(row.set);
    const Outcome outcome = run_child(folder, {"train", "run.yaml", "--resume", "--set", row.set});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 8);
    CHECK(contains(outcome.err, row.says));
  }
  CHECK((test::final_state(folder / "run") == state));
}

TEST_CASE("a run goes on with other settings, and says which of them change its numbers") {
  const TempFolder folder;
  test::write_file(folder / "run.yaml", test::tiny_config());
  REQUIRE(run_child(folder, {"train", "run.yaml", "--quiet", "--set", "train.steps=11"}).code == 0);
  const Outcome outcome =
      run_child(folder, {"train", "run.yaml", "--quiet", "--resume", "--set", "train.batch_size=64", "--set",
                         "train.parts=[{match: 'conv2d_1.*', frozen: true}]", "--set", "network.5.dropout.p=0.1"});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.err, "train.batch_size was 16 and is 64 now"));
  CHECK(contains(outcome.err, "train.parts was not set and is"));
  CHECK(contains(outcome.err, "network.5.dropout.p was 0.2 and is 0.1 now"));
  CHECK(contains(outcome.err, "train.steps was 11 and is 40 now"));
  CHECK(contains(outcome.err, "the run goes on from its checkpoint"));
  // Nothing of the earlier settings is left: the same command again has nothing to tell.
  const Outcome again =
      run_child(folder, {"train", "run.yaml", "--quiet", "--resume", "--partitions", "3", "--set", "train.batch_size=64", "--set",
                         "train.parts=[{match: 'conv2d_1.*', frozen: true}]", "--set", "network.5.dropout.p=0.1"});
  CHECK(again.code == 0);
  CHECK(again.err.empty());
}

TEST_CASE("a start that was killed before its first checkpoint is simply started again") {
  const TempFolder folder;
  test::write_file(folder / "run.yaml", test::made_up_config);
  std::filesystem::create_directories(folder / "run/checkpoints/.step-00000000.tmp-1-0");
  CHECK(run_child(folder, {"train", "run.yaml", "--quiet"}).code == 0);
  CHECK(!std::filesystem::exists(folder / "run/checkpoints/.step-00000000.tmp-1-0"));
}

}  // namespace gpipe::app
