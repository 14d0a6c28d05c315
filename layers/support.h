// What the layer files share: reading arguments, checking shapes, layers that have no arguments.
#pragma once

#include "core/base/error.h"
#include "core/graph/layer.h"

#include <algorithm>
#include <memory>
#include <string>

namespace gpipe::layers {

using device::Batches;
using graph::BackwardCall;
using graph::Cost;
using graph::ForwardCall;
using graph::Layer;
using graph::LayerType;
using graph::Needs;
using graph::NodeState;
using graph::Operation;
using graph::PlanContext;
using tensor::DType;
using tensor::Shape;
using tensor::TensorView;

/// Reads the arguments with `fields()` and makes a L from them, or reports what is wrong and gives null. A Config may have
/// a `bool finish(tree, path, problems)` that reads what takes several forms.
template <class L, class Config, const base::FieldSet<Config>& (*fields)()>
std::unique_ptr<Layer> make_layer(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  const size_t before = problems.errors().size();
  Config config;
  fields().read(arguments, path, config, problems);
  if constexpr (requires { config.finish(arguments, path, problems); }) config.finish(arguments, path, problems);
  if (problems.errors().size() != before) return nullptr;
  return std::make_unique<L>(config);
}

template <class Config, const base::FieldSet<Config>& (*fields)()>
base::FieldTable table_of() {
  return fields().table();
}

/// For a layer that has no arguments: reports any that are given, false then.
bool read_no_arguments(const base::Tree& arguments, const std::string& path, base::Problems& problems);
base::FieldTable no_fields();
template <class L>
std::unique_ptr<Layer> make_plain(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  return read_no_arguments(arguments, path, problems) ? std::make_unique<L>() : nullptr;
}

/// An image [H, W, C]; anything else is the user's mistake.
inline void expect_image(const char* layer, const Shape& input) {
  if (input.rank() != 3)
    throw base::ConfigError("{} needs an image [height, width, channels], its input is {} (rank {} instead of 3)", layer, input,
                            input.rank());
}

/// The same block seen with another shape.
inline TensorView reshaped(const TensorView& view, const Shape& shape) { return {view.data, shape, view.dtype}; }
/// [N, ..., C] as rows [N * ..., C].
inline TensorView as_rows(const TensorView& view) {
  const int64_t columns = view.shape.back();
  return reshaped(view, Shape{view.elements() / columns, columns});
}
/// How many rows input `index`, seen as rows, has in micro-batches of `batches` samples. In a narrower bucket the widest's most
/// rows come first: they decide how a weight is packed.
Batches rows_of(const PlanContext& context, size_t index);
inline TensorView parameter(std::span<const TensorView> all, size_t index) {
  return index < all.size() ? all[index] : TensorView{};
}

/// Where a member of an argument map stands, for messages; the map itself when it is absent.
inline const base::Location& place_of(const base::Tree& map, const std::string& key) {
  const base::Tree* value = map.is_map() ? map.find(key) : nullptr;
  return value != nullptr ? value->where() : map.where();
}

}  // namespace gpipe::layers
