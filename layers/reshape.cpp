// reshape: the same numbers in the order of memory (channels last) with another sample shape.
#include "layers/same_memory.h"

#include <fmt/ranges.h>

namespace gpipe::layers {
namespace {

struct ReshapeConfig {
  std::vector<int64_t> shape;

  void finish(const base::Tree& tree, const std::string& path, base::Problems& problems) const {
    const std::string where = base::detail::join_path(path, "shape");
    if (std::count(shape.begin(), shape.end(), -1) > 1)
      problems.add(place_of(tree, "shape"), where, "wanted at most one -1, which takes what the others leave");
    if (std::count(shape.begin(), shape.end(), 0) > 0)
      problems.add(place_of(tree, "shape"), where, "wanted extents above 0, or -1");
    if (shape.size() >= Shape::max_rank)
      problems.add(place_of(tree, "shape"), where,
                   fmt::format("wanted at most {} extents, found {}", Shape::max_rank - 1, shape.size()));
  }
};

const base::FieldSet<ReshapeConfig>& reshape_fields() {
  static const auto fields = [] {
    base::FieldSet<ReshapeConfig> f{"reshape"};
    f.add("shape", &ReshapeConfig::shape)
        .required()
        .at_least(-1)
        .scalar_or_list()
        .help("of a sample, without the batch; one extent may be -1 and takes what the others leave");
    return f;
  }();
  return fields;
}

class Reshape final : public Layer {
 public:
  explicit Reshape(const ReshapeConfig& config) : extents_(config.shape) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    const int64_t elements = inputs[0].elements();
    std::vector<int64_t> extents = extents_;
    int64_t known = 1;
    for (int64_t extent : extents)
      if (extent > 0 && known <= elements) known *= std::min(extent, elements + 1);
    const auto open = std::find(extents.begin(), extents.end(), -1);
    if (open != extents.end() && elements % known == 0) {
      *open = elements / known;
      known = elements;
    }
    if (known != elements)
      throw base::ConfigError("reshape: the {} elements of {} do not fill [{}]", elements, inputs[0], fmt::join(extents_, ", "));
    return Shape(std::span<const int64_t>(extents));
  }
  Cost cost(std::span<const Shape>, const Shape&) const override { return {}; }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return make_same_memory_operation(context.backend);
  }

 private:
  std::vector<int64_t> extents_;
};

}  // namespace

const LayerType& reshape_layer() {
  static const LayerType type{
      .name = "reshape",
      .summary = "the same numbers, channels last, with another sample shape",
      .make = make_layer<Reshape, ReshapeConfig, reshape_fields>,
      .fields = table_of<ReshapeConfig, reshape_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
