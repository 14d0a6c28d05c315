// Multi-head attention with all its probabilities written out.
#include "core/base/rng.h"
#include "tests/support/reference.h"

#include <cmath>

namespace gpipe::test {
namespace {

/// y [rows, out] = x [rows, in] W^T + b, W rows from `first` on.
struct Map {
  size_t in, out, first;
  const Numbers* bias;

  Numbers forward(const Numbers& x, const Numbers& weight) const {
    Numbers y;
    for (size_t r = 0; r < x.size() / in; ++r)
      for (size_t o = 0; o < out; ++o) {
        double sum = bias != nullptr ? (*bias)[first + o] : 0;
        for (size_t i = 0; i < in; ++i) sum += x[r * in + i] * weight[(first + o) * in + i];
        y.push_back(sum);
      }
    return y;
  }
  void backward(const Numbers& x, const Numbers& weight, const Numbers& dy, Numbers& dx, Numbers& dweight, Numbers* dbias) const {
    for (size_t r = 0; r < x.size() / in; ++r)
      for (size_t o = 0; o < out; ++o) {
        const double g = dy[r * out + o];
        for (size_t i = 0; i < in; ++i) {
          dx[r * in + i] += g * weight[(first + o) * in + i];
          dweight[(first + o) * in + i] += g * x[r * in + i];
        }
        if (dbias != nullptr) (*dbias)[first + o] += g;
      }
  }
};

class AttentionReference final : public Reference {
 public:
  AttentionReference(const Arguments& a, const std::vector<Shape>& inputs)
      : padding_(a.integer("padding", -1)),
        source_(inputs.size() - (padding_ >= 0 ? 2 : 1)),
        queries_(static_cast<size_t>(inputs[0][0])),
        keys_(static_cast<size_t>(inputs[source_][0])),
        channels_(static_cast<size_t>(inputs[0][1])),
        heads_(static_cast<size_t>(a.integer("heads", 1))),
        size_(static_cast<size_t>(a.integer("head_dim", inputs[0][1] / a.integer("heads", 1)))),
        bias_(a.truth("bias", true)),
        causal_(a.truth("causal", false)),
        dropout_(a.number("dropout", 0)) {}

  Numbers forward(const ReferenceCall& call) const override {
    const Projected p = project(call);
    const Numbers context = context_of(call, p);
    return out_map(call).forward(context, call.parameters[out_weight()]);
  }

  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    const Projected p = project(call);
    ReferenceGradients d;
    for (const Numbers& input : call.inputs) d.inputs.emplace_back(input.size());
    for (const Numbers& parameter : call.parameters) d.parameters.emplace_back(parameter.size());
    const Numbers context = context_of(call, p);
    Numbers dcontext(context.size());
    out_map(call).backward(context, call.parameters[out_weight()], dy, dcontext, d.parameters[out_weight()],
                           bias_ ? &d.parameters[3] : nullptr);
    const Projected dp = attend_back(call, p, dcontext);
    const Numbers& weight = call.parameters[0];
    Numbers* dbias = bias_ ? &d.parameters[1] : nullptr;
    in_map(call, 0).backward(call.inputs[0], weight, dp.query, d.inputs[0], d.parameters[0], dbias);
    in_map(call, 1).backward(call.inputs[source_], weight, dp.key, d.inputs[source_], d.parameters[0], dbias);
    in_map(call, 2).backward(call.inputs[source_], weight, dp.value, d.inputs[source_], d.parameters[0], dbias);
    return d;
  }

 private:
  struct Projected {
    Numbers query, key, value;
  };

  size_t width() const { return heads_ * size_; }
  size_t out_weight() const { return bias_ ? 2 : 1; }
  Map in_map(const ReferenceCall& call, size_t third) const {
    return {channels_, width(), third * width(), bias_ ? &call.parameters[1] : nullptr};
  }
  Map out_map(const ReferenceCall& call) const { return {width(), channels_, 0, bias_ ? &call.parameters[3] : nullptr}; }
  Projected project(const ReferenceCall& call) const {
    const Numbers& weight = call.parameters[0];
    return {in_map(call, 0).forward(call.inputs[0], weight), in_map(call, 1).forward(call.inputs[source_], weight),
            in_map(call, 2).forward(call.inputs[source_], weight)};
  }
  size_t query_at(size_t n, size_t h, size_t i) const { return (n * queries_ + i) * width() + h * size_; }
  size_t key_at(size_t n, size_t h, size_t j) const { return (n * keys_ + j) * width() + h * size_; }

