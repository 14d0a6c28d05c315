#include "tests/emulated_cuda/memory.h"

#include "tests/emulated_cuda/stream.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace gpipe::emulated {

namespace {

constexpr size_t kAlignment = 256;  // of what cudaMalloc gives
constexpr size_t kKept = 2048;      // freed allocations whose addresses are not used again
constexpr size_t kGranule = 512;    // in which device memory is counted
constexpr std::byte kSlack{0xA5};   // between an allocation and the guard pages
constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t page() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Memory between two guard pages, its end close to the second. Null when the host has none left.
Allocation map(size_t bytes, int device) {
  Allocation made;
  made.bytes = bytes;
  made.device = device;
  const size_t room = round_up(round_up(bytes, kAlignment), page());
  made.mapped = room + 2 * page();
  made.mapping = mmap(nullptr, made.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made.mapping == MAP_FAILED) return {};
  auto* first = static_cast<std::byte*>(made.mapping) + page();
  if (mprotect(first, room, PROT_READ | PROT_WRITE) != 0) {
    munmap(made.mapping, made.mapped);
    return {};
  }
  made.base = first + room - round_up(bytes, kAlignment);
  std::fill(first, made.base, kSlack);
  std::fill(made.base + bytes, first + room, kSlack);
  poison(made.base, bytes);
  return made;
}

bool slack_intact(const Allocation& allocation) {
  const auto* first = static_cast<const std::byte*>(allocation.mapping) + page();
  const auto* end = static_cast<const std::byte*>(allocation.mapping) + allocation.mapped - page();
  const auto is_slack = [](std::byte b) { return b == kSlack; };
  return std::all_of(first, static_cast<const std::byte*>(allocation.base), is_slack) &&
         std::all_of(static_cast<const std::byte*>(allocation.base) + allocation.bytes, end, is_slack);
}

/// Device memory only: pinned memory is the host's too.
void protect(const Allocation& allocation, int rights) {
  if (allocation.device >= 0 && !allocation.freed) {
    mprotect(static_cast<std::byte*>(allocation.mapping) + page(), allocation.mapped - 2 * page(), rights);
  }
}

std::string described(const Allocation& allocation) {
  return std::to_string(allocation.bytes) + " bytes " +
         (allocation.device < 0 ? "of pinned memory" : "of device " + std::to_string(allocation.device)) + " at " +
         shown(allocation.base);
}

void check_slack(Allocation& allocation) {
  if (allocation.freed) return;
  use_memory();
  const bool intact = slack_intact(allocation);
  leave_memory();
  if (intact) return;
  report("something wrote past the end, or before the start, of the " + described(allocation));
  use_memory();
  auto* first = static_cast<std::byte*>(allocation.mapping) + page();
  std::fill(first, allocation.base, kSlack);
  std::fill(allocation.base + allocation.bytes, static_cast<std::byte*>(allocation.mapping) + allocation.mapped - page(), kSlack);
  leave_memory();
}

cudaError_t allocate(const char* call, void** pointer, size_t bytes, int device) {
  Lock lock;
  if (!pointer) {
    report(std::string(call) + ": the pointer to fill is null");
    return cudaErrorInvalidValue;
  }
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  const size_t counted = round_up(bytes, kGranule);
  if (device >= 0) {
    const Device& on = state().devices[static_cast<size_t>(device)];
    if (counted < bytes || counted > state().options.memory_bytes - on.used) return cudaErrorMemoryAllocation;
  }
  Allocation made = map(bytes, device);
  if (!made.base) return cudaErrorMemoryAllocation;
  if (device >= 0) state().devices[static_cast<size_t>(device)].used += counted;
  *pointer = made.base;
  if (state().memory_closed) protect(made, PROT_NONE);
  state().allocations[made.base] = std::move(made);
  return cudaSuccess;
}

/// Checks what is to be freed. With Lock.
Allocation* find_to_free(const char* call, void* pointer, bool pinned) {
  const std::string start = std::string(call) + ": the pointer " + shown(pointer) + " ";
  Allocation* found = find_allocation(pointer);
  if (!found || found->base != pointer) {
    report(start + (found ? "is inside the " + described(*found) : "was never allocated"));
    return nullptr;
  }
  if (found->freed) {
    report(start + "was freed already");
    return nullptr;
  }
  if ((found->device < 0) != pinned) {
    report(start + "is " + described(*found) + ": the other kind of memory");
    return nullptr;
  }
  const bool broken = found->device >= 0 && state().devices[static_cast<size_t>(found->device)].sticky != cudaSuccess;
  for (const auto& [stream, use] : found->uses) {
    if (broken) break;  // its work is dropped
    if (!passed(*stream, use.ticket)) report(start + "is still used by a stream: " + use.what);
  }
  return found;
}

cudaError_t give_back(const char* call, void* pointer, bool pinned) {
  if (!pointer) return cudaSuccess;
  int device = -1;
  {
    Lock lock;
    Allocation* found = find_to_free(call, pointer, pinned);
    if (!found) return cudaErrorInvalidValue;
    device = found->device;
  }
  if (const cudaError_t broken = device_error(device); broken != cudaSuccess) return broken;
  wait_for_device(pinned ? -1 : device);  // as the real ones do
  Lock lock;
  Allocation* found = find_allocation(pointer);
  check_slack(*found);
  found->freed = true;
  found->uses.clear();
  madvise(found->mapping, found->mapped, MADV_DONTNEED);
  mprotect(found->mapping, found->mapped, PROT_NONE);
  if (device >= 0) state().devices[static_cast<size_t>(device)].used -= round_up(found->bytes, kGranule);
  state().freed.push_back(found->base);
  if (state().freed.size() > kKept) {
    const auto oldest = state().allocations.find(state().freed.front());
    munmap(oldest->second.mapping, oldest->second.mapped);
    state().allocations.erase(oldest);
    state().freed.pop_front();
  }
  return cudaSuccess;
}

}  // namespace

