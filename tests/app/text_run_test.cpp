// Text from the file to the metrics: the small configuration for characters, and the command `tokenize`.
#include "tests/app/tiny_run.h"

#include <doctest/doctest.h>

#include <cmath>

namespace gpipe::app {
namespace {

using test::contains;
using test::Outcome;
using test::TempFolder;

/// A folder with the configuration and the text that it names.
struct Place : TempFolder {
  Place() {
    std::filesystem::create_directory(*this / "data");
    test::write_file(*this / "data/rhyme.txt", test::content_of(test::source_dir() / "data/rhyme.txt"));
    test::write_file(*this / "run.yaml", test::content_of(test::source_dir() / "configs/text_characters.yaml"));
  }
  Outcome run(const std::vector<std::string>& words) const { return test::run_child(*this, words); }
};

std::vector<std::string> short_run(const std::string& output, const std::string& partitions) {
  return {"train",
          "run.yaml",
          "--quiet",
          "--output",
          output,
          "--partitions",
          partitions,
          "--set",
          "train.steps=12",
          "--set",
          "train.validate_every=6",
          "--set",
          "train.warmup_steps=2",
          "--set",
          "pipeline.bind_threads=false"};
}

}  // namespace

TEST_CASE("a small GPT learns the characters of a text, with the same bits on one stage and on three") {
  const Place place;
  REQUIRE(place.run(short_run("one", "1")).code == 0);
  REQUIRE(place.run(short_run("three", "3")).code == 0);
  CHECK((test::final_state(place / "one") == test::final_state(place / "three")));
  CHECK(test::timeless_metrics(place / "one") == test::timeless_metrics(place / "three"));
  std::istringstream text(test::content_of(place / "one/metrics.jsonl"));
  double first = 0, last = 0;
  int number = 0;
  for (std::string line; std::getline(text, line); ++number) {
    const auto json = nlohmann::json::parse(line);
    last = json["loss"];
    if (number == 0) first = last;
    CHECK(json["perplexity"].get<double>() == std::exp(last));
    CHECK(json["tokens_per_second"].get<double>() == doctest::Approx(32 * json["samples_per_second"].get<double>()));
    CHECK(json.contains("validation_perplexity") == (number % 6 == 5));
    if (number % 6 == 5) CHECK(json["validation_perplexity"] == std::exp(json["validation_loss"].get<double>()));
  }
  CHECK(number == 12);
  CHECK(first == doctest::Approx(std::log(45)).epsilon(0.15));  // 45 characters, all as likely
  CHECK(last < 0.9 * first);
}

TEST_CASE("eval tells the perplexity that the run's validation found") {
  const Place place;
  std::vector<std::string> train = short_run("run", "2");
  train.insert(train.end(), {"--set", "checkpoint.best=\"\""});
  REQUIRE(place.run(train).code == 0);
  const auto validation = test::read_json(place / "run/result.json")["validation"];
  const Outcome eval = place.run({"eval", "run/config.yaml", "--json"});
  const auto found = nlohmann::json::parse(eval.out, nullptr, false);
  CHECK(found["loss"] == validation["loss"]);
  CHECK(found["perplexity"] == validation["perplexity"]);
  CHECK(found["accuracy"] == validation["accuracy"]);
  CHECK(found["tokens"] == 32 * validation["samples"].get<int64_t>());
  CHECK(contains(place.run({"eval", "run/config.yaml"}).out, ", perplexity "));
}

TEST_CASE("tokenize: the same model twice, private files, text to ids and back, a file of tokens that can be trained on") {
  const Place place;
  const std::vector<std::string> made{"tokenize", "--input", "data/rhyme.txt", "data/rhyme.txt",
                                      "--output", "m",       "--vocabulary",   "150",
                                      "--type",   "bpe",     "--symbols",      "<de>,<fr>"};
  const Outcome first = place.run(made);
  REQUIRE(first.code == 0);
  CHECK(contains(first.out, "m.model and m.vocab: 150 tokens; padding 0, unknown 1, begin 2, end 3, <de> 4, <fr> 5"));
  CHECK(first.err.empty());
  CHECK(test::mode_of(place / "m.model") == 0600);
  CHECK(test::content_of(place / "m.vocab").starts_with("<pad>\t0\n<unk>\t0\n<s>\t0\n</s>\t0\n<de>\t0\n<fr>\t0\n"));
  CHECK(place.run(made).code == 6);  // the name is taken
  std::vector<std::string> again = made;
  again[5] = "n";
  REQUIRE(place.run(again).code == 0);
  CHECK((test::content_of(place / "m.model") == test::content_of(place / "n.model")));

  const std::string lines = "the river turned\n\n<de> a loaf for Jean\n";
  test::write_file(place / "a.txt", lines);
  const Outcome ids = place.run({"tokenize", "--model", "m.model", "--encode", "a.txt"});
  REQUIRE(ids.code == 0);
  test::write_file(place / "a.ids", ids.out);
  CHECK(place.run({"tokenize", "--model", "m.model", "--decode", "a.ids"}).out == lines);
  test::write_file(place / "a.ids", "1 2\n7 150\n");
  CHECK(
      contains(place.run({"tokenize", "--model", "m.model", "--decode", "a.ids"}).err, "a.ids:2: token 150 is not in [0, 150)"));
  test::write_file(place / "a.ids", "1 x");
  CHECK(place.run({"tokenize", "--model", "m.model", "--decode", "a.ids"}).code == 3);

  REQUIRE(place.run({"tokenize", "--model", "m.model", "--input", "data/rhyme.txt", "--bin", "a.bin"}).code == 0);
  CHECK(test::mode_of(place / "a.bin") == 0600);
  CHECK(std::filesystem::file_size(place / "a.bin") % 2 == 0);
  const Outcome check =
      place.run({"check", "run.yaml", "--set", "data={train: {tokens: {files: [a.bin], length: 32, classes: 150}}}", "--set",
                 "network.params.vocabulary=150"});
  CAPTURE(check.err);
  CHECK(check.code == 0);
}

TEST_CASE("tokenize: what does not fit together is refused") {
  const Place place;
  test::write_file(place / "none.model", "nothing");
  struct Row {
    std::vector<std::string> words;
    int code;
    std::string says;
  };
  for (const Row& row : {Row{{}, 2, "wanted one of --output"}, Row{{"--output", "m"}, 2, "--input is missing"},
                         Row{{"--encode", "data/rhyme.txt"}, 2, "--model is missing"},
                         Row{{"--encode", "a", "--decode", "b", "--model", "m"}, 2, "wanted one of --output"},
                         Row{{"--input", "data/rhyme.txt", "--output", "m", "--vocabulary", "90000"}, 2, "SentencePiece cannot"},
                         Row{{"--input", "gone.txt", "--output", "m"}, 3, "gone.txt: cannot be opened"},
                         Row{{"--model", "none.model", "--encode", "data/rhyme.txt"}, 3, "no SentencePiece model"},
                         Row{{"--input", "data/rhyme.txt", "--output", "m", "--type", "words"}, 2, "--type"}}) {
    std::vector<std::string> words = row.words;
    words.insert(words.begin(), "tokenize");
    const Outcome outcome = place.run(words);
    CAPTURE(outcome.err);
    CHECK(outcome.code == row.code);
    CHECK(contains(outcome.err, row.says));
    CHECK(!std::filesystem::exists(place / "m.model"));
  }
}

}  // namespace gpipe::app
