// BLEU against sacreBLEU's own numbers (tests/reference/make_bleu.py).
#include "core/train/bleu.h"

#include "tests/support/paths.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <fstream>

namespace gpipe::train {

TEST_CASE("bleu: scores, counts and lines are sacreBLEU's") {
  const auto stored = nlohmann::json::parse(std::ifstream(test::source_dir() / "tests/reference/bleu.json"));
  REQUIRE(stored["corpora"].size() >= 15);
  for (const auto& corpus : stored["corpora"]) {
    CAPTURE(corpus["name"].get<std::string>());
    const auto hypotheses = corpus["hypotheses"].get<std::vector<std::string>>();
    const auto references = corpus["references"].get<std::vector<std::string>>();
    const Bleu found = bleu(hypotheses, references);
    CHECK(found.score == doctest::Approx(corpus["score"].get<double>()).epsilon(1e-12));
    for (size_t n = 0; n < static_cast<size_t>(k_bleu_orders); ++n) {
      CHECK(found.matches[n] == corpus["matches"][n].get<int64_t>());
      CHECK(found.totals[n] == corpus["totals"][n].get<int64_t>());
      CHECK(found.precisions[n] == doctest::Approx(corpus["precisions"][n].get<double>()).epsilon(1e-12));
    }
    CHECK(found.brevity_penalty == doctest::Approx(corpus["brevity_penalty"].get<double>()).epsilon(1e-12));
    CHECK(found.hypothesis_length == corpus["hypothesis_length"].get<int64_t>());
    CHECK(found.reference_length == corpus["reference_length"].get<int64_t>());
    CHECK(found.text() == corpus["text"].get<std::string>());
  }
}

TEST_CASE("bleu: tokens are those of 13a") {
  const auto stored = nlohmann::json::parse(std::ifstream(test::source_dir() / "tests/reference/bleu.json"));
  for (const auto& row : stored["tokens"]) CHECK(tokenize_13a(row[0].get<std::string>()) == row[1].get<std::string>());
  CHECK(tokenize_13a("") == "");
  CHECK(tokenize_13a("cut-\noff\nline") == "cutoff line");
}

}  // namespace gpipe::train
