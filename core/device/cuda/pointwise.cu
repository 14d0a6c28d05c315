// Element-wise work: activations, dropout, sums and copies of whole tensors, optimizer updates, joining and splitting.
#include "core/device/cuda/draws.h"
#include "core/device/cuda/ops.h"
#include "core/device/cuda/skeletons.h"
#include "core/device/functors/activation.h"

#include <type_traits>

namespace gpipe::device::cuda {
namespace {

template <class F>
class ElementActivation final : public ActivationOp {
 public:
  ElementActivation(F f, const Queue& queue) : f_(f), queue_(queue) {}

  bool backward_uses_output() const override { return F::uses_output; }
  void forward(const TensorView& x, const TensorView& y) override {
    const float* in = x.f32();
    float* out = y.f32();
    each(queue_, "activation", x.elements(), [=, f = f_] GPIPE_KERNEL(int64_t i) { out[i] = f.forward(in[i]); });
  }
  void backward(const TensorView& x_or_y, const TensorView& dy, const TensorView& dx) override {
    const float* kept = x_or_y.f32();
    const float* from = dy.f32();
    float* to = dx.f32();
    each(queue_, "activation gradient", dy.elements(),
         [=, f = f_] GPIPE_KERNEL(int64_t i) { to[i] = f.backward(kept[i], from[i]); });
  }

 private:
  F f_;
  const Queue& queue_;
};

template <class F>
std::unique_ptr<ActivationOp> make(F f, const Queue& queue) {
  return std::make_unique<ElementActivation<F>>(f, queue);
}

struct Mask {
  Draws draws;
  float p, scale;

  explicit Mask(const DropoutKey& key)
      : draws(Draws::of(key)), p(static_cast<float>(key.p)), scale(static_cast<float>(1.0 / (1.0 - key.p))) {}
  GPIPE_KERNEL float apply(float x, uint32_t word) const { return Draws::to_unit(word) >= p ? x * scale : 0.0F; }
};

// Four elements a thread: a block of Philox is four words.
void drop_elements(const Queue& queue, const Mask& mask, int64_t rows, int64_t width, const float* in, float* out) {
  const int64_t blocks = (width + 3) / 4;
  each(queue, "dropout", rows * blocks, [=] GPIPE_KERNEL(int64_t i) {
    const int64_t row = i / blocks, block = i % blocks;
    const auto words = mask.draws.block(row, static_cast<uint64_t>(block));
    for (int64_t j = 0; j < 4 && 4 * block + j < width; ++j) {
      const int64_t at = row * width + 4 * block + j;
      out[at] = mask.apply(in[at], words[static_cast<size_t>(j)]);
    }
  });
}

// Element i of a row follows draw i % period.
void drop_periods(const Queue& queue, const Mask& mask, int64_t rows, int64_t width, int64_t period, const float* in,
                  float* out) {
  each(queue, "dropout", rows * width, [=] GPIPE_KERNEL(int64_t i) {
    out[i] = mask.apply(in[i], mask.draws.word(i / width, static_cast<uint64_t>(i % width % period)));
  });
}

class CudaDropout final : public DropoutOp {
 public:
  CudaDropout(const DropoutSpec& spec, const Queue& queue) : spec_(spec), queue_(queue) {}

  void apply(const TensorView& x, const TensorView& y, const DropoutKey& key) override {
    const int64_t width = x.elements() / x.shape[0];
    const Mask mask(key);
    if (spec_.grain == DropoutSpec::Grain::element)
      drop_elements(queue_, mask, x.shape[0], width, x.f32(), y.f32());
    else
      drop_periods(queue_, mask, x.shape[0], width, spec_.grain == DropoutSpec::Grain::channel ? x.shape.back() : 1, x.f32(),
                   y.f32());
  }

 private:
  DropoutSpec spec_;
  const Queue& queue_;
};

/// One update of an element of a parameter; a scratch variable stands in for each slot that the rule does not have.
template <class Rule>
struct UpdateElement {
  Rule rule;
  float* weight;
  const float* gradient;
  float *first, *second, *average;

  GPIPE_KERNEL void operator()(int64_t i) const {
    float unused = 0, unused_too = 0;
    rule(weight[i], gradient[i], Rule::slots > 0 ? first[i] : unused, Rule::slots > 1 ? second[i] : unused_too);
    if (average != nullptr) average[i] = average[i] + rule.common.averaging * (weight[i] - average[i]);
  }
};

/// Many parameters in one launch, cut into chunks, each a row of it. They travel as the kernel's argument, which may have 4 KB.
template <class Rule>
class UpdateBatch {
 public:
  bool full() const { return count_ == most; }
  void add(const UpdateElement<Rule>& element, int64_t elements) {
    parameters_[count_++] = {element, elements, chunks_};
    chunks_ += (elements + chunk - 1) / chunk;
  }
  void launch(const Queue& queue) const { rows(queue, "update", chunks_, chunk, *this); }

