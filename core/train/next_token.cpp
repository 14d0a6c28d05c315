#include "core/train/next_token.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpipe::train {

NextToken::NextToken(pipeline::Engine& engine) : engine_(engine), rows_(engine.plan().micro_batches.mini_batch) {
  const graph::Network& network = engine.plan().network;
  const auto value = [&](int index) -> const graph::Value& { return network.values[static_cast<size_t>(index)]; };
  const graph::Value &input = value(network.input), &target = value(network.target), &logits = value(network.prediction);
  if (input.dtype != tensor::DType::i32 || input.shape.rank() != 1)
    throw base::ConfigError("generation needs a network of token ids [positions], this one takes {}", input.shape);
  if (logits.shape.rank() != 2 || target.dtype != tensor::DType::i32 || target.shape.rank() != 1 ||
      logits.shape[0] != target.shape[0])
    throw base::ConfigError("generation needs a network that predicts a token at each position, this one gives {}", logits.shape);
  input_length_ = input.shape[0];
  target_length_ = target.shape[0];
  positions_ = logits.shape[0];
  vocabulary_ = logits.shape[1];
  input_.assign(static_cast<size_t>(rows_ * input_length_), 0);
  target_.assign(static_cast<size_t>(rows_ * target_length_), device::k_ignored_target);
  asked_.assign(static_cast<size_t>(rows_), 0);
  logits_.resize(static_cast<size_t>(rows_ * vocabulary_));
  results_.resize(static_cast<size_t>(2 * rows_ * network.loss_count()));
}

void NextToken::run() {
  pipeline::MiniBatch batch;
  batch.input = reinterpret_cast<std::byte*>(input_.data());
  batch.target = reinterpret_cast<std::byte*>(target_.data());
  batch.results = results_.data();  // losses that mean nothing here
  batch.predictions = logits_.data();
  batch.prediction_positions = asked_.data();
  engine_.evaluate(batch);
}

int32_t choose_token(std::span<const float> logits, const Sampling& sampling, int64_t number) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  if (sampling.temperature <= 0 || sampling.top_k == 1) return static_cast<int32_t>(likeliest - logits.begin());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto k = sampling.top_k > 0 ? std::min(order.size(), static_cast<size_t>(sampling.top_k)) : order.size();
  if (k < order.size()) {
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(), [&](int32_t a, int32_t b) {
      const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    });
    order.resize(k);
  }
  const auto weight = [&](int32_t token) {
    const double below = static_cast<double>(logits[static_cast<size_t>(token)]) - static_cast<double>(*likeliest);
    return std::exp(below / sampling.temperature);
  };
  double sum = 0;
  for (const int32_t token : order) sum += weight(token);
  const base::Philox random(sampling.seed, base::Purpose::sample);
  double left = sum * (static_cast<double>(random.word(static_cast<uint64_t>(number))) * 0x1.0p-32);
  for (const int32_t token : order)
    if ((left -= weight(token)) < 0) return token;
  return order.back();
}

std::vector<int32_t> continue_text(NextToken& next, std::span<const int32_t> prompt, int64_t length, const Sampling& sampling,
                                   const std::function<void(int32_t)>& took) {
  GP_CHECK(!prompt.empty());
  std::vector<int32_t> text(prompt.begin(), prompt.end());
  const auto window = static_cast<size_t>(std::min(next.input_length(), next.positions()));
  for (int64_t number = 0; number < length; ++number) {
    const size_t seen = std::min(text.size(), window);
    const std::span<int32_t> row = next.input(0);
    std::fill(row.begin(), row.end(), 0);  // behind what it sees nothing counts: attention is causal
    std::copy(text.end() - static_cast<std::ptrdiff_t>(seen), text.end(), row.begin());
    next.ask(0, static_cast<int64_t>(seen) - 1);
    next.run();
    text.push_back(choose_token(next.logits(0), sampling, number));
    if (took) took(text.back());
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

}  // namespace gpipe::train
