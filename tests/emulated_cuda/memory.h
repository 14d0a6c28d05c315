// Memory of the devices and pinned memory of the host: where a pointer points, and whether a call may use it.
#pragma once

#include "tests/emulated_cuda/state.h"

#include <string>
#include <vector>

namespace gpipe::emulated {

/// The allocation that holds the address (a freed one too), or null: memory of the host. With Lock.
Allocation* find_allocation(const void* pointer);

/// What a call does with a range.
struct Range {
  std::string argument;
  const void* pointer;
  size_t bytes;
  size_t alignment = 1;
};

/// Why `device` may not use the range, or "". `bytes` 0 is always allowed. With Lock.
std::string fault_of(const Range& range, int device);

/// Reports each fault as "CALL: ...". With Lock. True when there is none.
bool check_ranges(const char* call, int device, const std::vector<Range>& ranges);

/// The first element that is exactly the pattern of memory nobody wrote, or -1. `element_bytes` 2, 4 or 8. Runs on a stream.
int64_t find_poison(const void* data, size_t count, size_t element_bytes);
/// Reports it, once a range: "CALL read memory nobody wrote: ARGUMENT at offset N".
void check_written(const char* call, const char* argument, const void* data, size_t count, size_t element_bytes);

/// Fills with the pattern. With Lock or on a stream.
void poison(void* data, size_t bytes);

/// Options::protect: device memory is closed when the host has waited and nothing runs, and opened by the next task. With Lock.
void use_memory();
void leave_memory();
void close_memory();

/// Gives all memory back. With Lock.
void release_all_memory();
/// Reports writes past the end of live allocations. With Lock.
void check_all_slack();

}  // namespace gpipe::emulated