  template <class Team>
  GPIPE_KERNEL void operator()(const Team& team, int64_t row) const {
    int which = 0;
    while (which + 1 < count_ && parameters_[which + 1].first_chunk <= row) ++which;
    const Parameter& parameter = parameters_[which];
    const int64_t begin = (row - parameter.first_chunk) * chunk, left = parameter.elements - begin;
    team.each(left < chunk ? left : chunk, [&](int64_t i) { parameter.element(begin + i); });
  }

 private:
  static constexpr int most = 32;
  static constexpr int64_t chunk = 4096;
  struct Parameter {
    UpdateElement<Rule> element;
    int64_t elements, first_chunk;
  };
  Parameter parameters_[most];
  int count_ = 0;
  int64_t chunks_ = 0;
  static_assert(sizeof(Parameter) * most <= 4000);
};

template <class Rule>
UpdateElement<Rule> element_of(const Rule& rule, const ParameterUpdate& what) {
  const bool averaging = rule.common.averaging > 0;
  GP_CHECK_EQ(what.slots.size(), static_cast<size_t>(Rule::slots + (averaging ? 1 : 0)));
  return {rule,
          what.weight.f32(),
          what.gradient.f32(),
          Rule::slots > 0 ? what.slots[0].f32() : nullptr,
          Rule::slots > 1 ? what.slots[1].f32() : nullptr,
          averaging ? what.slots.back().f32() : nullptr};
}

/// Many sums of squares in two launches: of parts of each tensor, and of the parts. They travel as the kernels' argument.
class SquaresBatch {
 public:
  bool takes(const SumOfSquares& what) const {
    return count_ < most && parts_ + parts_of(what.of.elements()) <= Queue::scratch_doubles;
  }
  void add(const SumOfSquares& what) {
    const int64_t elements = what.of.elements(), own = parts_of(elements);
    tensors_[count_++] = {what.of.f32(), what.sum, elements, parts_, own};
    parts_ += own;
  }
  void launch(const Queue& queue) const {
    double* scratch = queue.scratch;
    rows(queue, "sum of squares", parts_, part_elements, [all = *this, scratch] GPIPE_KERNEL(auto& team, int64_t row) {
      int which = 0;
      while (which + 1 < all.count_ && all.tensors_[which + 1].first_part <= row) ++which;
      const Tensor& tensor = all.tensors_[which];
      const int64_t part = row - tensor.first_part;
      const int64_t begin = tensor.elements * part / tensor.parts, end = tensor.elements * (part + 1) / tensor.parts;
      const double own = team.template sum<double>(end - begin, [&](int64_t i) {
        const double value = tensor.data[begin + i];
        return value * value;
      });
      team.once([&] { scratch[row] = own; });
    });
    rows(queue, "sum of squares", count_, most_parts, [all = *this, scratch] GPIPE_KERNEL(auto& team, int64_t row) {
      const Tensor& tensor = all.tensors_[row];
      const double sum = team.template sum<double>(tensor.parts, [&](int64_t i) { return scratch[tensor.first_part + i]; });
      team.once([&] { *tensor.sum = sum; });
    });
  }

 private:
  static constexpr int most = 96;
  static constexpr int64_t part_elements = 4096, most_parts = 256;
  static int64_t parts_of(int64_t elements) {
    return std::clamp<int64_t>((elements + part_elements - 1) / part_elements, 1, most_parts);
  }
  struct Tensor {
    const float* data;
    double* sum;
    int64_t elements, first_part, parts;
  };
  Tensor tensors_[most];
  int count_ = 0;
  int64_t parts_ = 0;
  static_assert(sizeof(Tensor) * most <= 4000);
};

class CudaConcat final : public ConcatOp {
 public:
  explicit CudaConcat(const Queue& queue) : queue_(queue) {}

  void join(std::span<const TensorView> parts, const TensorView& whole) override { walk<true>(parts, whole); }
  void split(const TensorView& whole, std::span<const TensorView> parts) override { walk<false>(parts, whole); }

