// The doors of the leaves: one function a kind of device. Only core/device/backend.cpp calls them.
#pragma once

#include "core/device/backend.h"

#include <memory>
#include <string>
#include <vector>

namespace gpipe::device {

/// `options.algorithms` is there.
std::unique_ptr<Backend> open_cpu(const BackendOptions& options);
std::vector<std::string> describe_cpu();

/// A build without CUDA has no_cuda.cpp behind these.
std::unique_ptr<Backend> open_cuda(int index, const BackendOptions& options);
int count_cuda();  // 0 where there is no driver
std::vector<std::string> describe_cuda();

}  // namespace gpipe::device
