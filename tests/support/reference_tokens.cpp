// Embedding, positions, shifted tokens. Ids are whole numbers.
#include "tests/support/reference.h"

#include <cmath>

namespace gpipe::test {
namespace {

class EmbeddingReference final : public Reference {
 public:
  explicit EmbeddingReference(const Arguments& a)
      : columns_(static_cast<size_t>(a.integer("embedding_dim", 1))),
        padding_(a.integer("padding_idx", -1)),
        scale_(a.number("scale", 1)) {}

  Numbers forward(const ReferenceCall& call) const override {
    Numbers y;
    for (double id : call.inputs[0])
      for (size_t c = 0; c < columns_; ++c) y.push_back(scale_ * call.parameters[0][row(id) + c]);
    return y;
  }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    ReferenceGradients d{{Numbers(call.inputs[0].size())}, {Numbers(call.parameters[0].size())}};
    for (size_t i = 0; i < dy.size(); ++i) {
      const double id = call.inputs[0][i / columns_];
      if (std::lround(id) != padding_) d.parameters[0][row(id) + i % columns_] += scale_ * dy[i];
    }
    return d;
  }

 private:
  size_t row(double id) const { return static_cast<size_t>(std::lround(id)) * columns_; }
  size_t columns_;
  int64_t padding_;
  double scale_;
};

class PositionsReference final : public Reference {
 public:
  PositionsReference(const Arguments& a, const Shape& input)
      : learned_(a.word("kind", "learned") == "learned"),
        length_(static_cast<size_t>(input[0])),
        channels_(static_cast<size_t>(input[1])) {}

  Numbers forward(const ReferenceCall& call) const override {
    Numbers y = call.inputs[0];
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t at = i % (length_ * channels_);
      y[i] += learned_ ? call.parameters[0][at] : wave(at / channels_, at % channels_);
    }
    return y;
  }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    ReferenceGradients d{{dy}, {}};
    if (!learned_) return d;
    d.parameters.emplace_back(call.parameters[0].size());
    for (size_t i = 0; i < dy.size(); ++i) d.parameters[0][i % (length_ * channels_)] += dy[i];
    return d;
  }

 private:
  double wave(size_t t, size_t c) const {
    const double pair = std::floor(static_cast<double>(c) / 2);
    const double angle = static_cast<double>(t) * std::exp(-std::log(10000.0) * 2 * pair / static_cast<double>(channels_));
    return c % 2 == 0 ? std::sin(angle) : std::cos(angle);
  }
  bool learned_;
  size_t length_, channels_;
};

class ShiftReference final : public Reference {
 public:
  ShiftReference(const Arguments& a, const Shape& input)
      : start_(a.number("start", 0)), padding_(a.number("padding", 0)), length_(static_cast<size_t>(input[0])) {}

  Numbers forward(const ReferenceCall& call) const override {
    Numbers y(call.inputs[0].size(), start_);
    for (size_t i = 0; i < y.size(); ++i)
      if (i % length_ != 0) y[i] = call.inputs[0][i - 1] < 0 ? padding_ : call.inputs[0][i - 1];
    return y;
  }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers&) const override {
    return {{Numbers(call.inputs[0].size())}, {}};
  }

 private:
  double start_, padding_;
  size_t length_;
};

}  // namespace

std::unique_ptr<Reference> make_token_reference(const std::string& type, const Arguments& a, const std::vector<Shape>& inputs) {
  if (type == "embedding") return std::make_unique<EmbeddingReference>(a);
  if (type == "positions") return std::make_unique<PositionsReference>(a, inputs[0]);
  if (type == "shift_tokens") return std::make_unique<ShiftReference>(a, inputs[0]);
  return nullptr;
}

}  // namespace gpipe::test
