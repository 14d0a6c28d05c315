#include "core/pipeline/device_list.h"

#include "core/base/fields.h"
#include "core/base/scalar.h"
#include "core/device/backend.h"
#include "core/pipeline/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace gpipe::pipeline {
namespace {

/// Whether a list has an entry for each device; a fault if not.
bool one_each(const base::Tree& list, const std::string& path, int devices, base::Problems& problems) {
  if (list.items().size() == static_cast<size_t>(devices)) return true;
  problems.add(list.where(), path,
               fmt::format("{} entries for {} devices (pipeline.partitions): give one each", list.items().size(), devices));
  return false;
}

int64_t read_bytes(const base::Tree& tree, const std::string& path, base::Problems& problems) {
  base::Refusal refusal;
  if (tree.is_scalar()) {
    const auto bytes = base::parse_bytes(tree.text());
    if (const auto* value = std::get_if<int64_t>(&bytes)) return *value;
    refusal = std::get<base::Refusal>(bytes);
  }
  problems.add(
      tree.where(), path,
      fmt::format("wanted bytes, as in 8GiB, found {}{}", tree.found(), refusal.reason.empty() ? "" : "; " + refusal.reason));
  return 0;
}

}  // namespace

std::vector<std::string> device_names(const PipelineOptions& options, int devices, base::Problems& problems) {
  const std::string path = "pipeline.devices";
  std::vector<std::string> names;
  if (options.devices.is_null()) {
    const int gpus = options.device == "cuda" ? std::max(1, std::min(device::count_devices("cuda"), devices)) : 0;
    for (int i = 0; i < devices; ++i)
      names.push_back(gpus == 0 ? options.device : fmt::format("{}:{}", options.device, i * gpus / devices));
    return names;
  }
  if (options.device != "cuda") {
    problems.add(options.devices.where(), path, "it names GPUs, and pipeline.device is cpu; leave it out, or set device: cuda");
  } else if (!options.devices.is_list()) {
    problems.add(options.devices.where(), path,
                 fmt::format("wanted a list with the index of a GPU for each stage's device, as in [0, 1], found {}",
                             options.devices.found()));
  } else if (one_each(options.devices, path, devices, problems)) {
    base::FieldInfo info;
    info.low = 0;
    info.high = 1023;
    for (size_t i = 0; i < options.devices.items().size(); ++i) {
      const auto index = base::detail::read_integer(options.devices.items()[i], fmt::format("{}.{}", path, i), info, problems);
      names.push_back(fmt::format("cuda:{}", index.value_or(0)));
    }
  }
  names.resize(static_cast<size_t>(devices), options.device);
  return names;
}

DeviceList read_devices(const PipelineOptions& options, int devices, int64_t own_memory, base::Problems& problems) {
  DeviceList out;
  const std::string limit_path = "pipeline.memory_limit";
  const base::Tree& limit = options.memory_limit;
  if (limit.is_list()) {
    if (one_each(limit, limit_path, devices, problems))
      for (size_t i = 0; i < limit.items().size(); ++i)
        out.memory_limits.push_back(read_bytes(limit.items()[i], fmt::format("{}.{}", limit_path, i), problems));
  } else if (!limit.is_null()) {
    out.memory_limits.assign(static_cast<size_t>(devices), read_bytes(limit, limit_path, problems));
  }
  out.memory_limits.resize(static_cast<size_t>(devices), 0);
  for (int64_t& bytes : out.memory_limits)
    if (bytes == 0) bytes = own_memory;
  const std::string speeds_path = "pipeline.speeds";
  if (options.speeds.is_null()) return out;
  if (!options.speeds.is_list()) {
    problems.add(options.speeds.where(), speeds_path,
                 fmt::format("wanted a list with one number a device, found {}", options.speeds.found()));
    return out;
  }
  if (!one_each(options.speeds, speeds_path, devices, problems)) return out;
  base::FieldInfo info;
  info.low = 1e-6;
  info.high = 1e6;
  for (size_t i = 0; i < options.speeds.items().size(); ++i) {
    const auto speed = base::detail::read_number(options.speeds.items()[i], fmt::format("{}.{}", speeds_path, i), info, problems);
    out.speeds.push_back(speed.value_or(1));
  }
  return out;
}

}  // namespace gpipe::pipeline
