// Stands in for the CUDA leaf in a build without it.
#include "core/base/error.h"
#include "core/device/leaves.h"

namespace gpipe::device {

std::unique_ptr<Backend> open_cuda(int index, const BackendOptions&) {
  throw base::DeviceError("cuda:{} was asked for, but this program was built without CUDA: use --device cpu", index);
}

int count_cuda() { return 0; }

std::vector<std::string> describe_cuda() { return {"cuda: not available, this program was built without CUDA"}; }

}  // namespace gpipe::device
