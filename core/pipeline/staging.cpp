#include "core/pipeline/staging.h"

#include <algorithm>
#include <cstring>

namespace gpipe::pipeline {
namespace {

size_t sample_bytes(const Plan& plan, int value) {
  const graph::Value& of = plan.network.values[static_cast<size_t>(value)];
  return static_cast<size_t>(of.shape.elements()) * tensor::size_of(of.dtype);
}

constexpr size_t k_result_bytes = 2 * sizeof(float);
constexpr size_t k_ahead = 2;  // micro-batches uploaded before they are used: what is sent shares the copy queue with them

StagedArrays arrays_of(const graph::Network& network, const StagePlan& stage) {
  StagedArrays arrays;
  const std::vector<bool> evaluated = network.leads_to_loss();
  for (int index = stage.first_node; index < stage.last_node; ++index) {
    const graph::Node& node = network.nodes[static_cast<size_t>(index)];
    for (const int value : node.inputs) {
      arrays.input = arrays.input || value == network.input;
      arrays.target = arrays.target || value == network.target;
    }
    arrays.prediction = arrays.prediction || node.output == network.prediction;
    arrays.parameters += node.parameters.size();
    if (!node.is_loss) continue;
    arrays.results.push_back(network.loss_index(index));
    if (evaluated[static_cast<size_t>(index)]) arrays.evaluated_results.push_back(network.loss_index(index));
  }
  return arrays;
}

/// Calls f(member of Staging's kind, bytes a sample, samples) for each array in the order in which they lie.
template <class F>
void each_array(const Plan& plan, const StagedArrays& arrays, F&& f) {
  const auto samples = static_cast<size_t>(plan.micro_batches.mini_batch);
  f(0, arrays.input ? sample_bytes(plan, plan.network.input) : 0, samples);
  f(1, arrays.target ? sample_bytes(plan, plan.network.target) : 0, samples);
  f(2, arrays.results.empty() ? 0 : k_result_bytes, samples * static_cast<size_t>(plan.network.loss_count()));
  f(3, arrays.prediction ? sample_bytes(plan, plan.network.prediction) : 0, samples);
  f(4, sizeof(double), arrays.parameters);
}

size_t bytes_of(const Plan& plan, const StagedArrays& arrays) {
  size_t sum = 0;
  each_array(plan, arrays, [&](int, size_t bytes, size_t count) { sum += align_up(bytes * count); });
  return sum;
}

}  // namespace

size_t staged_bytes(const Plan& plan, const StagePlan& stage) { return bytes_of(plan, arrays_of(plan.network, stage)); }

size_t tied_copy_bytes(const Plan& plan, const StagePlan& owner) {
  size_t most = 0;
  for (const graph::Tie& tie : plan.network.ties) {
    if (tie.owner_node < owner.first_node || tie.owner_node >= owner.last_node) continue;
    if (plan.reaches(plan.stage_of(tie.owner_node), plan.stage_of(tie.user_node))) continue;
    const graph::Node& node = plan.network.nodes[static_cast<size_t>(tie.owner_node)];
    const Shape& shape = node.parameters[static_cast<size_t>(tie.owner_parameter)].shape;
    most = std::max(most, align_up(static_cast<size_t>(shape.elements()) * sizeof(float)));
  }
  return most;
}

Staging::Staging(const Plan& plan, const StagePlan& stage, std::byte* memory)
    : plan_(plan),
      backend_(*stage.backend),
      arrays_(arrays_of(plan.network, stage)),
      pinned_(backend_.allocate_pinned(bytes_of(plan, arrays_))) {
  std::byte* host = pinned_->data();
  each_array(plan, arrays_, [&](int index, size_t bytes, size_t count) {
    Array* const all[] = {&input_, &target_, &results_, &predictions_, &sums_};
    if (bytes > 0) *all[index] = {memory, host, bytes};
    memory += align_up(bytes * count);
    host += align_up(bytes * count);
  });
  if (!arrays_.input && !arrays_.target) return;
  for (int micro = 0; micro < plan.micro_batches.count(); ++micro) uploaded_.push_back(backend_.make_event());
}

void Staging::begin(const MiniBatch& batch) {
  for (size_t micro = 0; micro < std::min(uploaded_.size(), k_ahead); ++micro) upload(micro, batch);
}

void Staging::wait(int micro, const MiniBatch& batch) {
  if (uploaded_.empty()) return;
  backend_.wait(*uploaded_[static_cast<size_t>(micro)]);
  if (const size_t next = static_cast<size_t>(micro) + k_ahead; next < uploaded_.size()) upload(next, batch);
}

void Staging::upload(size_t micro, const MiniBatch& batch) {
  const auto first = static_cast<size_t>(plan_.micro_batches.first_sample[micro]);
  const auto samples = static_cast<size_t>(plan_.micro_batches.sizes[micro]);
  const auto one = [&](const Array& array, const std::byte* from, int value) {
    if (array.device == nullptr) return;
    const size_t row = sample_bytes(plan_.bucket(batch.bucket), value);
    const size_t at = first * row, bytes = samples * row;
    std::memcpy(array.host + at, from + at, bytes);
    const TensorView words{array.device + at, Shape{static_cast<int64_t>(bytes / sizeof(float))}};
    backend_.upload(array.host + at, words, *uploaded_[micro]);
  };
  one(input_, batch.input, plan_.network.input);
  one(target_, batch.target, plan_.network.target);
}

size_t Staging::prediction_bytes(const MiniBatch& batch, bool training) const {
  if (training || predictions_.device == nullptr || batch.predictions == nullptr) return 0;
  const auto samples = static_cast<size_t>(plan_.micro_batches.mini_batch);
  if (batch.prediction_positions == nullptr) return samples * sample_bytes(plan_.bucket(batch.bucket), plan_.network.prediction);
  const Shape& shape = plan_.network.values[static_cast<size_t>(plan_.network.prediction)].shape;
  return samples * static_cast<size_t>(shape.back()) * sizeof(float);
}

void Staging::download(const MiniBatch& batch, bool training) {
  const auto bring = [&](const Array& array, size_t at, size_t bytes) {
    if (bytes == 0) return;
    const TensorView words{array.device + at, Shape{static_cast<int64_t>(bytes / sizeof(float))}};
    backend_.download(words, array.host + at);
  };
  for (const int block : training ? arrays_.results : arrays_.evaluated_results)
    bring(results_, static_cast<size_t>(block) * block_bytes(), block_bytes());
  bring(predictions_, 0, prediction_bytes(batch, training));
  if (training) bring(sums_, 0, arrays_.parameters * sizeof(double));
}

void Staging::hand_over(const MiniBatch& batch, bool training, std::span<double> sums) {
  for (const int block : training ? arrays_.results : arrays_.evaluated_results) {
    const size_t at = static_cast<size_t>(block) * block_bytes();
    std::memcpy(reinterpret_cast<std::byte*>(batch.results) + at, results_.host + at, block_bytes());
  }
  if (const size_t bytes = prediction_bytes(batch, training); bytes > 0) std::memcpy(batch.predictions, predictions_.host, bytes);
  if (training && !sums.empty()) std::memcpy(sums.data(), sums_.host, sums.size_bytes());
}

}  // namespace gpipe::pipeline
