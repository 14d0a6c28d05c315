#include "core/train/transfer.h"

#include "core/base/fields.h"
#include "core/base/files.h"
#include "core/base/scalar.h"
#include "core/device/functors/rounding.h"
#include "core/train/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace gpipe::train {
namespace {

struct Settings {
  std::string path;
  base::Tree names;
  std::vector<std::string> fresh;
  bool average = false;
};

const base::FieldSet<Settings>& fields() {
  static const auto set = [] {
    base::FieldSet<Settings> f{"init_from"};
    f.add("path", &Settings::path).required().help("checkpoint folder or safetensors file");
    f.add("names", &Settings::names).help("beginnings of names in the file -> what stands for them here");
    f.add("fresh", &Settings::fresh).help("patterns of parameters that start from the seed");
    f.add("average", &Settings::average).help("of a checkpoint: the averages of the weights (train.ema_decay)");
    return f;
  }();
  return set;
}

struct Wanted {
  std::string name;
  std::vector<int64_t> shape;
};

std::vector<Wanted> wanted_tensors(const graph::Network& network) {
  std::vector<Wanted> wanted;
  const auto add = [&](const graph::Node& node, const std::string& name, const tensor::Shape& shape) {
    wanted.push_back({node.name + "." + name, {shape.extents().begin(), shape.extents().end()}});
  };
  for (const graph::Node& node : network.nodes) {
    for (const graph::ParameterSpec& parameter : node.parameters)
      if (parameter.tied_to.empty()) add(node, parameter.name, parameter.shape);
    for (const graph::BufferSpec& buffer : node.buffers) add(node, buffer.name, buffer.shape);
  }
  return wanted;
}

std::string name_here(const InitFrom& from, const std::string& there) {
  for (const auto& [beginning, instead] : from.names)
    if (there.starts_with(beginning)) return instead + there.substr(beginning.size());
  return there;
}

template <class T>
T stored(const NamedTensor& tensor, size_t i) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + i * sizeof(T), sizeof value);
  return value;
}

float number(const NamedTensor& tensor, size_t i) {
  switch (tensor.dtype) {
    case StoredType::f32: return stored<float>(tensor, i);
    case StoredType::f64: return static_cast<float>(stored<double>(tensor, i));
    case StoredType::f16: return device::F16::widen(stored<uint16_t>(tensor, i));
    case StoredType::bf16: return device::Bf16::widen(stored<uint16_t>(tensor, i));
    default: throw base::BugError("tensor {} of type {} is no number", tensor.name, name_of(tensor.dtype));
  }
}

bool is_number(StoredType type) {
  return type == StoredType::f32 || type == StoredType::f64 || type == StoredType::f16 || type == StoredType::bf16;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t shown = 5;
  const std::vector<std::string> first(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(shown, names.size())));
  return fmt::format("{}{}", fmt::join(first, ", "), names.size() > shown ? fmt::format(", ... ({} in all)", names.size()) : "");
}

}  // namespace

std::optional<InitFrom> read_init_from(const base::Tree& tree, const std::string& path, base::Problems& problems) {
  if (tree.is_null()) return std::nullopt;
  Settings settings;
  const size_t faults = problems.errors().size();
  if (tree.is_scalar())
    settings.path = tree.text();
  else
    fields().read(tree, path, settings, problems);
  if (!settings.names.is_null() && !settings.names.is_map())
    problems.add(settings.names.where(), path + ".names",
                 fmt::format("wanted a map such as {{\"module.\": \"\"}}, found {}", settings.names.kind_words()));
  if (problems.errors().size() != faults) return std::nullopt;
  InitFrom from{settings.path, {}, settings.fresh, settings.average};
  for (const auto& [there, here] : settings.names.members()) {
    if (!here.is_scalar()) problems.add(here.where(), path + ".names", fmt::format("wanted a text, found {}", here.kind_words()));
    from.names.emplace_back(there, here.text());
  }
  return problems.errors().size() == faults ? std::optional(from) : std::nullopt;
}

