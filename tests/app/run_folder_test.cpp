// What a run leaves behind, for whom, and how its neighbours are kept out.
#include "tests/app/tiny_run.h"

#include <doctest/doctest.h>

namespace gpipe::app {
namespace {

using test::Child;
using test::contains;
using test::Outcome;
using test::run_child;
using test::TempFolder;

struct Place : TempFolder {
  explicit Place(const std::string& config = test::made_up_config) { test::write_file(*this / "run.yaml", config); }
  Outcome run(std::vector<std::string> words, const std::function<void()>& in_child = {}) const {
    return run_child(*this, words, in_child);
  }
};

std::set<std::string> keys_of(const nlohmann::json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

void check_private(const std::filesystem::path& run) {
  CHECK(test::mode_of(run) == 0700);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(run)) {
    CAPTURE(entry.path().string());
    CHECK(test::mode_of(entry.path()) == (entry.is_directory() ? 0700 : 0600));
  }
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t start = text.find_last_of('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1, end - start);
}

}  // namespace

TEST_CASE("a second run in the same folder is refused, and leaves the first one alone") {
  const Place place;
  REQUIRE(place.run({"train", "run.yaml", "--quiet"}).code == 0);
  const std::string result = test::content_of(place / "run/result.json");
  const Outcome again = place.run({"train", "run.yaml"});
  CHECK(again.code == 6);
  CHECK(contains(again.err, "run: holds a run already"));
  CHECK(test::content_of(place / "run/result.json") == result);
}

TEST_CASE("two processes at once in one folder are refused, also to resume") {
  const Place place(test::tiny_config());
  Child first(place.path(), {"train", "run.yaml", "--quiet"});
  REQUIRE(test::wait_until([&] { return std::filesystem::exists(place / "run/config.yaml") || !first.running(); }));
  first.signal(SIGSTOP);
  const Place elsewhere;  // its streams are not those of the first
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--resume"}}) {
    std::vector<std::string> words{"train", (place / "run.yaml").string(), "--output", (place / "run").string()};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome second = elsewhere.run(words);
    CHECK(second.code == 6);
    CHECK(contains(second.err, "another process runs in this folder"));
  }
  first.signal(SIGCONT);
  CHECK(first.wait() == 0);
}

TEST_CASE("E2, C21: a link as output folder is followed once, and dot-dots are shown resolved") {
  const Place place(test::tiny_config());
  std::filesystem::create_directory(place / "first");
  std::filesystem::create_directory(place / "second");
  std::filesystem::create_directory_symlink("first", place / "run");
  Child child(place.path(), {"train", "run.yaml", "--quiet"});
  REQUIRE(test::wait_until([&] { return std::filesystem::exists(place / "first/config.yaml") || !child.running(); }));
  std::filesystem::remove(place / "run");
  std::filesystem::create_directory_symlink("second", place / "run");
  CHECK(child.wait() == 0);
  CHECK(test::read_json(place / "first/result.json")["status"] == "finished");
  CHECK(std::filesystem::is_empty(place / "second"));
  const Outcome outcome = place.run({"train", "run.yaml", "--output", "a/../b/run"});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.out, "run folder: " + std::filesystem::canonical(place / "b/run").string()));
}

TEST_CASE("what is not the run's own in its folder is left alone") {
  const Place place;
  for (const char* name : {"run/notes.txt", "run/.notes.tmp-1", "run/checkpoints/mine/weights"})
    test::write_file(place / name, "mine");
  test::write_file(place / "run/.result.json.tmp-1-0", "cut short");
  CHECK(place.run({"train", "run.yaml", "--quiet"}).code == 0);
  for (const char* name : {"run/notes.txt", "run/.notes.tmp-1", "run/checkpoints/mine/weights"}) {
    CAPTURE(name);
    CHECK(test::content_of(place / name) == "mine");
  }
  CHECK(!std::filesystem::exists(place / "run/.result.json.tmp-1-0"));
}

TEST_CASE("E19: files are for their owner alone, whatever the umask") {
  for (const mode_t mask : {0, 0777}) {
    CAPTURE(mask);
    const Place place;
    const Outcome outcome = place.run({"train", "run.yaml", "--quiet", "--profile"}, [mask] { umask(mask); });
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    check_private(place / "run");
    CHECK(place.run({"train", "run.yaml", "--resume"}, [mask] { umask(mask); }).code == 0);
    check_private(place / "run");
  }
}

