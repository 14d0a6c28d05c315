// The door of the CUDA leaf as a module of its own (core/device/load_cuda.cpp), with the names that the loader asks for.
#include "core/device/leaves.h"

extern "C" {

/// The caller owns the backend. Throws as device::open_cuda.
gpipe::device::Backend* gpipe_open_cuda(int index, const gpipe::device::BackendOptions* options) {
  return gpipe::device::open_cuda(index, *options).release();
}

int gpipe_count_cuda() { return gpipe::device::count_cuda(); }

void gpipe_describe_cuda(std::vector<std::string>* lines) { *lines = gpipe::device::describe_cuda(); }

}  // extern "C"
