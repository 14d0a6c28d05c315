// A translation in buckets of lines by length, from the files to the metrics: the same run however it is divided or cut short.
#include "tests/app/tiny_run.h"

#include <doctest/doctest.h>

#include <cmath>

namespace gpipe::app {
namespace {

using test::contains;
using test::Outcome;
using test::TempFolder;

const char* const k_config = R"(network:
  file: transformer-nmt.yaml
  params: {L: 1, H: 24, A: 1, model: 16, vocabulary: 150, sequence: 28, dropout: 0.1}
pipeline: {partitions: 2, micro_batches: 2, schedule: 1f1b, rematerialize: none, bind_threads: false}
data:
  train:
    parallel:
      pairs: [{source: source.txt, target: rhyme.txt}]
      model: m.model
      source_length: 28
      target_length: 24
      buckets: [[18, 18], [23, 23], [28, 24]]
  validation:
    parallel:
      pairs: [{source: source.txt, target: rhyme.txt}]
      model: m.model
      source_length: 28
      target_length: 24
      buckets: [[18, 18], [23, 23], [28, 24]]
      range: [0, 41]
train: {batch_size: 8, steps: 24, learning_rate: 0.003, optimizer: adam, validate_every: 8}
checkpoint: {every_steps: 1, keep_last: 100}
output: {folder: run}
)";

/// A folder with the configuration, a model and two texts of the same number of lines; some of the first are blank.
struct Place : TempFolder {
  Place() {
    const std::string rhyme = test::content_of(test::source_dir() / "data/rhyme.txt");
    test::write_file(*this / "rhyme.txt", rhyme);
    std::string source = rhyme;
    std::rotate(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(source.find('\n', 400)) + 1, source.end());
    test::write_file(*this / "source.txt", source);
    test::write_file(*this / "transformer-nmt.yaml",
                     test::content_of(test::source_dir() / "configs/networks/transformer-nmt.yaml"));
    test::write_file(*this / "run.yaml", k_config);
    REQUIRE(run({"tokenize", "--input", "rhyme.txt", "--output", "m", "--vocabulary", "150", "--type", "bpe"}).code == 0);
  }
  Outcome run(const std::vector<std::string>& words) const { return test::run_child(*this, words); }
  Outcome train(const std::vector<std::string>& more) const {
    std::vector<std::string> words{"train", "run.yaml", "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

}  // namespace

TEST_CASE("a run in buckets leaves the same bits on one stage and three, and resumed at any mini-batch") {
  const Place place;
  REQUIRE(place.train({}).code == 0);
  const std::string state = test::final_state(place / "run");
  const auto metrics = test::timeless_metrics(place / "run");
  CHECK(metrics.size() == 24);
  for (const std::vector<std::string>& other : {std::vector<std::string>{"--partitions", "1"},
                                                {"--partitions", "3", "--set", "pipeline.schedule=zb_h1"},
                                                {"--set", "pipeline.rematerialize=full"}}) {
    std::vector<std::string> words{"--output", "other"};
    words.insert(words.end(), other.begin(), other.end());
    REQUIRE(place.train(words).code == 0);
    CHECK((test::final_state(place / "other") == state));
    CHECK(test::timeless_metrics(place / "other") == metrics);
    std::filesystem::remove_all(place / "other");
  }
  const auto saved = test::checkpoints_of(place / "run");  // one a step, and the one before the first
  REQUIRE(saved.size() == 25);
  for (size_t at : {1, 2, 5, 9, 10, 11, 12, 18, 23}) {
    CAPTURE(at);
    std::filesystem::copy(place / "run", place / "cut", std::filesystem::copy_options::recursive);
    for (size_t later = at + 1; later < saved.size(); ++later)
      std::filesystem::remove_all(place / "cut/checkpoints" / saved[later].filename());
    const Outcome outcome = place.train({"--output", "cut", "--resume"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    CHECK((test::final_state(place / "cut") == state));
    CHECK(test::timeless_metrics(place / "cut") == metrics);
    std::filesystem::remove_all(place / "cut");
  }
}

TEST_CASE("eval finds what the validation found, in buckets or padded; predict keeps the samples' order") {
  const Place place;
  REQUIRE(place.train({"--set", "train.steps=9"}).code == 0);
  const auto validation = test::read_json(place / "run/result.json")["validation"];
  const auto evaluate = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"eval", "run/config.yaml", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = place.run(words);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    return nlohmann::json::parse(outcome.out);
  };
  const auto in_buckets = evaluate({});
  CHECK(in_buckets["loss"] == validation["loss"]);
  CHECK(in_buckets["samples"] == 41);
  const auto padded = evaluate({"--set", "data.validation.parallel.buckets=[[28, 24]]"});
  CHECK(padded["tokens"] == in_buckets["tokens"]);
  CHECK(padded["loss"].get<double>() == doctest::Approx(in_buckets["loss"].get<double>()).epsilon(1e-5));

  REQUIRE(place.run({"predict", "run/config.yaml", "--output", "found.jsonl", "--quiet"}).code == 0);
  std::istringstream text(test::content_of(place / "found.jsonl"));
  double sum = 0;
  int64_t number = 0, tokens = 0;
  for (std::string line; std::getline(text, line); ++number) {
    const auto json = nlohmann::json::parse(line);
    CHECK(json["sample"] == number);
    sum += json["loss"].get<double>() * json["tokens"].get<double>();
    tokens += json["tokens"].get<int64_t>();
  }
  CHECK(number == 41);
  CHECK(tokens == in_buckets["tokens"].get<int64_t>());
  CHECK(sum / static_cast<double>(tokens) == doctest::Approx(in_buckets["loss"].get<double>()).epsilon(1e-5));
  CHECK(place.run({"predict", "run/config.yaml", "--input-text", "source.txt", "--output", "found.txt", "--quiet"}).code == 0);
}

TEST_CASE("plan tells each bucket's share and step, and verify compares a mini-batch of each") {
  const Place place;
  const Outcome outcome = place.run({"plan", "run.yaml", "--json"});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const auto plan = nlohmann::json::parse(outcome.out);
  REQUIRE(plan["buckets"].size() == 3);
  double share = 0, mean = 0, before = INFINITY;
  int64_t batches = 0;
  for (const auto& bucket : plan["buckets"]) {
    share += bucket["share"].get<double>();
    batches += bucket["batches_per_epoch"].get<int64_t>();
    mean += bucket["share"].get<double>() * bucket["step_seconds"].get<double>();
    CHECK(bucket["batches_per_epoch"] > 0);
    CHECK(bucket["step_seconds"] < before);
    before = bucket["step_seconds"];
  }
  CHECK(plan["buckets"][0]["input"] == nlohmann::json{28});
  CHECK(plan["buckets"][2]["target"] == nlohmann::json{18});
  CHECK(share == doctest::Approx(1));
  CHECK(plan["predicted"]["step_seconds"].get<double>() == doctest::Approx(mean));
  const Outcome page = place.run({"plan", "run.yaml"});
  CHECK(contains(page.out, "104 training samples make " + std::to_string(batches) + " mini-batches an epoch"));
  CHECK(contains(page.out, "[18], [18]"));
  CHECK(contains(page.out, "a step on average"));
  const Outcome verified = place.run({"verify", "run.yaml"});
  for (const char* bucket : {"bucket [28], [24]: 2 stages", "bucket [23], [23]: 2 stages", "bucket [18], [18]: 2 stages"})
    CHECK(contains(verified.out, bucket));
  // One bucket is none.
  const auto single = place.run({"plan", "run.yaml", "--json", "--set", "data.train.parallel.buckets=[[28, 24]]", "--set",
                                 "data.validation.parallel.buckets=[[28, 24]]"});
  CHECK(!nlohmann::json::parse(single.out).contains("buckets"));
}

TEST_CASE("buckets: faults are said before the run, and other buckets than before are told of in a resumed one") {
  const Place place;
  const auto with = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> words{"check", "run.yaml"};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return place.run(words);
  };
  CHECK(with({}).code == 0);
  CHECK(with({"data.validation.parallel.buckets=[[28, 24]]"}).code == 0);
  Outcome outcome = with({"data.validation.parallel.buckets=[[20, 20], [28, 24]]"});
  CHECK(outcome.code == 3);
  CHECK(contains(outcome.err, "other buckets than the training set"));
  outcome = with({"data.train.parallel.buckets=[[20, 20], [24, 24]]"});
  CHECK(outcome.code == 2);
  CHECK(contains(outcome.err, "the last bucket is [24, 24]"));
  outcome =
      with({"network=[{embedding: {num_embeddings: 150, embedding_dim: 8}}, {reshape: {shape: [28, 8]}}, "
            "{attention: {heads: 1}}, {slice: {axis: 0, begin: 0, end: 24}}, {linear: {out_features: 150}}]"});
  CHECK(outcome.code == 2);
  CHECK(contains(outcome.err, "with samples of the bucket"));

  REQUIRE(place.train({"--set", "train.steps=3"}).code == 0);
  outcome = place.train({"--resume", "--set", "train.steps=4", "--set", "data.train.parallel.buckets=[[13, 16], [28, 24]]",
                         "--set", "data.validation.parallel.buckets=[[28, 24]]"});
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.err, "data.train.parallel.buckets"));
}

}  // namespace gpipe::app