void Transfer::open(const InitFrom& from) {
  const bool is_file = base::kind_of(from.path) == base::Entry::Kind::file;
  if (is_file && from.average)
    throw base::CheckpointError("{}: train.init_from.average wants a checkpoint folder, this is a file", from.path);
  std::vector<NamedTensor> found;
  if (is_file) {
    file_ = Safetensors::read(from.path);
    found = file_->tensors();
  } else {
    checkpoint_ = load_checkpoint(from.path);
    found = from.average ? checkpoint_->average() : checkpoint_->model();
    if (found.empty())
      throw base::CheckpointError("{}: there are no averages in it; it was saved without train.ema_decay", from.path);
  }
  check_finite(found, from.path);
  for (const auto& [beginning, instead] : from.names)
    if (std::none_of(found.begin(), found.end(), [&](const NamedTensor& tensor) { return tensor.name.starts_with(beginning); }))
      throw base::CheckpointError("{}: by train.init_from.names, names that begin with {} have others here, but it has none: {}",
                                  from.path, base::shown(beginning), found.empty() ? "nothing" : found.front().name);
  for (NamedTensor& tensor : found) {
    const std::string name = name_here(from, tensor.name);
    if (const auto [at, added] = tensors_.emplace(name, tensor); !added)
      throw base::CheckpointError("{}: by train.init_from.names, {} and {} are both {} here", from.path, at->second.name,
                                  tensor.name, name);
  }
}

Transfer::Transfer(const InitFrom& from, const graph::Network& network) {
  open(from);
  std::map<std::string, NamedTensor> used;
  std::vector<std::string> fresh, missing;
  const std::vector<Wanted> all = wanted_tensors(network);
  for (const std::string& pattern : from.fresh)  // one that nothing answers to would leave what it was meant for as it was
    if (std::none_of(all.begin(), all.end(), [&](const Wanted& wanted) { return matches(pattern, wanted.name); }))
      throw base::ConfigError("train.init_from.fresh: no parameter matches {}; gpipe-train describe lists the layers",
                              base::shown(pattern));
  for (const Wanted& wanted : all) {
    if (std::any_of(from.fresh.begin(), from.fresh.end(), [&](const auto& pattern) { return matches(pattern, wanted.name); })) {
      fresh.push_back(wanted.name);
      continue;
    }
    const auto found = tensors_.find(wanted.name);
    if (found == tensors_.end()) {
      missing.push_back(wanted.name + " " + shape_text(wanted.shape));
    } else if (found->second.shape != wanted.shape || !is_number(found->second.dtype)) {
      missing.push_back(fmt::format("{} {} (there: {} {})", wanted.name, shape_text(wanted.shape), name_of(found->second.dtype),
                                    shape_text(found->second.shape)));
    } else {
      used.insert(*found);
    }
  }
  if (!missing.empty()) {
    std::vector<std::string> there;
    for (const auto& [name, tensor] : tensors_)
      if (used.count(name) == 0) there.push_back(name);
    throw base::CheckpointError(
        "{}: not in it as the network wants it: {}; left over there: {}. Name what is to start anew in "
        "train.init_from.fresh, or map beginnings of names by train.init_from.names",
        from.path, listed(missing), there.empty() ? "nothing" : listed(there));
  }
  const size_t unused = tensors_.size() - used.size();
  summary_ = fmt::format("{} tensors of {}", used.size(), from.path);
  if (!fresh.empty()) summary_ += "; fresh: " + listed(fresh);
  if (unused > 0) summary_ += fmt::format("; {} of the file {} not used", unused, unused == 1 ? "is" : "are");
  tensors_ = std::move(used);
}

void Transfer::write(pipeline::Engine& engine) const {
  for (const pipeline::StateTensor* tensor : engine.tensors()) {
    const auto found = tensors_.find(tensor->name);
    if (found == tensors_.end() || !tensor->value) continue;
    float* values = tensor->value.f32();
    for (size_t i = 0; i < static_cast<size_t>(tensor->value.elements()); ++i) values[i] = number(found->second, i);
  }
}

}  // namespace gpipe::train
