// The factories of the CPU leaf's ops, one file a family. Each is called inside a PlanningScope; `team` outlives the op.
#pragma once

#include "core/device/cpu/team.h"
#include "core/device/ops.h"

#include <memory>
#include <span>

namespace gpipe::device::cpu {

std::unique_ptr<WeightedOp> make_convolution(const ConvolutionSpec&, const Batches&, const Team&);
std::unique_ptr<WeightedOp> make_transposed_convolution(const TransposedConvolutionSpec&, const Batches&, const Team&);
std::unique_ptr<WeightedOp> make_linear(const LinearSpec&, const Batches&, const Team&);
std::unique_ptr<PoolOp> make_pool(const PoolSpec&, const Batches&, const Team&);
std::unique_ptr<BatchNormOp> make_batch_norm(const BatchNormSpec&, const Batches&, const Team&);
std::unique_ptr<GroupNormOp> make_group_norm(const GroupNormSpec&, const Batches&, const Team&);
std::unique_ptr<ActivationOp> make_activation(const ActivationSpec&, const Team&);
std::unique_ptr<DropoutOp> make_dropout(const DropoutSpec&, const Team&);
std::unique_ptr<RearrangeOp> make_rearrange(const RearrangeSpec&, const Team&);
std::unique_ptr<ResampleOp> make_resample(const ResampleSpec&, const Team&);
std::unique_ptr<SoftmaxOp> make_softmax(const Team&);
std::unique_ptr<ChannelScaleOp> make_channel_scale(int64_t channels, const Team&);
std::unique_ptr<LossOp> make_cross_entropy(const CrossEntropySpec&, const Team&);
std::unique_ptr<LossOp> make_mean_squared_error(const Team&);
std::unique_ptr<EmbeddingOp> make_embedding(const EmbeddingSpec&, const Team&);
std::unique_ptr<SampleAddOp> make_sample_add(const Team&);
std::unique_ptr<ShiftOp> make_shift(const ShiftSpec&);
std::unique_ptr<AttentionOp> make_attention(const AttentionSpec&, const Team&);
std::unique_ptr<ConcatOp> make_concat(const Team&);

void add(const Team&, const TensorView& a, const TensorView& b, const TensorView& out);
void copy(const Team&, const TensorView& from, const TensorView& to);
void fill(const Team&, const TensorView& to, float value);
void swap(const Team&, const TensorView& a, const TensorView& b);
double sum_of_squares(const Team&, const TensorView& x);
void update(const Team&, const ParameterUpdate& what);

}  // namespace gpipe::device::cpu