Allocation* find_allocation(const void* pointer) {
  auto& all = state().allocations;
  auto* address = static_cast<std::byte*>(const_cast<void*>(pointer));
  auto after = all.upper_bound(address);
  if (after != all.begin()) {
    Allocation& before = std::prev(after)->second;
    if (address < static_cast<std::byte*>(before.mapping) + before.mapped) return &before;
  }
  if (after != all.end() && address >= static_cast<std::byte*>(after->second.mapping)) return &after->second;
  return nullptr;
}

std::string fault_of(const Range& range, int device) {
  if (range.bytes == 0) return "";
  if (!range.pointer) return "is null";
  const Allocation* found = find_allocation(range.pointer);
  if (!found) return shown(range.pointer) + " is memory of the host";
  if (found->freed) return shown(range.pointer) + " is freed: once " + described(*found);
  const auto* first = static_cast<const std::byte*>(range.pointer);
  if (first < found->base || first + range.bytes > found->base + found->bytes) {
    return "is " + std::to_string(range.bytes) + " bytes at offset " + std::to_string(first - found->base) + " of " +
           described(*found);
  }
  if (found->device < 0 && device >= 0) return shown(range.pointer) + " is pinned memory of the host";
  if (found->device >= 0 && found->device != device &&
      (device < 0 || !state().devices[static_cast<size_t>(device)].peers.contains(found->device))) {
    return shown(range.pointer) + " is memory of device " + std::to_string(found->device) + ", which device " +
           std::to_string(device) + " has no access to";
  }
  if (reinterpret_cast<uintptr_t>(range.pointer) % range.alignment != 0) {
    return shown(range.pointer) + " is not aligned to " + std::to_string(range.alignment) + " bytes";
  }
  return "";
}

