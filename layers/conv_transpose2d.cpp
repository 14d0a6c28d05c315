// conv_transpose2d: torch.nn.ConvTranspose2d on channels-last images: a conv2d of the same arguments run backwards.
#include "layers/initial.h"
#include "layers/weighted.h"
#include "layers/window.h"

namespace gpipe::layers {
namespace {

struct ConvTranspose2dConfig {
  int64_t out_channels = 0;
  std::vector<int64_t> kernel_size{1}, stride{1}, padding{0}, output_padding{0}, dilation{1};
  int64_t groups = 1;
  bool bias = true;
  base::Tree init, bias_init;
  // Read from the above:
  std::array<int64_t, 2> kernel{}, step{}, pad{}, extra{}, spread{};
  std::optional<InitRule> weight_rule, bias_rule;

  void finish(const base::Tree& tree, const std::string& path, base::Problems& problems) {
    const auto pair = [&](const std::vector<int64_t>& values, const char* key) {
      return read_pair(values, place_of(tree, key), base::detail::join_path(path, key), problems);
    };
    kernel = pair(kernel_size, "kernel_size");
    step = pair(stride, "stride");
    pad = pair(padding, "padding");
    extra = pair(output_padding, "output_padding");
    spread = pair(dilation, "dilation");
    for (size_t k = 0; k < 2; ++k)
      if (extra[k] >= std::max(step[k], spread[k]) || extra[k] - extra[k] % step[k] > pad[k])
        problems.add(place_of(tree, "output_padding"), base::detail::join_path(path, "output_padding"),
                     fmt::format("wanted less than the stride of {}, or than the dilation of {} with as much padding, found {}",
                                 step[k], spread[k], extra[k]));
    weight_rule = read_init(init, base::detail::join_path(path, "init"), problems, InitTarget::filters);
    bias_rule = read_init(bias_init, base::detail::join_path(path, "bias_init"), problems, InitTarget::vector);
  }
};

const base::FieldSet<ConvTranspose2dConfig>& conv_transpose2d_fields() {
  static const auto fields = [] {
    using Config = ConvTranspose2dConfig;
    base::FieldSet<Config> f{"conv_transpose2d"};
    const char* const forms = "a number or [height, width]";
    f.add("out_channels", &Config::out_channels).required().range(1, 1 << 20).help("channels of the output");
    f.add("kernel_size", &Config::kernel_size).required().range(1, 512).scalar_or_list().help(forms);
    f.add("stride", &Config::stride).range(1, 4096).scalar_or_list().help(forms);
    f.add("padding", &Config::padding)
        .range(0, 4096)
        .scalar_or_list()
        .help("of the convolution run backwards: taken off both ends of the output; a number or [height, width]");
    f.add("output_padding", &Config::output_padding)
        .range(0, 4095)
        .scalar_or_list()
        .help("more rows and columns at the end of the output, fewer than the stride; a number or [height, width]");
    f.add("dilation", &Config::dilation).range(1, 4096).scalar_or_list().help(forms);
    f.add("groups", &Config::groups).range(1, 1 << 20).help("must divide the channels of input and output");
    f.add("bias", &Config::bias).help("add a bias to every output channel");
    f.add("init", &Config::init).help(std::string("start of the weight: ") + init_help);
    f.add("bias_init", &Config::bias_init).help("start of the bias, in the same words");
    return f;
  }();
  return fields;
}

class ConvTranspose2d final : public Layer {
 public:
  explicit ConvTranspose2d(ConvTranspose2dConfig config) : config_(std::move(config)) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& x = inputs[0];
    expect_image("conv_transpose2d", x);
    if (x[2] % config_.groups != 0 || config_.out_channels % config_.groups != 0)
      throw base::ConfigError("conv_transpose2d: {} groups must divide the channels of the input {} and the {} output channels",
                              config_.groups, x, config_.out_channels);
    const int64_t height = extent(0, x[0]), width = extent(1, x[1]);
    if (height < 1 || width < 1)
      throw base::ConfigError("conv_transpose2d: padding [{}, {}] leaves nothing of an input of {} with a kernel of {}",
                              config_.pad[0], config_.pad[1], x, Shape{config_.kernel[0], config_.kernel[1]});
    return {height, width, config_.out_channels};
  }

  // PyTorch counts both fans of this weight [in, out / groups, kH, kW] as if it were a conv2d's.
  std::vector<graph::ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const auto& k = config_.kernel;
    const int64_t in = inputs[0][2], out = config_.out_channels / config_.groups, area = k[0] * k[1];
    const auto init = [&](const std::optional<InitRule>& rule) {
      return rule ? rule->resolve(out * area, in * area) : default_init(out * area);
    };
    std::vector<graph::ParameterSpec> all = {{"weight", {in, out, k[0], k[1]}, init(config_.weight_rule), true}};
    if (config_.bias) all.push_back({"bias", {config_.out_channels}, init(config_.bias_rule), false});
    return all;
  }

  Cost cost(std::span<const Shape> inputs, const Shape&) const override {
    const int64_t out = config_.out_channels / config_.groups;
    const int64_t flops = 2 * inputs[0].elements() * out * config_.kernel[0] * config_.kernel[1];
    return {flops, flops, flops};
  }

  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    const Shape &x = context.inputs[0], &y = context.output;
    const device::TransposedConvolutionSpec spec{
        .in_height = y[0],
        .in_width = y[1],
        .in_channels = y[2],
        .out_height = x[0],
        .out_width = x[1],
        .out_channels = x[2],
        .kernel = config_.kernel,
        .stride = config_.step,
        .dilation = config_.spread,
        .pad_top = config_.pad[0],
        .pad_bottom = end(0),
        .pad_left = config_.pad[1],
        .pad_right = end(1),
        .groups = config_.groups,
        .bias = config_.bias,
        .input_gradient = context.input_gradients[0],
    };
    return make_weighted_operation(context.backend.transposed_convolution(spec, context.batches), false);
  }

 private:
  int64_t extent(size_t k, int64_t in) const {
    return (in - 1) * config_.step[k] - 2 * config_.pad[k] + config_.spread[k] * (config_.kernel[k] - 1) + config_.extra[k] + 1;
  }
  // Whole strides of output padding would be more positions of the convolution run backwards: it sees less padding instead.
  int64_t end(size_t k) const { return config_.pad[k] - (config_.extra[k] - config_.extra[k] % config_.step[k]); }
  ConvTranspose2dConfig config_;
};

}  // namespace

const LayerType& conv_transpose2d_layer() {
  static const LayerType type{
      .name = "conv_transpose2d",
      .summary = "transposed 2-D convolution of an image [height, width, channels]",
      .make = make_layer<ConvTranspose2d, ConvTranspose2dConfig, conv_transpose2d_fields>,
      .fields = table_of<ConvTranspose2dConfig, conv_transpose2d_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
