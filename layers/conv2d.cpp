// conv2d: torch.nn.Conv2d on channels-last images.
#include "layers/initial.h"
#include "layers/weighted.h"
#include "layers/window.h"

namespace gpipe::layers {
namespace {

struct Conv2dConfig {
  int64_t out_channels = 0;
  std::vector<int64_t> kernel_size{1}, stride{1}, dilation{1};
  int64_t groups = 1;
  bool bias = true;
  base::Tree padding, init, bias_init;
  // Read from the above:
  Window window;
  std::optional<InitRule> weight_rule, bias_rule;

  void finish(const base::Tree& tree, const std::string& path, base::Problems& problems) {
    const auto pair = [&](const std::vector<int64_t>& values, const char* key) {
      return read_pair(values, place_of(tree, key), base::detail::join_path(path, key), problems);
    };
    window = {pair(kernel_size, "kernel_size"), pair(stride, "stride"), pair(dilation, "dilation"),
              read_padding(padding, base::detail::join_path(path, "padding"), problems)};
    weight_rule = read_init(init, base::detail::join_path(path, "init"), problems, InitTarget::filters);
    bias_rule = read_init(bias_init, base::detail::join_path(path, "bias_init"), problems, InitTarget::vector);
  }
};

const base::FieldSet<Conv2dConfig>& conv2d_fields() {
  static const auto fields = [] {
    base::FieldSet<Conv2dConfig> f{"conv2d"};
    f.add("out_channels", &Conv2dConfig::out_channels).required().range(1, 1 << 20).help("channels of the output");
    f.add("kernel_size", &Conv2dConfig::kernel_size)
        .required()
        .range(1, 512)
        .scalar_or_list()
        .help("a number or [height, width]");
    f.add("stride", &Conv2dConfig::stride).range(1, 4096).scalar_or_list().help("a number or [height, width]");
    f.add("padding", &Conv2dConfig::padding)
        .raw_schema(padding_schema)
        .help("same, valid, a number, [height, width] or [top, bottom, left, right]; same: output = ceil(input / stride)");
    f.add("dilation", &Conv2dConfig::dilation).range(1, 4096).scalar_or_list().help("a number or [height, width]");
    f.add("groups", &Conv2dConfig::groups).range(1, 1 << 20).help("must divide the channels of input and output");
    f.add("bias", &Conv2dConfig::bias).help("add a bias to every output channel");
    f.add("init", &Conv2dConfig::init).help(std::string("start of the weight: ") + init_help);
    f.add("bias_init", &Conv2dConfig::bias_init).help("start of the bias, in the same words");
    return f;
  }();
  return fields;
}

class Conv2d final : public Layer {
 public:
  explicit Conv2d(Conv2dConfig config) : config_(std::move(config)) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& x = inputs[0];
    expect_image("conv2d", x);
    if (x[2] % config_.groups != 0 || config_.out_channels % config_.groups != 0)
      throw base::ConfigError("conv2d: {} groups must divide the channels of the input {} and the {} output channels",
                              config_.groups, x, config_.out_channels);
    const Placement at = place("conv2d", config_.window, x);
    return {at.out[0], at.out[1], config_.out_channels};
  }

  std::vector<graph::ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const auto& k = config_.window.kernel;
    const int64_t in = inputs[0][2] / config_.groups, area = k[0] * k[1];
    const int64_t fan_in = in * area, fan_out = config_.out_channels * area;
    const auto init = [&](const std::optional<InitRule>& rule) {
      return rule ? rule->resolve(fan_in, fan_out) : default_init(fan_in);
    };
    std::vector<graph::ParameterSpec> all = {{"weight", {config_.out_channels, in, k[0], k[1]}, init(config_.weight_rule), true}};
    if (config_.bias) all.push_back({"bias", {config_.out_channels}, init(config_.bias_rule), false});
    return all;
  }

  Cost cost(std::span<const Shape> inputs, const Shape& output) const override {
    const auto& k = config_.window.kernel;
    const int64_t flops = 2 * output.elements() * (inputs[0][2] / config_.groups) * k[0] * k[1];
    return {flops, flops, flops};
  }

  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    const Shape& x = context.inputs[0];
    const Window& w = config_.window;
    const Placement at = place("conv2d", w, x);
    const device::ConvolutionSpec spec{
        .in_height = x[0],
        .in_width = x[1],
        .in_channels = x[2],
        .out_height = at.out[0],
        .out_width = at.out[1],
        .out_channels = config_.out_channels,
        .kernel = w.kernel,
        .stride = w.stride,
        .dilation = w.dilation,
        .pad_top = at.top,
        .pad_bottom = at.bottom,
        .pad_left = at.left,
        .pad_right = at.right,
        .groups = config_.groups,
        .bias = config_.bias,
        .input_gradient = context.input_gradients[0],
    };
    return make_weighted_operation(context.backend.convolution(spec, context.batches), false);
  }

 private:
  Conv2dConfig config_;
};

}  // namespace

const LayerType& conv2d_layer() {
  static const LayerType type{
      .name = "conv2d",
      .summary = "2-D convolution (cross-correlation) of an image [height, width, channels]",
      .make = make_layer<Conv2d, Conv2dConfig, conv2d_fields>,
      .fields = table_of<Conv2dConfig, conv2d_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
