// Copies and memsets.
//
// Pinned memory is read and written by the stream, when it comes to it. Pageable memory is not: what is copied from it is
// staged before the call returns, and a copy to it ends before the call returns.
#include "tests/emulated_cuda/memory.h"
#include "tests/emulated_cuda/stream.h"

#include <cstring>
#include <memory>

namespace gpipe::emulated {

namespace {

struct Copy {
  const char* call;
  std::byte* to;
  size_t to_pitch;
  const std::byte* from;
  size_t from_pitch;
  size_t width;
  size_t rows;
  cudaMemcpyKind kind;
  cudaStream_t stream;
  size_t span(size_t pitch) const { return pitch * (rows - 1) + width; }
};

void copy_rows(std::byte* to, size_t to_pitch, const std::byte* from, size_t from_pitch, size_t width, size_t rows) {
  if (width == to_pitch && width == from_pitch) {
    std::memcpy(to, from, width * rows);
    return;
  }
  for (size_t row = 0; row < rows; ++row) std::memcpy(to + row * to_pitch, from + row * from_pitch, width);
}

enum class Place { device, pinned, pageable, wrong };

/// Where a side of a copy lies, after checking it against what the kind says of it. With Lock.
Place place_of(const Copy& copy, const char* argument, const void* pointer, size_t bytes, bool wants_device, bool any,
               int device) {
  const std::string start = std::string(copy.call) + ": " + argument + " ";
  const Allocation* found = find_allocation(pointer);
  const bool on_device = found && found->device >= 0;
  if (!any && on_device != wants_device) {
    report(start + shown(pointer) + (wants_device ? " is memory of the host" : " is memory of a device") +
           ", the kind says otherwise");
    return Place::wrong;
  }
  if (!pointer) {
    report(start + "is null");
    return Place::wrong;
  }
  if (!found) return Place::pageable;
  const std::string fault = fault_of({argument, pointer, bytes}, on_device ? device : -1);
  if (!fault.empty()) {
    report(start + fault);
    return Place::wrong;
  }
  return on_device ? Place::device : Place::pinned;
}

bool overlap(const Copy& copy) {
  return copy.to < copy.from + copy.span(copy.from_pitch) && copy.from < copy.to + copy.span(copy.to_pitch);
}

/// From pageable memory: staged here. The task then copies from the staging memory.
void push_staged_upload(const Copy& copy, CUstream_st& stream) {
  auto staging = std::make_shared<std::vector<std::byte>>(copy.width * copy.rows);
  copy_rows(staging->data(), copy.width, copy.from, copy.from_pitch, copy.width, copy.rows);
  auto task = make_task(
      copy.call, [copy, staging] { copy_rows(copy.to, copy.to_pitch, staging->data(), copy.width, copy.width, copy.rows); });
  Lock lock;
  ++state().host_waits;
  push(stream, std::move(task), {copy.to});
}

/// To pageable memory, and between two places of the host: the host waits, and writes itself.
void download_and_wait(const Copy& copy, CUstream_st& stream, bool from_device) {
  if (!from_device) {
    wait_on_host(*mark(stream));
    copy_rows(copy.to, copy.to_pitch, copy.from, copy.from_pitch, copy.width, copy.rows);
    return;
  }
  auto staging = std::make_shared<std::vector<std::byte>>(copy.width * copy.rows);
  auto task = make_task(
      copy.call, [copy, staging] { copy_rows(staging->data(), copy.width, copy.from, copy.from_pitch, copy.width, copy.rows); });
  {
    Lock lock;
    push(stream, std::move(task), {copy.from});
  }
  wait_on_host(*mark(stream));
  copy_rows(copy.to, copy.to_pitch, staging->data(), copy.width, copy.width, copy.rows);
}

cudaError_t enqueue(const Copy& copy) {
  const auto kind = static_cast<unsigned>(copy.kind);
  if (kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (copy.width == 0 || copy.rows == 0) return cudaSuccess;
  const bool any = copy.kind == cudaMemcpyDefault;
  CUstream_st* stream = nullptr;
  Place to = Place::wrong;
  Place from = Place::wrong;
  {
    Lock lock;
    stream = find_stream(copy.call, copy.stream);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (copy.width > copy.to_pitch || copy.width > copy.from_pitch) {
      report(std::string(copy.call) + ": the width of a row is above a pitch");
      return cudaErrorInvalidPitchValue;
    }
    const bool to_device = copy.kind == cudaMemcpyHostToDevice || copy.kind == cudaMemcpyDeviceToDevice;
    const bool from_device = copy.kind == cudaMemcpyDeviceToHost || copy.kind == cudaMemcpyDeviceToDevice;
    to = place_of(copy, "dst", copy.to, copy.span(copy.to_pitch), to_device, any, stream->device);
    from = place_of(copy, "src", copy.from, copy.span(copy.from_pitch), from_device, any, stream->device);
    if (to == Place::wrong || from == Place::wrong) return cudaErrorInvalidValue;
    if (copy.rows == 1 && overlap(copy)) {
      report(std::string(copy.call) + ": dst and src overlap");
      return cudaErrorInvalidValue;
    }
  }
  if (from == Place::pageable && to == Place::device) {
    push_staged_upload(copy, *stream);
  } else if (from == Place::device ? to == Place::pageable : to != Place::device) {
    download_and_wait(copy, *stream, from == Place::device);
    return device_error(stream->device);
  } else {
    auto task =
        make_task(copy.call, [copy] { copy_rows(copy.to, copy.to_pitch, copy.from, copy.from_pitch, copy.width, copy.rows); });
    Lock lock;
    push(*stream, std::move(task), {copy.to, copy.from});
  }
  return cudaSuccess;
}

struct PeerSide {
  const char* argument;
  const void* pointer;
  int device;
};

/// Each side must lie on the device that is named for it; access of one to the other is not needed. With Lock.
bool check_peer_side(const PeerSide& side, size_t bytes) {
  if (side.device < 0 || static_cast<size_t>(side.device) >= state().devices.size()) {
    report(std::string("cudaMemcpyPeerAsync: there is no device ") + std::to_string(side.device) + " for " + side.argument);
    return false;
  }
  const std::string fault = fault_of({side.argument, side.pointer, bytes}, side.device);
  const Allocation* found = find_allocation(side.pointer);
  if (fault.empty() && found->device == side.device) return true;
  report(std::string("cudaMemcpyPeerAsync: ") + side.argument + " " +
         (fault.empty() ? "is memory of device " + std::to_string(found->device) + ", not of " + std::to_string(side.device)
                        : fault));
  return false;
}

cudaError_t set_memory(void* pointer, int value, size_t bytes, cudaStream_t to) {
  auto task = make_task("cudaMemsetAsync", [=] { std::memset(pointer, value, bytes); });
  Lock lock;
  CUstream_st* stream = find_stream("cudaMemsetAsync", to);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->device != current_device()) {
    report("cudaMemsetAsync: its stream is of device " + std::to_string(stream->device) + ", but the current device is " +
           std::to_string(current_device()));
    return cudaErrorInvalidResourceHandle;
  }
  if (!check_ranges("cudaMemsetAsync", stream->device, {{"devPtr", pointer, bytes}})) return cudaErrorInvalidValue;
  if (bytes != 0) push(*stream, std::move(task), {pointer});
  return cudaSuccess;
}

cudaError_t copy_peer(std::byte* to, const std::byte* from, size_t bytes, const PeerSide (&sides)[2], cudaStream_t on) {
  auto task = make_task("cudaMemcpyPeerAsync", [=] { std::memcpy(to, from, bytes); });
  Lock lock;
  CUstream_st* stream = find_stream("cudaMemcpyPeerAsync", on);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  for (const PeerSide& side : sides) {
    if (!check_peer_side(side, bytes)) return cudaErrorInvalidValue;
    if (state().devices[static_cast<size_t>(side.device)].sticky != cudaSuccess) {
      return state().devices[static_cast<size_t>(side.device)].sticky;
    }
  }
  push(*stream, std::move(task), {to, from});
  return cudaSuccess;
}

}  // namespace

}  // namespace gpipe::emulated

using namespace gpipe::emulated;

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return runtime_call("cudaMemcpyAsync", device_of(stream), [&] {
    return enqueue({"cudaMemcpyAsync", static_cast<std::byte*>(to), bytes, static_cast<const std::byte*>(from), bytes, bytes, 1,
                    kind, stream});
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return runtime_call("cudaMemcpy2DAsync", device_of(stream), [&] {
    return enqueue({"cudaMemcpy2DAsync", static_cast<std::byte*>(to), to_pitch, static_cast<const std::byte*>(from), from_pitch,
                    width, height, kind, stream});
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream) {
  return runtime_call("cudaMemcpyPeerAsync", device_of(stream), [&] {
    const PeerSide sides[2] = {{"dst", to, to_device}, {"src", from, from_device}};
    return copy_peer(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, sides, stream);
  });
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
  return runtime_call("cudaMemsetAsync", device_of(stream), [&] { return set_memory(pointer, value, bytes, stream); });
}
