#include "core/pipeline/device_list.h"

#include "core/base/fields.h"
#include "core/base/scalar.h"
#include "core/pipeline/options.h"

#include <fmt/format.h>

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
