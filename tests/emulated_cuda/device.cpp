// Devices: how many, what they say of themselves, the current one, access to each other, errors.
#include "tests/emulated_cuda/state.h"

#include <cstdio>
#include <cstring>

namespace gpipe::emulated {

namespace {

constexpr int kSharedMemory = 48 << 10;
constexpr int kSharedMemoryOptIn = 227 << 10;
constexpr int kProcessors = 132;

bool exists(int device) {
  ensure_ready();
  Lock lock;
  return device >= 0 && static_cast<size_t>(device) < state().devices.size();
}

cudaError_t error_if_lost(int device) {
  Lock lock;
  const Device& of = state().devices[static_cast<size_t>(device)];
  return of.lost ? of.sticky : cudaSuccess;
}

cudaError_t describe(cudaDeviceProp* properties, int device) {
  if (!properties) return cudaErrorInvalidValue;
  if (!exists(device)) return cudaErrorInvalidDevice;
  if (const cudaError_t lost = error_if_lost(device); lost != cudaSuccess) return lost;
  cudaDeviceProp made;
  std::memset(&made, 0, sizeof made);
  std::snprintf(made.name, sizeof made.name, "Emulated GPU");
  made.uuid.bytes[0] = static_cast<char>(device);
  {
    Lock lock;
    made.totalGlobalMem = state().options.memory_bytes;
  }
  made.sharedMemPerBlock = kSharedMemory;
  made.sharedMemPerBlockOptin = kSharedMemoryOptIn;
  made.regsPerBlock = 65536;
  made.warpSize = 32;
  made.memPitch = 0x7fffffff;
  made.maxThreadsPerBlock = 1024;
  made.maxThreadsDim[0] = made.maxThreadsDim[1] = 1024;
  made.maxThreadsDim[2] = 64;
  made.maxGridSize[0] = 0x7fffffff;
  made.maxGridSize[1] = made.maxGridSize[2] = 65535;
  made.major = 9;
  made.multiProcessorCount = kProcessors;
  made.canMapHostMemory = 1;
  made.concurrentKernels = 1;
  made.pciBusID = device + 1;
  made.asyncEngineCount = 3;
  made.unifiedAddressing = 1;
  made.memoryBusWidth = 6144;
  made.l2CacheSize = 50 << 20;
  made.maxThreadsPerMultiProcessor = 2048;
  *properties = made;
  return cudaSuccess;
}

cudaError_t attribute_of(int* value, cudaDeviceAttr attribute, int device) {
  if (!value) return cudaErrorInvalidValue;
  if (!exists(device)) return cudaErrorInvalidDevice;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = kProcessors; break;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = kSharedMemory; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = kSharedMemoryOptIn; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = 65536; break;
    case cudaDevAttrClockRate: *value = 1980000; break;
    case cudaDevAttrMemoryClockRate: *value = 3201000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = 6144; break;
    case cudaDevAttrL2CacheSize: *value = 50 << 20; break;
    case cudaDevAttrAsyncEngineCount: *value = 3; break;
    case cudaDevAttrPciBusId: *value = device + 1; break;
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode:
    case cudaDevAttrMemoryPoolsSupported: *value = 0; break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrCanMapHostMemory: *value = 1; break;
    default:
      report_unlocked("cudaDeviceGetAttribute: attribute " + std::to_string(attribute) + " is not emulated");
      return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t enable_peer(int peer, unsigned flags) {
  if (!exists(peer) || peer == current_device()) return cudaErrorInvalidDevice;
  if (flags != 0) return cudaErrorInvalidValue;
  Lock lock;
  if (!state().options.peers) {
    report("cudaDeviceEnablePeerAccess: device " + std::to_string(current_device()) + " cannot reach device " +
           std::to_string(peer) + ": ask cudaDeviceCanAccessPeer first");
    return cudaErrorPeerAccessUnsupported;
  }
  const bool added = state().devices[static_cast<size_t>(current_device())].peers.insert(peer).second;
  return added ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
}

struct Named {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr Named kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

}  // namespace

}  // namespace gpipe::emulated

using namespace gpipe::emulated;

cudaError_t cudaGetDeviceCount(int* count) {
  return runtime_call("cudaGetDeviceCount", -1, [&] {
    if (!count) return cudaErrorInvalidValue;
    Lock lock;
    *count = static_cast<int>(state().devices.size());
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return runtime_call("cudaGetDeviceProperties", -1, [&] { return describe(properties, device); });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return runtime_call("cudaDeviceGetAttribute", -1, [&] { return attribute_of(value, attribute, device); });
}

cudaError_t cudaSetDevice(int device) {
  return runtime_call("cudaSetDevice", -1, [&] {
    if (!exists(device)) return cudaErrorInvalidDevice;
    if (const cudaError_t lost = error_if_lost(device); lost != cudaSuccess) return lost;
    set_current_device(device);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return runtime_call("cudaGetDevice", -1, [&] {
    if (!device) return cudaErrorInvalidValue;
    *device = current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return runtime_call("cudaDeviceCanAccessPeer", -1, [&] {
    if (!can) return cudaErrorInvalidValue;
    if (!exists(device) || !exists(peer)) return cudaErrorInvalidDevice;
    Lock lock;
    *can = device != peer && state().options.peers ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return runtime_call("cudaDeviceEnablePeerAccess", [&] { return enable_peer(peer, flags); });
}

cudaError_t cudaGetLastError() {
  const Entry entry = enter("cudaGetLastError", -1);
  if (entry.injected) return static_cast<cudaError_t>(entry.code);
  const cudaError_t broken = device_error(current_device());
  const cudaError_t error = broken != cudaSuccess ? broken : last_error();
  clear_last_error();
  return error;
}

cudaError_t cudaPeekAtLastError() {
  const Entry entry = enter("cudaPeekAtLastError", -1);
  if (entry.injected) return static_cast<cudaError_t>(entry.code);
  const cudaError_t broken = device_error(current_device());
  return broken != cudaSuccess ? broken : last_error();
}

const char* cudaGetErrorString(cudaError_t error) {
  enter("cudaGetErrorString", -1);
  for (const Named& named : kErrors) {
    if (named.error == error) return named.text;
  }
  return "unrecognized error code";
}

const char* cudaGetErrorName(cudaError_t error) {
  enter("cudaGetErrorName", -1);
  for (const Named& named : kErrors) {
    if (named.error == error) return named.name;
  }
  return "unrecognized error code";
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return runtime_call("cudaRuntimeGetVersion", -1, [&] {
    if (!version) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return runtime_call("cudaDriverGetVersion", -1, [&] {
    if (!version) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}