bool check_ranges(const char* call, int device, const std::vector<Range>& ranges) {
  bool good = true;
  for (const Range& range : ranges) {
    const std::string fault = fault_of(range, device);
    if (fault.empty()) continue;
    report(std::string(call) + ": " + range.argument + " " + fault);
    good = false;
  }
  return good;
}

namespace {

/// Not seen by ThreadSanitizer: whoever asks reads the data anyway.
template <class Word>
__attribute__((no_sanitize("thread"))) int64_t find_word(const Word* data, size_t count, Word wanted) {
  bool any = false;
  for (size_t i = 0; i < count; ++i) any |= data[i] == wanted;
  if (!any) return -1;
  for (size_t i = 0; i < count; ++i) {
    if (data[i] == wanted) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace

int64_t find_poison(const void* data, size_t count, size_t element_bytes) {
  if (element_bytes == 1) return -1;  // a byte is no pattern
  if (element_bytes == 2) return find_word(static_cast<const uint16_t*>(data), count, kPoison16);
  if (element_bytes == 4) return find_word(static_cast<const uint32_t*>(data), count, kPoison32);
  return find_word(static_cast<const uint64_t*>(data), count, uint64_t{kPoison32} << 32 | kPoison32);
}

void check_written(const char* call, const char* argument, const void* data, size_t count, size_t element_bytes) {
  const int64_t at = find_poison(data, count, element_bytes);
  if (at < 0) return;
  Lock lock;
  const auto* address = static_cast<const std::byte*>(data) + static_cast<size_t>(at) * element_bytes;
  const Allocation* found = find_allocation(address);
  report(std::string(call) + " read memory nobody wrote: " + argument + " at element " + std::to_string(at) +
         (found ? ", offset " + std::to_string(address - found->base) + " of " + described(*found) : ""));
}

void poison(void* data, size_t bytes) {
  auto* first = static_cast<std::byte*>(data);
  const size_t words = bytes / sizeof kPoison32;
  std::fill_n(static_cast<uint32_t*>(data), words, kPoison32);
  std::memcpy(first + words * sizeof kPoison32, &kPoison32, bytes % sizeof kPoison32);
}

void use_memory() {
  ++state().memory_users;
  if (!state().memory_closed) return;
  state().memory_closed = false;
  for (const auto& [base, allocation] : state().allocations) protect(allocation, PROT_READ | PROT_WRITE);
}

void leave_memory() { --state().memory_users; }

void close_memory() {
  if (!state().options.protect || state().memory_closed || state().memory_users > 0) return;
  state().memory_closed = true;
  for (const auto& [base, allocation] : state().allocations) protect(allocation, PROT_NONE);
}

void release_all_memory() {
  for (auto& [base, allocation] : state().allocations) munmap(allocation.mapping, allocation.mapped);
  state().allocations.clear();
  state().freed.clear();
  state().memory_closed = false;
}

void check_all_slack() {
  for (auto& [base, allocation] : state().allocations) check_slack(allocation);
}

size_t allocation_granule() { return kGranule; }

}  // namespace gpipe::emulated

using namespace gpipe::emulated;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return runtime_call("cudaMalloc", [&] { return allocate("cudaMalloc", pointer, bytes, current_device()); });
}

cudaError_t cudaFree(void* pointer) {
  return runtime_call("cudaFree", [&] { return give_back("cudaFree", pointer, false); });
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return runtime_call("cudaMallocHost", [&] { return allocate("cudaMallocHost", pointer, bytes, -1); });
}

cudaError_t cudaFreeHost(void* pointer) {
  return runtime_call("cudaFreeHost", [&] { return give_back("cudaFreeHost", pointer, true); });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return runtime_call("cudaMemGetInfo", [&] {
    if (!free || !total) return cudaErrorInvalidValue;
    Lock lock;
    *total = state().options.memory_bytes;
    *free = *total - state().devices[static_cast<size_t>(current_device())].used;
    return cudaSuccess;
  });
}
