// BLEU (Papineni et al. 2002) of a whole corpus, as sacreBLEU (Post 2018, arXiv 1804.08771) computes it by default:
// tokenisation 13a, one reference a sentence, n-grams to 4, smoothing `exp`, case kept.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpipe::train {

constexpr int k_bleu_orders = 4;

struct Bleu {
  double score = 0;                                // 0 to 100
  std::array<int64_t, k_bleu_orders> matches{};    // n-grams of the hypotheses that are in their references, clipped
  std::array<int64_t, k_bleu_orders> totals{};     // n-grams of the hypotheses
  std::array<double, k_bleu_orders> precisions{};  // in percent, smoothed
  double brevity_penalty = 0;
  int64_t hypothesis_length = 0, reference_length = 0;  // tokens

  /// sacreBLEU's line: "BLEU = 38.08 66.9/45.7/32.6/23.4 (BP = 0.974 ratio = 0.974 hyp_len = 12 ref_len = 13)".
  std::string text() const;
};

/// mteval-v13a's tokenisation of one line, UTF-8: tokens with one space between them.
std::string tokenize_13a(std::string_view line);

/// Of hypothesis i and its reference i; as many of the one as of the other.
Bleu bleu(std::span<const std::string> hypotheses, std::span<const std::string> references);

}  // namespace gpipe::train
