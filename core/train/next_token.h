// Predictions of one position of each of N token sequences, by whole forward passes: what generation is made of. Nothing is kept
// from one pass to the next (no cache of keys and values), so a text of n tokens takes n passes, through whatever stages there
// are, and its tokens do not depend on their number.
#pragma once

#include "core/base/rng.h"
#include "core/pipeline/engine.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace gpipe::train {

class NextToken {
 public:
  /// ConfigError when the network takes no token ids, or does not predict a token at each position.
  explicit NextToken(pipeline::Engine& engine);

  int64_t rows() const { return rows_; }
  int64_t input_length() const { return input_length_; }
  int64_t target_length() const { return target_length_; }
  int64_t positions() const { return positions_; }  // of the predictions
  int64_t vocabulary() const { return vocabulary_; }

  /// What the next pass reads of a row; both start as zeros, targets as ignored.
  std::span<int32_t> input(int64_t row) { return part(input_, row, input_length_); }
  std::span<int32_t> target(int64_t row) { return part(target_, row, target_length_); }
  void ask(int64_t row, int64_t position) { asked_[static_cast<size_t>(row)] = static_cast<int32_t>(position); }
  void run();
  /// Of the position that was asked for, [vocabulary].
  std::span<const float> logits(int64_t row) const {
    return std::span(logits_).subspan(static_cast<size_t>(row * vocabulary_), static_cast<size_t>(vocabulary_));
  }

 private:
  static std::span<int32_t> part(std::vector<int32_t>& all, int64_t row, int64_t length) {
    return std::span(all).subspan(static_cast<size_t>(row * length), static_cast<size_t>(length));
  }

  pipeline::Engine& engine_;
  int64_t rows_ = 0, input_length_ = 0, target_length_ = 0, positions_ = 0, vocabulary_ = 0;
  std::vector<int32_t> input_, target_, asked_;
  std::vector<float> logits_, results_;
};

/// How a token is chosen by its logits.
struct Sampling {
  double temperature = 0;  // of the softmax that is drawn from; 0: the likeliest token, the first of equals
  int64_t top_k = 0;       // draw from the likeliest k alone; 0: all
  uint64_t seed = 1;
};

/// Token number `number` of a text: a pure function of the arguments.
int32_t choose_token(std::span<const float> logits, const Sampling& sampling, int64_t number);

/// Continues `prompt` (at least one token) by `length` tokens; `took` hears each. When prompt and continuation are longer than
/// the network's sequence, the last tokens that fit are what it sees.
std::vector<int32_t> continue_text(NextToken& next, std::span<const int32_t> prompt, int64_t length, const Sampling& sampling,
                                   const std::function<void(int32_t)>& took = {});

}  // namespace gpipe::train
