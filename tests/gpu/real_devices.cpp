// Stands in for the emulation's control where the same tests run on real GPUs: nothing is watched there but the memory in use.
#include "tests/emulated_cuda/emulated.h"

#include <cuda_runtime_api.h>

namespace gpipe::emulated {

void reset(const Options&) {}
std::vector<std::string> violations() { return {}; }
std::vector<std::string> leaks() { return {}; }
void clear_failures() {}
int64_t host_waits() { return 0; }

size_t used_bytes(int device) {
  size_t free = 0, total = 0;
  if (cudaSetDevice(device) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  return total - free;
}

size_t allocation_granule() { return size_t{2} << 20; }  // pages of the driver; smaller blocks share them

}  // namespace gpipe::emulated
