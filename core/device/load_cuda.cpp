// Loads the CUDA leaf when a GPU is first asked for: its libraries map hundreds of megabytes, and a machine without them can
// run all else. The leaf lies in libgpipe_cuda.so beside the program and uses the program's own base and tensor.
#include "core/base/error.h"
#include "core/device/leaves.h"
#include "core/device/peers.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

namespace gpipe::device {
namespace {

struct Leaf {
  Backend* (*open)(int, const BackendOptions*) = nullptr;
  int (*count)() = nullptr;
  void (*describe)(std::vector<std::string>*) = nullptr;
  std::string why;  // it is not there
};

Leaf load() {
  Leaf leaf;
  std::error_code none;
  const std::filesystem::path beside = std::filesystem::read_symlink("/proc/self/exe", none).parent_path() / "libgpipe_cuda.so";
  const std::string path = std::filesystem::exists(beside, none) ? beside.string() : "libgpipe_cuda.so";  // or the run path's
  if (launched_processes() > 1) {
    // A kernel that is loaded when it is first launched may wait until the GPU is idle, which it is not while it waits for
    // another process. And streams that share one of the GPU's queues wait for each other; by default there are eight.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  }
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto find = [&](const char* name) { return module == nullptr ? nullptr : dlsym(module, name); };
  leaf.open = reinterpret_cast<decltype(leaf.open)>(find("gpipe_open_cuda"));
  leaf.count = reinterpret_cast<decltype(leaf.count)>(find("gpipe_count_cuda"));
  leaf.describe = reinterpret_cast<decltype(leaf.describe)>(find("gpipe_describe_cuda"));
  if (leaf.open != nullptr && leaf.count != nullptr && leaf.describe != nullptr) return leaf;
  const char* error = dlerror();
  leaf.why = error != nullptr ? error : "libgpipe_cuda.so is of another version";
  return leaf;
}

const Leaf& leaf() {
  static const Leaf loaded = load();
  return loaded;
}

}  // namespace

std::unique_ptr<Backend> open_cuda(int index, const BackendOptions& options) {
  if (!leaf().why.empty())
    throw base::DeviceError("cuda:{} was asked for, but its libraries cannot be loaded: {}; --device cpu works everywhere", index,
                            leaf().why);
  return std::unique_ptr<Backend>(leaf().open(index, &options));
}

int count_cuda() { return leaf().why.empty() ? leaf().count() : 0; }

std::vector<std::string> describe_cuda() {
  if (!leaf().why.empty()) return {"cuda: none, its libraries cannot be loaded: " + leaf().why};
  std::vector<std::string> lines;
  leaf().describe(&lines);
  return lines;
}

}  // namespace gpipe::device
