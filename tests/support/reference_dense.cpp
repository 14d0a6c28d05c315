// Linear maps and batch normalisation.
#include "tests/support/reference.h"

#include <cmath>

namespace gpipe::test {
namespace {

class LinearReference final : public Reference {
 public:
  LinearReference(const Arguments& a, const Shape& input)
      : in_(static_cast<size_t>(input.back())),
        out_(static_cast<size_t>(a.integer("out_features", 1))),
        bias_(a.truth("bias", true)) {}

  Numbers forward(const ReferenceCall& call) const override {
    const size_t rows = call.inputs[0].size() / in_;
    Numbers y(rows * out_);
    for (size_t r = 0; r < rows; ++r)
      for (size_t o = 0; o < out_; ++o) {
        double& sum = y[r * out_ + o] = bias_ ? call.parameters[1][o] : 0;
        for (size_t i = 0; i < in_; ++i) sum += call.inputs[0][r * in_ + i] * call.parameters[0][o * in_ + i];
      }
    return y;
  }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    const size_t rows = call.inputs[0].size() / in_;
    ReferenceGradients d{{Numbers(rows * in_)}, {Numbers(in_ * out_)}};
    if (bias_) d.parameters.emplace_back(out_);
    for (size_t r = 0; r < rows; ++r)
      for (size_t o = 0; o < out_; ++o) {
        const double g = dy[r * out_ + o];
        for (size_t i = 0; i < in_; ++i) {
          d.inputs[0][r * in_ + i] += g * call.parameters[0][o * in_ + i];
          d.parameters[0][o * in_ + i] += g * call.inputs[0][r * in_ + i];
        }
        if (bias_) d.parameters[1][o] += g;
      }
    return d;
  }

 private:
  size_t in_, out_;
  bool bias_;
};

class BatchNormReference final : public Reference {
 public:
  BatchNormReference(const Arguments& a, const Shape& input)
      : channels_(static_cast<size_t>(input.back())), epsilon_(a.number("eps", 1e-5)), affine_(a.truth("affine", true)) {}

  Numbers forward(const ReferenceCall& call) const override {
    const Numbers normal = normalised(call.inputs[0]).values;
    Numbers y(normal.size());
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t c = i % channels_;
      y[i] = affine_ ? normal[i] * call.parameters[0][c] + call.parameters[1][c] : normal[i];
    }
    return y;
  }

  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    const Normalised n = normalised(call.inputs[0]);
    const double rows = static_cast<double>(dy.size() / channels_);
    Numbers sum(channels_), product(channels_);
    for (size_t i = 0; i < dy.size(); ++i) {
      sum[i % channels_] += dy[i];
      product[i % channels_] += dy[i] * n.values[i];
    }
    ReferenceGradients d{{Numbers(dy.size())}, {}};
    for (size_t i = 0; i < dy.size(); ++i) {
      const size_t c = i % channels_;
      const double scale = affine_ ? call.parameters[0][c] : 1;
      d.inputs[0][i] = scale * n.inverse[c] * (dy[i] - sum[c] / rows - n.values[i] * product[c] / rows);
    }
    if (affine_) d.parameters = {product, sum};
    return d;
  }

 private:
  struct Normalised {
    Numbers values, inverse;
  };
  Normalised normalised(const Numbers& x) const {
    const double rows = static_cast<double>(x.size() / channels_);
    Numbers mean(channels_), variance(channels_);
    for (size_t i = 0; i < x.size(); ++i) mean[i % channels_] += x[i] / rows;
    for (size_t i = 0; i < x.size(); ++i) variance[i % channels_] += std::pow(x[i] - mean[i % channels_], 2) / rows;
    Normalised n{Numbers(x.size()), Numbers(channels_)};
    for (size_t c = 0; c < channels_; ++c) n.inverse[c] = 1 / std::sqrt(variance[c] + epsilon_);
    for (size_t i = 0; i < x.size(); ++i) n.values[i] = (x[i] - mean[i % channels_]) * n.inverse[i % channels_];
    return n;
  }

  size_t channels_;
  double epsilon_;
  bool affine_;
};

