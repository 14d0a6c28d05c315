// The only file that names the leaves.
#include "core/device/backend.h"

#include "core/base/error.h"
#include "core/device/algorithms.h"
#include "core/device/leaves.h"

#include <charconv>

namespace gpipe::device {
namespace {

// "cuda" -> 0, "cuda:3" -> 3, anything else -> -1.
int cuda_index(const std::string& device) {
  if (device == "cuda") return 0;
  if (!device.starts_with("cuda:")) return -1;
  int index = -1;
  const char* end = device.data() + device.size();
  const auto [stop, error] = std::from_chars(device.data() + 5, end, index);
  return error == std::errc{} && stop == end ? index : -1;
}

}  // namespace

std::unique_ptr<Backend> open_backend(const std::string& device, const BackendOptions& given) {
  BackendOptions options = given;
  if (!options.algorithms) options.algorithms = std::make_shared<Algorithms>();
  if (options.threads < 1) throw base::ConfigError("a stage needs at least 1 thread, {} were asked for", options.threads);
  if (device == "cpu") return open_cpu(options);
  if (const int index = cuda_index(device); index >= 0) return open_cuda(index, options);
  throw base::DeviceError("there is no device '{}': known are cpu, cuda and cuda:INDEX", device);
}

int count_devices(const std::string& kind) { return kind == "cpu" ? 1 : count_cuda(); }

std::vector<std::string> describe_devices() {
  std::vector<std::string> lines = describe_cpu();
  for (std::string& line : describe_cuda()) lines.push_back(std::move(line));
  return lines;
}

}  // namespace gpipe::device
