// Translation: for each source sentence the target that a network of encoder and decoder finds likely, token by token, greedily
// or by beam search. The network's input is the source, its `target` what was found so far (shift_tokens makes the decoder's
// input of it), with ignored targets behind. Many sentences are searched side by side, one or `beam` rows of the mini-batch
// each; a place that becomes free takes the next sentence.
#pragma once

#include "core/train/next_token.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace gpipe::train {

struct BeamOptions {
  int64_t beam = 1;             // hypotheses kept; 1: greedy
  double length_penalty = 0.6;  // alpha of Wu et al. 2016 (arXiv 1609.08144): log p / ((5 + tokens) / 6)^alpha; 0: none
  int64_t length = 0;           // most tokens, the end included; 0: as many as the network has positions
  int32_t end = 0;              // the token that ends a sentence
  int32_t padding = 0;          // behind a source
};

struct Translation {
  std::vector<int32_t> tokens;  // without the end
  double log_probability = 0;   // of all tokens, the end included
  bool ended = false;           // or the length was used up
};

/// Translations in the order of the sources, each at most input_length() tokens. ConfigError when the beam is larger than the
/// mini-batch. `done` hears how many sentences are finished.
std::vector<Translation> translate(NextToken& next, std::span<const std::vector<int32_t>> sources, const BeamOptions& options,
                                   const std::function<void(int64_t)>& done = {});

}  // namespace gpipe::train