/// Layer, RMS, group and instance norm: statistics of `positions` x (channels / groups) elements of a row.
class GroupNormReference final : public Reference {
 public:
  GroupNormReference(const std::string& type, const Arguments& a, const Shape& input)
      : channels_(static_cast<size_t>(input.back())),
        positions_(type == "layer_norm" || type == "rms_norm" ? 1 : static_cast<size_t>(input.elements()) / channels_),
        groups_(type == "instance_norm" ? channels_ : static_cast<size_t>(a.integer("num_groups", 1))),
        center_(type != "rms_norm"),
        epsilon_(a.number("eps", center_ ? 1e-5 : 1.1920929e-7)),
        affine_(a.truth("affine", type != "instance_norm")) {}

  Numbers forward(const ReferenceCall& call) const override {
    Numbers y = normalised(call.inputs[0], nullptr);
    for (size_t i = 0; i < y.size() && affine_; ++i) {
      y[i] *= call.parameters[0][i % channels_];
      if (center_) y[i] += call.parameters[1][i % channels_];
    }
    return y;
  }

  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    Numbers inverse;
    const Numbers normal = normalised(call.inputs[0], &inverse);
    Numbers sum(inverse.size()), product(inverse.size());
    ReferenceGradients d{{Numbers(dy.size())}, {}};
    Numbers scale_gradient(channels_), shift_gradient(channels_);
    const auto scaled = [&](size_t i) { return dy[i] * (affine_ ? call.parameters[0][i % channels_] : 1); };
    for (size_t i = 0; i < dy.size(); ++i) {
      sum[group_of(i)] += scaled(i) / count();
      product[group_of(i)] += scaled(i) * normal[i] / count();
      scale_gradient[i % channels_] += dy[i] * normal[i];
      shift_gradient[i % channels_] += dy[i];
    }
    for (size_t i = 0; i < dy.size(); ++i)
      d.inputs[0][i] = inverse[group_of(i)] * (scaled(i) - (center_ ? sum[group_of(i)] : 0) - normal[i] * product[group_of(i)]);
    if (affine_) d.parameters = {scale_gradient};
    if (affine_ && center_) d.parameters.push_back(shift_gradient);
    return d;
  }

 private:
  double count() const { return static_cast<double>(positions_ * (channels_ / groups_)); }
  size_t group_of(size_t i) const { return i / (positions_ * channels_) * groups_ + i % channels_ / (channels_ / groups_); }
  Numbers normalised(const Numbers& x, Numbers* inverse_out) const {
    const size_t groups = x.size() / (positions_ * channels_) * groups_;
    Numbers mean(groups), square(groups), y(x.size());
    for (size_t i = 0; i < x.size() && center_; ++i) mean[group_of(i)] += x[i] / count();
    for (size_t i = 0; i < x.size(); ++i) square[group_of(i)] += std::pow(x[i] - mean[group_of(i)], 2) / count();
    for (double& s : square) s = 1 / std::sqrt(s + epsilon_);
    for (size_t i = 0; i < x.size(); ++i) y[i] = (x[i] - mean[group_of(i)]) * square[group_of(i)];
    if (inverse_out != nullptr) *inverse_out = square;
    return y;
  }

  size_t channels_, positions_, groups_;
  bool center_;
  double epsilon_;
  bool affine_;
};

}  // namespace

std::unique_ptr<Reference> make_dense_reference(const std::string& type, const Arguments& a, const std::vector<Shape>& inputs) {
  if (type == "linear") return std::make_unique<LinearReference>(a, inputs[0]);
  if (type == "layer_norm" || type == "rms_norm" || type == "group_norm" || type == "instance_norm")
    return std::make_unique<GroupNormReference>(type, a, inputs[0]);
  if (type == "batch_norm") return std::make_unique<BatchNormReference>(a, inputs[0]);
  return nullptr;
}

}  // namespace gpipe::test
