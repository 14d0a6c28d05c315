#include "app/calibration.h"

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/device/backend.h"
#include "core/pipeline/calibrate.h"
#include "core/pipeline/verify.h"
#include "core/train/strict_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <span>

namespace gpipe::app {
namespace {

using nlohmann::json;
using pipeline::DevicePeaks;

struct PeakKey {
  const char* key;
  double DevicePeaks::*member;
};
constexpr std::array<PeakKey, 3> k_peaks{{{"convolution_flops", &DevicePeaks::convolution_flops},
                                          {"linear_flops", &DevicePeaks::linear_flops},
                                          {"memory_bytes", &DevicePeaks::memory_bytes}}};

/// "" where there is none. A relative XDG_CACHE_HOME counts for nothing, as its specification says.
std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/gpipe-train";
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/gpipe-train" : "";
}

/// What the peaks belong to; the file's name is made from it, and the file repeats it. A build with sanitizers is slower.
json key_of(const device::DeviceInfo& info) {
  return {{"device", info.name}, {"library", info.library}, {"threads", info.threads}, {"build", GPIPE_BUILD}};
}

std::string file_of(const std::string& folder, const json& key) {
  const std::string text = key.dump();
  return fmt::format("{}/peaks-{:016x}.json", folder, pipeline::digest(text.data(), text.size()));
}

/// Nothing, and why in words, where the file is not what device_peaks wrote.
std::optional<DevicePeaks> read_peaks(const base::InputFile& file, const json& key, std::string& why) {
  constexpr uint64_t largest = 4096;
  if (file.size() > largest || (file.mode() & 022U) != 0) {
    why = file.size() > largest ? "it is too large" : "others may write to it";
    return std::nullopt;
  }
  std::string text(file.size(), '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text))));
  try {
    const json found = train::parse_strict_json(text, file.path());
    DevicePeaks peaks;
    for (const auto& [name, member] : k_peaks) {
      const json value = found.is_object() && found.contains(name) ? found[name] : json();
      if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 1) {
        why = fmt::format("\"{}\" is no positive number", name);
        return std::nullopt;
      }
      peaks.*member = value.get<double>();
    }
    if (found.contains("of") && found["of"] == key) return peaks;
    why = "it is of another device";
  } catch (const base::Error& error) { why = error.what(); }
  return std::nullopt;
}

void keep_peaks(const std::string& folder, const std::string& path, const json& key, const DevicePeaks& peaks) {
  json out{{"of", key}};
  for (const auto& [name, member] : k_peaks) out[name] = peaks.*member;
  try {
    base::make_folders(base::real_files(), folder);
    base::atomic_write(base::real_files(), path, out.dump(2) + "\n");
  } catch (const base::FileError&) {
    // It will be measured again next time; a run needs no cache.
  }
}

}  // namespace

DevicePeaks device_peaks(const std::string& device, const device::BackendOptions& options, std::vector<std::string>& notes) {
  const std::string folder = cache_folder();
  const json key = key_of(device::open_backend(device, options)->info());
  const std::string path = folder.empty() ? "" : file_of(folder, key);
  std::string why;
  if (!folder.empty() && base::kind_of(path)) {
    if (const auto file = base::InputFile::open(path, why, base::Links::refuse))
      if (const auto peaks = read_peaks(*file, key, why)) return *peaks;
    notes.push_back(fmt::format("{}: not used ({}); the device's speed is measured anew", path, why));
  }
  try {
    const DevicePeaks peaks = pipeline::measure_peaks(device, options);
    if (!folder.empty()) keep_peaks(folder, path, key, peaks);
    return peaks;
  } catch (const base::MemoryError&) {
    notes.emplace_back("no memory to measure the device's speed in: the usual one is taken for the partition");
    return {};
  }
}

}  // namespace gpipe::app