 private:
  // Part by part; a null part (a gradient that nobody wants) has only its width.
  template <bool join>
  void walk(std::span<const TensorView> parts, const TensorView& whole) const {
    const int64_t width = whole.shape.back(), rows = whole.elements() / width;
    int64_t offset = 0;
    for (const TensorView& part : parts) {
      const int64_t columns = part.shape.back();
      if (part) move<join>(part.f32(), columns, whole.f32() + offset, width, rows);
      offset += columns;
    }
    GP_CHECK_EQ(offset, width);
  }
  template <bool join>
  void move(float* part, int64_t columns, float* whole, int64_t width, int64_t rows) const {
    const size_t row = static_cast<size_t>(columns) * sizeof(float), pitch = static_cast<size_t>(width) * sizeof(float);
    queue_.use();
    const cudaError_t status =
        join
            ? cudaMemcpy2DAsync(whole, pitch, part, row, row, static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, queue_.stream)
            : cudaMemcpy2DAsync(part, row, whole, pitch, row, static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, queue_.stream);
    queue_.check(status, "cudaMemcpy2DAsync");
  }

  const Queue& queue_;
};

}  // namespace

std::unique_ptr<ActivationOp> make_activation(const ActivationSpec& spec, const Queue& queue) {
  const float slope = static_cast<float>(spec.slope);
  switch (spec.kind) {
    case ActivationSpec::Kind::relu: return make(Relu{}, queue);
    case ActivationSpec::Kind::leaky_relu:
      return slope >= 0 ? make(LeakyRelu{slope}, queue) : make(LeakyReluOfInput{{slope}}, queue);
    case ActivationSpec::Kind::gelu: return make(Gelu{}, queue);
    case ActivationSpec::Kind::gelu_tanh: return make(GeluTanh{}, queue);
    case ActivationSpec::Kind::silu: return make(Silu{}, queue);
    case ActivationSpec::Kind::sigmoid: return make(Sigmoid{}, queue);
    case ActivationSpec::Kind::tanh: return make(Tanh{}, queue);
    case ActivationSpec::Kind::clip: return make(Clip{static_cast<float>(spec.low), static_cast<float>(spec.high)}, queue);
    case ActivationSpec::Kind::scale: return make(Scale{slope}, queue);
  }
  throw base::BugError("unknown activation {}", static_cast<int>(spec.kind));
}

std::unique_ptr<DropoutOp> make_dropout(const DropoutSpec& spec, const Queue& queue) {
  return std::make_unique<CudaDropout>(spec, queue);
}

std::unique_ptr<ConcatOp> make_concat(const Queue& queue) { return std::make_unique<CudaConcat>(queue); }

void add(const Queue& queue, const TensorView& a, const TensorView& b, const TensorView& out) {
  const float *left = a.f32(), *right = b.f32();
  float* to = out.f32();
  each(queue, "add", out.elements(), [=] GPIPE_KERNEL(int64_t i) { to[i] = left[i] + right[i]; });
}

void copy(const Queue& queue, const TensorView& from, const TensorView& to) {
  GP_CHECK_EQ(from.bytes(), to.bytes());
  if (from.data == to.data || from.bytes() == 0) return;
  const uint32_t* source = reinterpret_cast<const uint32_t*>(from.data);
  uint32_t* target = reinterpret_cast<uint32_t*>(to.data);
  each(queue, "copy", to.elements(), [=] GPIPE_KERNEL(int64_t i) { target[i] = source[i]; });
}

void fill(const Queue& queue, const TensorView& to, float value) {
  float* target = to.f32();
  each(queue, "fill", to.elements(), [=] GPIPE_KERNEL(int64_t i) { target[i] = value; });
}

void swap(const Queue& queue, const TensorView& a, const TensorView& b) {
  GP_CHECK_EQ(a.bytes(), b.bytes());
  float *left = a.f32(), *right = b.f32();
  each(queue, "swap", a.elements(), [=] GPIPE_KERNEL(int64_t i) {
    const float kept = left[i];
    left[i] = right[i];
    right[i] = kept;
  });
}

void sum_of_squares(const Queue& queue, std::span<const SumOfSquares> sums) {
  for (size_t next = 0; next < sums.size();) {
    SquaresBatch batch;
    for (; next < sums.size() && batch.takes(sums[next]); ++next) batch.add(sums[next]);
    batch.launch(queue);
  }
}

// Those with rules of one kind, which all of a run have, go together.
void update(const Queue& queue, std::span<const ParameterUpdate> updates) {
  for (size_t next = 0; next < updates.size();) {
    std::visit(
        [&](const auto& first) {
          using Rule = std::decay_t<decltype(first)>;
          UpdateBatch<Rule> batch;
          for (; next < updates.size() && !batch.full(); ++next) {
            const Rule* rule = std::get_if<Rule>(&updates[next].rule);
            if (rule == nullptr) break;
            batch.add(element_of(*rule, updates[next]), updates[next].weight.elements());
          }
          batch.launch(queue);
        },
        updates[next].rule);
  }
}

}  // namespace gpipe::device::cuda
