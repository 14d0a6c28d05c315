// The factories of the CUDA leaf's ops, one file a family. The queue or context outlives the op.
#pragma once

#include "core/device/cuda/queue.h"
#include "core/device/ops.h"
#include "core/device/precision.h"

#include <memory>
#include <span>

namespace gpipe::device::cuda {

class Context;

std::unique_ptr<WeightedOp> make_convolution(const ConvolutionSpec&, const Batches&, Context&);
/// Of as many groups as input channels.
std::unique_ptr<WeightedOp> make_depthwise(const ConvolutionSpec&, const Batches&, const Queue&, Precision);
std::unique_ptr<WeightedOp> make_transposed_convolution(const TransposedConvolutionSpec&, const Batches&, Context&);
std::unique_ptr<WeightedOp> make_linear(const LinearSpec&, const Batches&, Context&);
std::unique_ptr<AttentionOp> make_attention(const AttentionSpec&, const Batches&, Context&);

std::unique_ptr<PoolOp> make_pool(const PoolSpec&, const Queue&);
std::unique_ptr<BatchNormOp> make_batch_norm(const BatchNormSpec&, const Batches&, const Queue&);
std::unique_ptr<GroupNormOp> make_group_norm(const GroupNormSpec&, const Batches&, const Queue&);
std::unique_ptr<ActivationOp> make_activation(const ActivationSpec&, const Queue&);
std::unique_ptr<DropoutOp> make_dropout(const DropoutSpec&, const Queue&);
/// `in`, `out`: what the elements are stored as: bf16 or f16 in one of both, else f32. Those of 16 bits are rounded, or widened.
std::unique_ptr<RearrangeOp> make_rearrange(const RearrangeSpec&, const Queue&, Precision in = Precision::f32,
                                            Precision out = Precision::f32);
std::unique_ptr<ResampleOp> make_resample(const ResampleSpec&, const Queue&);
std::unique_ptr<SoftmaxOp> make_softmax(const Queue&);
std::unique_ptr<ChannelScaleOp> make_channel_scale(int64_t channels, const Queue&);
std::unique_ptr<LossOp> make_cross_entropy(const CrossEntropySpec&, const Batches&, const Queue&);
std::unique_ptr<LossOp> make_mean_squared_error(const Queue&);
std::unique_ptr<EmbeddingOp> make_embedding(const EmbeddingSpec&, const Queue&);
std::unique_ptr<SampleAddOp> make_sample_add(const Queue&);
std::unique_ptr<ShiftOp> make_shift(const ShiftSpec&, const Queue&);
std::unique_ptr<ConcatOp> make_concat(const Queue&);

void add(const Queue&, const TensorView& a, const TensorView& b, const TensorView& out);
void copy(const Queue&, const TensorView& from, const TensorView& to);
void fill(const Queue&, const TensorView& to, float value);
void swap(const Queue&, const TensorView& a, const TensorView& b);
void sum_of_squares(const Queue&, std::span<const SumOfSquares> sums);
void update(const Queue&, std::span<const ParameterUpdate> updates);

/// Bytes rounded up to what vendor kernels like their memory aligned to.
constexpr size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace gpipe::device::cuda