TEST_CASE("E16: a run started without standard streams writes none of its words into its files") {
  const Place place;
  CHECK(place
            .run({"train", "run.yaml"},
                 [] {
                   for (int fd = 0; fd < 3; ++fd) close(fd);
                 })
            .code == 0);
  CHECK(test::timeless_metrics(place / "run").size() == 6);
  CHECK(test::read_json(place / "run/result.json")["status"] == "finished");
  CHECK(test::read_json(place / "run/plan.json").is_object());
}

TEST_CASE("metrics.jsonl and result.json have the documented keys, no more and no fewer") {
  const Place place;
  REQUIRE(place.run({"train", "run.yaml", "--quiet"}).code == 0);
  const std::set<std::string> every{"step",          "epoch",   "loss",       "accuracy",        "learning_rate",
                                    "gradient_norm", "updated", "seconds",    "seconds_waiting", "samples_per_second",
                                    "busy_seconds",  "bubble",  "arena_bytes"};
  std::set<std::string> validated = every;
  validated.insert({"validation_loss", "validation_accuracy"});
  std::istringstream text(test::content_of(place / "run/metrics.jsonl"));
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    const auto json = nlohmann::json::parse(line);
    CHECK(json["step"] == ++number);
    CHECK(keys_of(json) == (number == 6 ? validated : every));
    CHECK(json["busy_seconds"].size() == 2);
    CHECK(json["arena_bytes"].size() == 2);
  }
  CHECK(number == 6);
  CHECK(keys_of(test::read_json(place / "run/result.json")) ==
        std::set<std::string>{"status", "exit_code", "name", "folder", "steps", "total_steps", "epochs", "skipped_updates",
                              "parameters", "arena_bytes", "seconds", "loss", "accuracy", "learning_rate", "validation", "best",
                              "prediction"});
  CHECK(!std::filesystem::exists(place / "run/profile.json"));
}

TEST_CASE("the run folder's config.yaml runs by itself to the same weights, and finds its own run") {
  const Place place(test::tiny_config());
  REQUIRE(place.run({"train", "run.yaml", "--quiet", "--set", "train.seed=5", "--threads", "1"}).code == 0);
  const Outcome refused = place.run({"train", "run/config.yaml"});
  CHECK(refused.code == 6);
  CHECK(place.run({"train", "run/config.yaml", "--quiet", "--output", "again"}).code == 0);
  CHECK((test::final_state(place / "again") == test::final_state(place / "run")));
  CHECK(place.run({"eval", "run/config.yaml", "--json"}).code == 0);
  CHECK(place.run({"train", "run/config.yaml", "--resume"}).code == 0);
}

TEST_CASE("--quiet prints nothing, --json ends with one line of JSON, --dry-run and check create nothing") {
  const Place place;
  for (const std::vector<std::string>& words : {std::vector<std::string>{"train", "run.yaml", "--dry-run"},
                                                {"check", "run.yaml"},
                                                {"plan", "run.yaml"},
                                                {"verify", "run.yaml"}}) {
    CAPTURE(words[0]);
    CHECK(place.run(words).code == 0);
    CHECK(!std::filesystem::exists(place / "run"));
  }
  const Outcome planned = place.run({"train", "run.yaml", "--dry-run", "--json"});
  CHECK(nlohmann::json::parse(last_line(planned.out), nullptr, false).is_object());
  const Outcome quiet = place.run({"train", "run.yaml", "--quiet"});
  CHECK(quiet.out.empty());
  CHECK(quiet.err.empty());
  CHECK(place.run({"train", "run.yaml", "--quiet", "--resume"}).out.empty());
  const Outcome json = place.run({"train", "run.yaml", "--json", "--output", "other"});
  CHECK(nlohmann::json::parse(last_line(json.out), nullptr, false) == test::read_json(place / "other/result.json"));
  const Outcome failed =
      place.run({"train", "run.yaml", "--json", "--quiet", "--output", "bad", "--set", "train.learning_rate=1000", "--set",
                 "train.steps=500", "--set", "train.optimizer={sgd: {momentum: 0.99}}"});
  CHECK(nlohmann::json::parse(failed.out, nullptr, false) == test::read_json(place / "bad/result.json"));
}

