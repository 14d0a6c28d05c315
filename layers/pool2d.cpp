#include "layers/pool2d.h"

namespace gpipe::layers {
namespace {

class Pool2d final : public Layer {
 public:
  Pool2d(const char* name, device::PoolSpec::Kind kind, const Window& window) : name_(name), kind_(kind), window_(window) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    expect_image(name_, inputs[0]);
    const Placement at = place(name_, window_, inputs[0]);
    check_pool(name_, window_, at);
    return {at.out[0], at.out[1], inputs[0][2]};
  }
  Cost cost(std::span<const Shape>, const Shape& output) const override {
    const int64_t flops = output.elements() * window_.kernel[0] * window_.kernel[1];
    return {flops, flops, 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    const Shape& image = context.inputs[0];
    return pool_operation(pool_spec(kind_, image, window_, place(name_, window_, image)), context);
  }

 private:
  const char* name_;
  device::PoolSpec::Kind kind_;
  Window window_;
};

}  // namespace

void Pool2dConfig::finish(const base::Tree& tree, const std::string& path, base::Problems& problems) {
  const auto pair = [&](const std::vector<int64_t>& values, const char* key) {
    return read_pair(values, place_of(tree, key), base::detail::join_path(path, key), problems);
  };
  window.kernel = pair(kernel_size, "kernel_size");
  window.stride = stride.empty() ? window.kernel : pair(stride, "stride");
  window.padding = read_padding(padding, base::detail::join_path(path, "padding"), problems);
}

void add_pool_fields(base::FieldSet<Pool2dConfig>& fields) {
  fields.add("kernel_size", &Pool2dConfig::kernel_size)
      .required()
      .range(1, 4096)
      .scalar_or_list()
      .help("a number or [height, width]");
  fields.add("stride", &Pool2dConfig::stride)
      .range(1, 4096)
      .scalar_or_list()
      .nullable()
      .help("a number or [height, width]; default: kernel_size");
  fields.add("padding", &Pool2dConfig::padding)
      .raw_schema(padding_schema)
      .help("same, valid, a number, [height, width] or [top, bottom, left, right]; less than the kernel");
}

std::unique_ptr<Layer> pool2d_layer(const char* name, device::PoolSpec::Kind kind, const Pool2dConfig& config) {
  return std::make_unique<Pool2d>(name, kind, config.window);
}

}  // namespace gpipe::layers
