// Text out of trained networks, as the program writes it: a continued prompt, translations, BLEU.
#include "core/train/bleu.h"
#include "data/sentencepiece.h"
#include "tests/app/tiny_run.h"

#include <doctest/doctest.h>

namespace gpipe::app {
namespace {

using test::contains;
using test::Outcome;
using test::TempFolder;

const char* const k_sources[] = {"a red house",   "the small dog sleeps", "two men play ball", "a woman reads a book",
                                 "the dog eats",  "a man in a red shirt", "two small houses",  "the book is red",
                                 "men and women", "a ball in the house",  "the man sleeps",    "a dog and a ball"};
const char* const k_targets[] = {"ein rotes Haus.",           "der kleine Hund schläft.", "zwei Männer spielen Ball.",
                                 "eine Frau liest ein Buch.", "der Hund frisst.",         "ein Mann in einem roten Hemd.",
                                 "zwei kleine Häuser.",       "das Buch ist rot.",        "Männer und Frauen.",
                                 "ein Ball im Haus.",         "der Mann schläft.",        "ein Hund und ein Ball."};

std::string joined(std::span<const char* const> lines) {
  std::string text;
  for (const char* line : lines) text += std::string(line) + "\n";
  return text;
}

/// A dozen sentences in two languages, a model of their tokens, and a small network that learns them by heart.
struct Place : TempFolder {
  Place() {
    test::write_file(*this / "source", joined(k_sources));
    test::write_file(*this / "target", joined(k_targets));
    test::write_file(*this / "words.model",
                     data::train_sentencepiece(
                         {{(*this / "source").string(), (*this / "target").string()}, true, 96, 1, {"<de>", "<fr>", "<cs>"}}));
    test::write_file(*this / "run.yaml", R"(network:
- {embedding: {num_embeddings: 96, embedding_dim: 32}, name: words}
- {positions: {kind: sinusoidal}, name: source}
- {attention: {heads: 2, padding: 0}, inputs: [source, input], name: seen}
- {add: , inputs: [seen, source], name: memory}
- {shift_tokens: {start: 2, padding: 0}, inputs: target}
- embedding: {num_embeddings: 96, embedding_dim: 32}
- positions: {kind: sinusoidal}
- {residual: {body: [layer_norm, attention: {heads: 2, causal: true}]}, name: x}
- {layer_norm: , name: query}
- {attention: {heads: 2, padding: 0}, inputs: [query, memory, input], name: crossed}
- {add: , inputs: [crossed, x], name: y}
- residual: {body: [layer_norm, linear: {out_features: 64}, relu, linear: {out_features: 32}]}
- linear: {out_features: 96}
pipeline: {partitions: 2, micro_batches: 2, bind_threads: false}
data:
  train: {parallel: {pairs: [{source: source, target: target, tag: <de>}], model: words.model, source_length: 18, target_length: 20}}
  validation: {parallel: {pairs: [{source: source, target: target, tag: <de>}], model: words.model, source_length: 18, target_length: 20}}
  drop_last: false
train: {batch_size: 12, steps: 200, optimizer: adam, learning_rate: 0.005, validate_every: 200}
output: {folder: run}
)");
  }
  Outcome run(std::vector<std::string> words) const { return test::run_child(*this, words); }
};

}  // namespace

TEST_CASE("what a small network has learned by heart it translates without a fault") {
  const Place place;
  const Outcome trained = place.run({"train", "run.yaml", "--quiet"});
  REQUIRE_MESSAGE(trained.code == 0, trained.err);
  const Outcome greedy = place.run({"predict", "run.yaml", "--quiet", "--input-text", "source"});
  REQUIRE_MESSAGE(greedy.code == 0, greedy.err);
  CHECK(greedy.out == joined(k_targets));

  SUBCASE("the same through other stages, schedules and by a beam, into a file, from standard input") {
    CHECK(place.run({"predict", "run.yaml", "--quiet", "--input-text", "source", "--partitions", "1"}).out == greedy.out);
    CHECK(place
              .run({"predict", "run.yaml", "--quiet", "--input-text", "source", "--partitions", "3", "--set",
                    "pipeline.schedule=1f1b", "--tag", "<de>"})
              .out == greedy.out);
    CHECK(place.run({"predict", "run.yaml", "--quiet", "--input-text", "source", "--beam", "4", "--output", "found"}).code == 0);
    CHECK(test::content_of(place / "found") == greedy.out);
    const Outcome piped = test::run_program(place, "predict run.yaml --quiet --input-text - < source");
    CHECK(piped.out == greedy.out);
    const Outcome score = place.run({"bleu", "found", "target"});
    CHECK(score.out.starts_with("BLEU = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000 hyp_len = "));
  }
  SUBCASE("eval --bleu says so too") {
    const Outcome eval = place.run({"eval", "run.yaml", "--bleu", "--json"});
    REQUIRE_MESSAGE(eval.code == 0, eval.err);
    const auto json = nlohmann::json::parse(eval.out);
    CHECK(json["bleu"]["score"].get<double>() == doctest::Approx(100));
    CHECK(json["perplexity"].get<double>() < 1.2);
    CHECK(contains(place.run({"eval", "run.yaml", "--bleu", "--quiet"}).out, "BLEU = 100.00"));
  }
  SUBCASE("predict without a text writes a line a sample") {
    std::istringstream lines(place.run({"predict", "run.yaml", "--quiet"}).out);
    int number = 0;
    for (std::string line; std::getline(lines, line); ++number) {
      const auto json = nlohmann::json::parse(line);
      CHECK(json["sample"] == number);
      CHECK(json["accuracy"] == 1.0);
      CHECK(json["tokens"].get<int>() > 3);
      CHECK(json["loss"].get<double>() < 0.2);
    }
    CHECK(number == 12);
  }
  SUBCASE("blank lines stay blank, long ones are cut, what cannot be is refused") {
    test::write_file(place / "lines",
                     "a red house\n\n   \n" + std::string(k_sources[0]) + " and a dog and a dog and a dog and a dog\n");
    const Outcome found = place.run({"predict", "run.yaml", "--quiet", "--input-text", "lines"});
    CHECK(found.out.starts_with("ein rotes Haus.\n\n\n"));
    CHECK(contains(found.err, "1 of 4 lines are longer than 18 tokens"));
    CHECK(contains(place.run({"predict", "run.yaml", "--prompt", "a"}).err, "use --input-text"));
    CHECK(contains(place.run({"predict", "run.yaml", "--input-text", "lines", "--tag", "<fr>"}).err, "wanted one of <de>"));
    CHECK(contains(place.run({"predict", "run.yaml", "--input-text", "lines", "--top-k", "3"}).err, "--top-k"));
    CHECK(place.run({"predict", "run.yaml", "--input-text", "nothing"}).code == 3);
  }
}

TEST_CASE("configs/multi30k_*.yaml run on other files, and BLEU is told by tag") {
  const Place place;
  const std::pair<std::string, int> files[] = {{"multi30k_en_de", 1}, {"multi30k_multilingual", 3}};
  for (const auto& [name, pairs] : files) {
    CAPTURE(name);
    std::vector<std::string> common{(test::source_dir() / "configs" / (name + ".yaml")).string(), "--quiet", "--output", name};
    const auto set = [&](const std::string& setting) { common.insert(common.end(), {"--set", setting}); };
    for (const std::string data : {"data.train.parallel.", "data.validation.parallel."}) {
      for (int pair = 0; pair < pairs; ++pair) {
        set(data + "pairs." + std::to_string(pair) + ".source=source");
        set(data + "pairs." + std::to_string(pair) + ".target=target");
      }
      set(data + "model=words.model");
    }
    for (const char* setting : {"network.params.vocabulary=96", "network.params.model=16", "network.params.H=16",
                                "network.params.A=1", "network.params.L=2", "train.epochs=0", "train.steps=3",
                                "train.warmup_steps=1", "train.batch_size=8", "pipeline.bind_threads=false"})
      set(setting);
    const auto run = [&](const std::string& verb, const std::vector<std::string>& more) {
      std::vector<std::string> words{verb};
      words.insert(words.end(), common.begin(), common.end());
      words.insert(words.end(), more.begin(), more.end());
      return place.run(words);
    };
    const Outcome trained = run("train", {});
    CHECK_MESSAGE(trained.code == 0, trained.err);
    const Outcome eval = run("eval", {"--bleu", "--json"});
    REQUIRE_MESSAGE(eval.code == 0, eval.err);
    const auto json = nlohmann::json::parse(eval.out);
    CHECK(json["bleu"]["reference_length"].get<int>() > 20 * pairs);
    CHECK(json.contains("bleu_by_tag") == (pairs == 3));
    if (pairs == 3) {
      int sum = 0;
      for (const char* tag : {"<de>", "<fr>", "<cs>"}) sum += json["bleu_by_tag"][tag]["reference_length"].get<int>();
      CHECK(sum == json["bleu"]["reference_length"].get<int>());
    }
  }
}

TEST_CASE("a prompt goes on with the same text through any stages, greedily or drawn") {
  const TempFolder place;
  std::filesystem::create_directory(place / "data");
  test::write_file(place / "data/rhyme.txt", test::content_of(test::source_dir() / "data/rhyme.txt"));
  test::write_file(place / "run.yaml", test::content_of(test::source_dir() / "configs/text_characters.yaml"));
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--set", "pipeline.bind_threads=false"});
    return test::run_child(place, words);
  };
  REQUIRE(run({"train", "run.yaml", "--quiet", "--output", "run", "--set", "train.steps=60", "--set", "train.validate_every=60"})
              .code == 0);
  const auto text = [&](std::vector<std::string> words) {
    std::vector<std::string> all{"predict", "run.yaml", "--quiet", "--set", "output.folder=run", "--length", "50"};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome outcome = run(all);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.out;
  };
  const std::string greedy = text({"--prompt", "the "});
  CHECK(greedy.starts_with("the "));
  CHECK(greedy.size() == 55);  // characters of ASCII, and a line end
  CHECK(text({"--prompt", "the ", "--partitions", "3"}) == greedy);
  CHECK(text({"--prompt", "the ", "--top-k", "1", "--temperature", "1"}) == greedy);
  const std::string drawn = text({"--prompt", "the ", "--temperature", "1.5"});
  CHECK(drawn != greedy);
  CHECK(text({"--prompt", "the ", "--temperature", "1.5", "--partitions", "1"}) == drawn);
  CHECK(text({"--prompt", "the ", "--temperature", "1.5", "--seed", "2"}) != drawn);
  test::write_file(place / "prompt", "the ");
  CHECK(text({"--prompt-file", "prompt"}) == greedy);
  CHECK(text({"--prompt", ""}).starts_with("\n"));
  CHECK(contains(run({"predict", "run.yaml", "--prompt", "\xc3\xa4", "--set", "output.folder=run"}).err, "--prompt"));
  CHECK(contains(run({"predict", "run.yaml", "--input-text", "prompt", "--set", "output.folder=run"}).err, "use --prompt"));
}

TEST_CASE("bleu: files of different lengths are refused, JSON has every part") {
  const TempFolder folder;
  test::write_file(folder / "a", "the cat sat on the mat .\nno\n");
  test::write_file(folder / "b", "the cat sat on a mat .\n");
  test::write_file(folder / "c", "the cat sat on a mat .\nno\n");
  const Outcome refused = test::run_child(folder, {"bleu", "a", "b"});
  CHECK(refused.code == 3);
  CHECK(contains(refused.err, "a has 2 lines, b has 1"));
  const auto json = nlohmann::json::parse(test::run_child(folder, {"bleu", "a", "c", "--json"}).out);
  CHECK(json["hypothesis_length"] == 8);
  CHECK(json["precisions"].size() == 4);
  CHECK(json["score"].get<double>() == doctest::Approx(train::bleu(std::vector<std::string>{"the cat sat on the mat .", "no"},
                                                                   std::vector<std::string>{"the cat sat on a mat .", "no"})
                                                           .score));
  CHECK(test::run_child(folder, {"bleu", "a"}).code == 2);
}

}  // namespace gpipe::app