  /// Of one query of one head: zeros where nothing is seen.
  Numbers probabilities(const ReferenceCall& call, const Projected& p, size_t n, size_t h, size_t i) const {
    Numbers all(keys_);
    double sum = 0;
    for (size_t j = 0; j < keys_; ++j) {
      if (causal_ && j > i) continue;
      if (padding_ >= 0 && std::lround(call.inputs.back()[n * keys_ + j]) == padding_) continue;
      double score = 0;
      for (size_t c = 0; c < size_; ++c) score += p.query[query_at(n, h, i) + c] * p.key[key_at(n, h, j) + c];
      sum += all[j] = std::exp(score / std::sqrt(static_cast<double>(size_)));
    }
    for (double& x : all) x = sum > 0 ? x / sum : 0;
    return all;
  }
  double factor(const ReferenceCall& call, size_t n, size_t h, size_t i, size_t j) const {
    if (dropout_ == 0) return 1;
    const base::Philox draw(call.pass.seed, base::Purpose::dropout, static_cast<uint64_t>(call.pass.step),
                            static_cast<uint64_t>(call.pass.node) << 32 | (static_cast<uint64_t>(call.pass.first_sample) + n));
    const size_t row = (keys_ + 63) / 64 * 64;  // drawn in sixty-fours
    return draw.uniform((h * queries_ + i) * row + j) >= static_cast<float>(dropout_) ? 1 / (1 - dropout_) : 0;
  }

  template <class Body>
  void each_query(const ReferenceCall& call, const Body& body) const {
    for (size_t n = 0; n < static_cast<size_t>(call.samples); ++n)
      for (size_t h = 0; h < heads_; ++h)
        for (size_t i = 0; i < queries_; ++i) body(n, h, i);
  }
  Numbers context_of(const ReferenceCall& call, const Projected& p) const {
    Numbers context(p.query.size());
    each_query(call, [&](size_t n, size_t h, size_t i) {
      const Numbers all = probabilities(call, p, n, h, i);
      for (size_t j = 0; j < keys_; ++j)
        for (size_t c = 0; c < size_; ++c)
          context[query_at(n, h, i) + c] += all[j] * factor(call, n, h, i, j) * p.value[key_at(n, h, j) + c];
    });
    return context;
  }
  Projected attend_back(const ReferenceCall& call, const Projected& p, const Numbers& dcontext) const {
    Projected d{Numbers(p.query.size()), Numbers(p.key.size()), Numbers(p.value.size())};
    each_query(call, [&](size_t n, size_t h, size_t i) {
      const Numbers all = probabilities(call, p, n, h, i);
      const size_t q = query_at(n, h, i);
      Numbers slope(keys_);
      double mean = 0;
      for (size_t j = 0; j < keys_; ++j) {
        const double f = factor(call, n, h, i, j);
        for (size_t c = 0; c < size_; ++c) {
          slope[j] += f * dcontext[q + c] * p.value[key_at(n, h, j) + c];
          d.value[key_at(n, h, j) + c] += all[j] * f * dcontext[q + c];
        }
        mean += all[j] * slope[j];
      }
      for (size_t j = 0; j < keys_; ++j) {
        const double dscore = all[j] * (slope[j] - mean) / std::sqrt(static_cast<double>(size_));
        for (size_t c = 0; c < size_; ++c) {
          d.query[q + c] += dscore * p.key[key_at(n, h, j) + c];
          d.key[key_at(n, h, j) + c] += dscore * p.query[q + c];
        }
      }
    });
    return d;
  }

  int64_t padding_;
  size_t source_;  // the input that keys and values come from
  size_t queries_, keys_, channels_, heads_, size_;
  bool bias_, causal_;
  double dropout_;
};

}  // namespace

std::unique_ptr<Reference> make_attention_reference(const std::string& type, const Arguments& a,
                                                    const std::vector<Shape>& inputs) {
  if (type == "attention") return std::make_unique<AttentionReference>(a, inputs);
  return nullptr;
}

}  // namespace gpipe::test
