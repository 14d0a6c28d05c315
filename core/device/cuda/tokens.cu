// What turns token ids into numbers: embedding, addition of a table to every sample, shift by one position.
#include "core/device/cuda/faults.h"
#include "core/device/cuda/ops.h"
#include "core/device/cuda/skeletons.h"

#include <cmath>

namespace gpipe::device::cuda {
namespace {

class CudaEmbedding final : public EmbeddingOp {
 public:
  CudaEmbedding(const EmbeddingSpec& spec, const Queue& queue)
      : spec_(spec), factor_(static_cast<float>(spec.factor)), queue_(queue) {}

  void forward(const TensorView& ids, const TensorView& table, const TensorView& y) override {
    const int64_t columns = spec_.columns, limit = spec_.rows, places = ids.elements();
    const int32_t* id = ids.i32();
    const float* from = table.f32();
    float* out = y.f32();
    const float factor = factor_;
    find_fault(queue_, Fault::Kind::token, id, places, places / ids.shape[0], limit);
    each(queue_, "embedding", places * columns, [=] GPIPE_KERNEL(int64_t i) {
      const int64_t row = id[i / columns];
      out[i] = row >= 0 && row < limit ? from[row * columns + i % columns] * factor : NAN;
    });
  }

  // The team of a place that is the first of its id adds up all places of that id, in their order: no two teams write one
  // row. The search for earlier places costs (places)^2 / 2 comparisons of cached integers in all.
  void backward_weight(const TensorView& ids, const TensorView& dy, const TensorView& dtable, bool accumulate) override {
    const int64_t columns = spec_.columns, limit = spec_.rows, padding = spec_.padding, places = ids.elements();
    const int32_t* id = ids.i32();
    const float* in = dy.f32();
    float* out = dtable.f32();
    const float factor = factor_;
    if (!accumulate) fill(queue_, dtable, 0.0F);
    rows(queue_, "embedding gradient", places, std::max(columns, places), [=] GPIPE_KERNEL(auto& team, int64_t place) {
      const int64_t own = id[place];
      if (own < 0 || own >= limit || own == padding) return;
      const bool seen = team.reduce(
          place, false, [&](int64_t i) { return id[i] == own; }, [](bool a, bool b) { return a || b; });
      if (seen) return;
      team.each(columns, [&](int64_t c) {
        float sum = out[own * columns + c];
        for (int64_t i = place; i < places; ++i)
          if (id[i] == own) sum += in[i * columns + c] * factor;
        out[own * columns + c] = sum;
      });
    });
  }

 private:
  EmbeddingSpec spec_;
  float factor_;
  const Queue& queue_;
};

class CudaSampleAdd final : public SampleAddOp {
 public:
  explicit CudaSampleAdd(const Queue& queue) : queue_(queue) {}

  void forward(const TensorView& x, const TensorView& table, const TensorView& y) override {
    const int64_t width = table.elements();
    const float *in = x.f32(), *plus = table.f32();
    float* out = y.f32();
    each(queue_, "sample add", x.elements(), [=] GPIPE_KERNEL(int64_t i) { out[i] = in[i] + plus[i % width]; });
  }
  void backward_weight(const TensorView& dy, const TensorView& dtable, bool accumulate) override {
    const int64_t width = dtable.elements(), samples = dy.elements() / width;
    const float* in = dy.f32();
    float* out = dtable.f32();
    each(queue_, "sample add gradient", width, [=] GPIPE_KERNEL(int64_t i) {
      float sum = 0;
      for (int64_t n = 0; n < samples; ++n) sum += in[n * width + i];
      out[i] = accumulate ? out[i] + sum : sum;
    });
  }

 private:
  const Queue& queue_;
};

class CudaShift final : public ShiftOp {
 public:
  CudaShift(const ShiftSpec& spec, const Queue& queue) : spec_(spec), queue_(queue) {}

  void forward(const TensorView& ids, const TensorView& out) override {
    const int64_t length = ids.elements() / ids.shape[0];
    const int32_t* in = ids.i32();
    int32_t* to = out.i32();
    const int32_t start = spec_.start, padding = spec_.padding;
    each(queue_, "shift", ids.elements(), [=] GPIPE_KERNEL(int64_t i) {
      to[i] = i % length == 0 ? start : in[i - 1] < 0 ? padding : in[i - 1];
    });
  }

 private:
  ShiftSpec spec_;
  const Queue& queue_;
};

}  // namespace

std::unique_ptr<EmbeddingOp> make_embedding(const EmbeddingSpec& spec, const Queue& queue) {
  return std::make_unique<CudaEmbedding>(spec, queue);
}
std::unique_ptr<SampleAddOp> make_sample_add(const Queue& queue) { return std::make_unique<CudaSampleAdd>(queue); }
std::unique_ptr<ShiftOp> make_shift(const ShiftSpec& spec, const Queue& queue) {
  return std::make_unique<CudaShift>(spec, queue);
}

}  // namespace gpipe::device::cuda