TEST_CASE("eval and predict find the accuracy that result.json has") {
  const Place place(test::tiny_config());
  REQUIRE(place.run({"train", "run.yaml", "--quiet", "--set", "checkpoint.best=\"\""}).code == 0);
  const auto validation = test::read_json(place / "run/result.json")["validation"];
  const Outcome eval = place.run({"eval", "run.yaml", "--json", "--set", "checkpoint.best=\"\""});
  const auto found = nlohmann::json::parse(eval.out, nullptr, false);
  CHECK(found["accuracy"] == validation["accuracy"]);
  CHECK(found["loss"] == validation["loss"]);
  CHECK(found["samples"] == validation["samples"]);
  REQUIRE(place.run({"predict", "run.yaml", "--output", "predictions.jsonl"}).code == 0);
  std::istringstream text(test::content_of(place / "predictions.jsonl"));
  int right = 0, all = 0;
  for (std::string line; std::getline(text, line); ++all) right += nlohmann::json::parse(line)["right"].get<bool>() ? 1 : 0;
  CHECK(all == 64);
  CHECK(static_cast<double>(right) / all == validation["accuracy"].get<double>());
}

TEST_CASE("--profile leaves the costs of every node, and verify prints digests of loss, gradients and weights") {
  const Place place;
  REQUIRE(place.run({"train", "run.yaml", "--quiet", "--profile"}).code == 0);
  const auto profile = test::read_json(place / "run/profile.json");
  CHECK(profile["nodes"].size() == 4);
  for (const auto& node : profile["nodes"]) CHECK(node["forward"].get<double>() > 0);
  const Outcome verify = place.run({"verify", "run.yaml"});
  CHECK(verify.code == 0);
  for (const char* what : {"loss ", "gradients ", "weights ", "the same bits as unpiped"}) CHECK(contains(verify.out, what));
}

TEST_CASE("every configuration that comes with the program trains") {
  const auto idx = test::shared("datasets/mnist"), cifar = test::shared("datasets/cifar10");
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "configs")) {
    if (!entry.is_regular_file()) continue;
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    const Place place;
    std::vector<std::string> words{
        "train", entry.path().string(), "--quiet", "--output",           (place / "run").string(), "--set", "train.steps=3",
        "--set", "train.epochs=0",      "--set",   "train.batch_size=16"};
    const auto set = [&](const std::string& key, const std::filesystem::path& value) {
      words.insert(words.end(), {"--set", key + "=" + value.string()});
    };
    if (name == "shakespeare.yaml") {
      const auto text = test::shared("datasets/text/tinyshakespeare.txt");
      if (!text) continue;
      for (const char* part : {"train", "validation"}) set(std::string("data.") + part + ".text.path", *text);
      set("data.validation.text.range", "[0.9, 0.91]");
    }
    if (name.starts_with("multi30k_")) continue;  // generate_run_test.cpp: they want a tokenizer's model
    if (name == "mnist.yaml") {
      if (!idx) continue;
      for (const std::string part : {"train", "validation"}) {
        set("data." + part + ".idx.images", *idx / "t10k-images-idx3-ubyte.gz");
        set("data." + part + ".idx.range", "[0, 64]");
        set("data." + part + ".idx.labels", *idx / "t10k-labels-idx1-ubyte.gz");
      }
    }
    if (name.starts_with("cifar10_")) {
      if (!cifar) continue;
      for (const char* part : {"train", "validation"}) set(std::string("data.") + part + ".cifar.range", "[0, 64]");
      set("data.train.cifar.files", "[" + (*cifar / "data_batch_1.bin").string() + "]");
      set("data.validation.cifar.files", "[" + (*cifar / "test_batch.bin").string() + "]");
      if (name == "cifar10_transfer.yaml") set("train.init_from", "null");  // the weights of a run that is not there
    }
    const Outcome outcome = run_child(place, words, [] {
      if (chdir(test::source_dir().c_str()) != 0) _exit(126);  // data/ is looked for from where the program is started
    });
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    CHECK(test::timeless_metrics(place / "run").size() == 3);
  }
}

}  // namespace gpipe::app
