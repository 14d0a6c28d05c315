// Plain element-wise work, optimizer updates, joining and splitting.
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

#include <algorithm>
#include <functional>

namespace gpipe::device::cpu {
namespace {

// One update of a whole parameter; a scratch variable stands in for each slot that the rule does not have.
template <class Rule>
void update_all(int threads, int64_t count, const Rule& rule, float* weight, const float* gradient,
                std::span<const TensorView> slots) {
  GP_CHECK_EQ(slots.size(), static_cast<size_t>(Rule::slots + (rule.common.averaging > 0 ? 1 : 0)));
  float* first = Rule::slots > 0 ? slots[0].f32() : nullptr;
  float* second = Rule::slots > 1 ? slots[1].f32() : nullptr;
  each_part(threads, count, count, [=](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) {
      float unused = 0, unused_too = 0;
      if constexpr (Rule::slots == 0) rule(weight[i], gradient[i], unused, unused_too);
      if constexpr (Rule::slots == 1) rule(weight[i], gradient[i], first[i], unused);
      if constexpr (Rule::slots == 2) rule(weight[i], gradient[i], first[i], second[i]);
    }
  });
}

class CpuConcat final : public ConcatOp {
 public:
  explicit CpuConcat(const Team& team) : team_(team) {}

  void join(std::span<const TensorView> parts, const TensorView& whole) override {
    walk(parts, whole, [](float* part, float* in_whole, size_t bytes) { std::memcpy(in_whole, part, bytes); });
  }
  void split(const TensorView& whole, std::span<const TensorView> parts) override {
    walk(parts, whole, [](float* part, float* in_whole, size_t bytes) { std::memcpy(part, in_whole, bytes); });
  }

 private:
  // Part by part; a null part (a gradient that nobody wants) has only its width.
  template <class Move>
  void walk(std::span<const TensorView> parts, const TensorView& whole, const Move& move) const {
    const int64_t width = whole.shape.back(), rows = whole.elements() / width;
    int64_t offset = 0;
    for (const TensorView& part : parts) {
      const int64_t columns = part.shape.back();
      if (part) {
        float* from = part.f32();
        float* to = whole.f32() + offset;
        each_row(team_.threads, rows, columns, [=](int64_t row) {
          move(from + row * columns, to + row * width, static_cast<size_t>(columns) * sizeof(float));
        });
      }
      offset += columns;
    }
    GP_CHECK_EQ(offset, width);
  }

  const Team& team_;
};

}  // namespace

void add(const Team& team, const TensorView& a, const TensorView& b, const TensorView& out) {
  each_element(team.threads, out.elements(), a.f32(), b.f32(), out.f32(), std::plus<float>());
}

void copy(const Team& team, const TensorView& from, const TensorView& to) {
  GP_CHECK_EQ(from.bytes(), to.bytes());
  const std::byte* source = from.data;
  std::byte* target = to.data;
  each_part(team.threads, to.elements(), to.elements(), [=](int64_t begin, int64_t end) {
    std::memcpy(target + 4 * begin, source + 4 * begin, static_cast<size_t>(4 * (end - begin)));
  });
}

void fill(const Team& team, const TensorView& to, float value) {
  float* target = to.f32();
  each_part(team.threads, to.elements(), to.elements(),
            [=](int64_t begin, int64_t end) { std::fill(target + begin, target + end, value); });
}

void swap(const Team& team, const TensorView& a, const TensorView& b) {
  GP_CHECK_EQ(a.bytes(), b.bytes());
  float *left = a.f32(), *right = b.f32();
  each_part(team.threads, a.elements(), a.elements(),
            [=](int64_t begin, int64_t end) { std::swap_ranges(left + begin, left + end, right + begin); });
}

double sum_of_squares(const Team& team, const TensorView& x) {
  const float* data = x.f32();
  return fixed_order_sum(team.threads, x.elements(), [=](int64_t i) {
    const double value = data[i];
    return value * value;
  });
}

void update(const Team& team, const ParameterUpdate& what) {
  const int64_t count = what.weight.elements();
  std::visit(
      [&](const auto& one) {
        update_all(team.threads, count, one, what.weight.f32(), what.gradient.f32(), what.slots);
        const float share = one.common.averaging;
        if (share <= 0) return;
        float* average = what.slots.back().f32();
        each_element(team.threads, count, what.weight.f32(), average, average,
                     [=](float w, float a) { return a + share * (w - a); });
      },
      what.rule);
}

std::unique_ptr<ConcatOp> make_concat(const Team& team) { return std::make_unique<CpuConcat>(team); }

}  // namespace gpipe::device::cpu
