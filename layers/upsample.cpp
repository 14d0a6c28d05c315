// upsample: torch.nn.Upsample of an image, nearest or bilinear, to a size or by a factor; smaller images too.
#include "layers/support.h"
#include "layers/window.h"

#include <cmath>

namespace gpipe::layers {
namespace {

enum class Mode { nearest, bilinear };

struct UpsampleConfig {
  std::vector<int64_t> size;
  base::Tree scale_factor;
  Mode mode = Mode::nearest;
  bool align_corners = false;
  // Read from the above; either is set:
  std::optional<std::array<int64_t, 2>> extents;
  std::optional<std::array<double, 2>> factors;

  void finish(const base::Tree& tree, const std::string& path, base::Problems& problems) {
    if (size.empty() == scale_factor.is_null())
      problems.add(tree.where(), path,
                   "wanted either `size` or `scale_factor`, found " + std::string(size.empty() ? "neither" : "both"));
    if (!size.empty()) extents = read_pair(size, place_of(tree, "size"), base::detail::join_path(path, "size"), problems);
    if (!scale_factor.is_null()) factors = read_factors(base::detail::join_path(path, "scale_factor"), problems);
    if (align_corners && mode == Mode::nearest)
      problems.add(place_of(tree, "align_corners"), base::detail::join_path(path, "align_corners"),
                   "is for mode bilinear: nearest has no corners to align");
  }

  std::array<double, 2> read_factors(const std::string& path, base::Problems& problems) const {
    base::FieldInfo info;
    info.key = "scale_factor";
    info.type = base::FieldInfo::Type::number;
    info.low = 0;
    info.open_low = true;
    info.high = 4096;
    const auto read = [&](const base::Tree& tree) { return base::detail::read_number(tree, path, info, problems).value_or(1); };
    if (!scale_factor.is_list()) return {read(scale_factor), read(scale_factor)};
    if (scale_factor.items().size() == 2) return {read(scale_factor.items()[0]), read(scale_factor.items()[1])};
    problems.add(scale_factor.where(), path,
                 fmt::format("wanted a number or [height, width], found {} numbers", scale_factor.items().size()));
    return {1, 1};
  }
};

const base::FieldSet<UpsampleConfig>& upsample_fields() {
  static const auto fields = [] {
    base::FieldSet<UpsampleConfig> f{"upsample"};
    f.add("size", &UpsampleConfig::size).range(1, 1 << 20).scalar_or_list().help("of the output: a number or [height, width]");
    f.add("scale_factor", &UpsampleConfig::scale_factor)
        .raw_schema(R"({"oneOf": [{"type": "number", "exclusiveMinimum": 0},
                       {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 2, "maxItems": 2}]})")
        .help("output extent = floor(input extent x factor): a number or [height, width]");
    f.add("mode", &UpsampleConfig::mode, {"nearest", "bilinear"}).help("the nearest position, or between four");
    f.add("align_corners", &UpsampleConfig::align_corners).help("bilinear: the corners' centres keep their places");
    return f;
  }();
  return fields;
}

class UpsampleOperation final : public Operation {
 public:
  explicit UpsampleOperation(std::unique_ptr<device::ResampleOp> op) : op_(std::move(op)) {}

  Needs needs() const override { return {}; }
  size_t workspace_bytes() const override { return op_->workspace_bytes(); }
  void forward(const ForwardCall& call, const NodeState&) override { op_->forward(call.inputs[0], call.output); }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    if (call.dx[0]) op_->backward(call.dy, call.dx[0], call.workspace);
  }

 private:
  std::unique_ptr<device::ResampleOp> op_;
};

class Upsample final : public Layer {
 public:
  explicit Upsample(const UpsampleConfig& config) : config_(config) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& x = inputs[0];
    expect_image("upsample", x);
    if (config_.extents) return {(*config_.extents)[0], (*config_.extents)[1], x[2]};
    const auto scaled = [&](int axis) {
      const double factor = (*config_.factors)[static_cast<size_t>(axis)],
                   extent = std::floor(static_cast<double>(x[axis]) * factor);
      if (extent < 1 || extent > (1 << 20))
        throw base::ConfigError("upsample: {} times an extent of {} gives {}, wanted 1 to {}", factor, x, extent, 1 << 20);
      return static_cast<int64_t>(extent);
    };
    return {scaled(0), scaled(1), x[2]};
  }
  Cost cost(std::span<const Shape>, const Shape& output) const override {
    const int64_t flops = config_.mode == Mode::nearest ? 0 : 9 * output.elements();
    return {flops, flops, 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    using Kind = device::ResampleSpec::Kind;
    const Shape &x = context.inputs[0], &y = context.output;
    const Kind linear = config_.align_corners ? Kind::bilinear_align_corners : Kind::bilinear;
    return std::make_unique<UpsampleOperation>(context.backend.resample({config_.mode == Mode::nearest ? Kind::nearest : linear,
                                                                         x[0],
                                                                         x[1],
                                                                         x[2],
                                                                         y[0],
                                                                         y[1],
                                                                         {step(0, x[0], y[0]), step(1, x[1], y[1])}}));
  }

 private:
  // Input positions an output position, as PyTorch takes them: from the factor as given, not from the rounded extents.
  double step(size_t axis, int64_t in, int64_t out) const {
    if (in == out) return 1;
    if (config_.align_corners) return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
    if (config_.mode == Mode::nearest && out == 2 * in) return 0.5;
    return config_.factors ? 1 / (*config_.factors)[axis] : static_cast<double>(in) / static_cast<double>(out);
  }
  UpsampleConfig config_;
};

}  // namespace

const LayerType& upsample_layer() {
  static const LayerType type{
      .name = "upsample",
      .summary = "an image drawn on a grid of another size",
      .make = make_layer<Upsample, UpsampleConfig, upsample_fields>,
      .fields = table_of<UpsampleConfig, upsample_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
