// What turns token ids into numbers: embedding, addition of a table to every sample, shift by one position.
#include "core/device/cpu/columns.h"
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

namespace gpipe::device::cpu {
namespace {

class CpuEmbedding final : public EmbeddingOp {
 public:
  CpuEmbedding(const EmbeddingSpec& spec, const Team& team)
      : spec_(spec), factor_(static_cast<float>(spec.factor)), team_(team) {}

  void forward(const TensorView& ids, const TensorView& table, const TensorView& y) override {
    check_ids(ids);
    const int64_t columns = spec_.columns;
    const int32_t* id = ids.i32();
    const float* from = table.f32();
    float* out = y.f32();
    each_row(team_.threads, ids.elements(), columns, [=, factor = factor_](int64_t row) {
      const float* vector = from + id[row] * columns;
#pragma GCC ivdep
      for (int64_t c = 0; c < columns; ++c) out[row * columns + c] = vector[c] * factor;
    });
  }

  // Threads share the columns, so that a row has one order of addition for every team, and frequent ids one cost.
  void backward_weight(const TensorView& ids, const TensorView& dy, const TensorView& dtable, bool accumulate) override {
    constexpr int64_t block = 16;
    const int64_t columns = spec_.columns, places = ids.elements();
    if (!accumulate) clear(dtable);
    const int32_t* id = ids.i32();
    const float* in = dy.f32();
    float* out = dtable.f32();
    const int64_t blocks = (columns + block - 1) / block;
    each_part(team_.threads, blocks, places * columns, [=, this](int64_t first, int64_t last) {
      const int64_t begin = first * block, end = std::min(columns, last * block);
      for (int64_t place = 0; place < places; ++place) {
        if (id[place] == spec_.padding) continue;
        float* sum = out + id[place] * columns;
        const float* d = in + place * columns;
#pragma GCC ivdep
        for (int64_t c = begin; c < end; ++c) sum[c] += d[c] * factor_;
      }
    });
  }

 private:
  void clear(const TensorView& dtable) const {
    float* out = dtable.f32();
    each_part(team_.threads, dtable.elements(), dtable.elements(),
              [=](int64_t begin, int64_t end) { std::fill(out + begin, out + end, 0.0F); });
  }

  void check_ids(const TensorView& ids) const {
    const int32_t* id = ids.i32();
    const int64_t length = ids.elements() / ids.shape[0];
    for (int64_t i = 0; i < ids.elements(); ++i)
      if (id[i] < 0 || id[i] >= spec_.rows)
        throw base::DataError("token id {} at position {} of sample {} of the micro-batch is not in the vocabulary, 0..{}", id[i],
                              i % length, i / length, spec_.rows - 1);
  }

  EmbeddingSpec spec_;
  float factor_;
  const Team& team_;
};

class CpuSampleAdd final : public SampleAddOp {
 public:
  explicit CpuSampleAdd(const Team& team) : team_(team) {}

  void forward(const TensorView& x, const TensorView& table, const TensorView& y) override {
    const int64_t width = table.elements();
    const float* in = x.f32();
    const float* add = table.f32();
    float* out = y.f32();
    each_row(team_.threads, x.elements() / width, width, [=](int64_t row) {
#pragma GCC ivdep
      for (int64_t i = 0; i < width; ++i) out[row * width + i] = in[row * width + i] + add[i];
    });
  }
  void backward_weight(const TensorView& dy, const TensorView& dtable, bool accumulate) override {
    const int64_t width = dtable.elements();
    sum_columns(team_.threads, dy.f32(), dy.elements() / width, width, dtable.f32(), accumulate);
  }

 private:
  const Team& team_;
};

class CpuShift final : public ShiftOp {
 public:
  explicit CpuShift(const ShiftSpec& spec) : spec_(spec) {}

  void forward(const TensorView& ids, const TensorView& out) override {
    const int64_t samples = ids.shape[0], length = ids.elements() / samples;
    const int32_t* in = ids.i32();
    int32_t* to = out.i32();
    for (int64_t n = 0; n < samples; ++n) {
      to[n * length] = spec_.start;
      for (int64_t i = n * length + 1; i < (n + 1) * length; ++i) to[i] = in[i - 1] < 0 ? spec_.padding : in[i - 1];
    }
  }

 private:
  ShiftSpec spec_;
};

}  // namespace

std::unique_ptr<EmbeddingOp> make_embedding(const EmbeddingSpec& spec, const Team& team) {
  return std::make_unique<CpuEmbedding>(spec, team);
}
std::unique_ptr<SampleAddOp> make_sample_add(const Team& team) { return std::make_unique<CpuSampleAdd>(team); }
std::unique_ptr<ShiftOp> make_shift(const ShiftSpec& spec) { return std::make_unique<CpuShift>(spec); }

}  // namespace gpipe::device::cpu
