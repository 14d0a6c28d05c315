#include "core/device/cpu/memory.h"

#include "core/base/error.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace gpipe::device::cpu {
namespace {

constexpr size_t huge_page = size_t{2} << 20;

class HostMemory final : public Memory {
 public:
  explicit HostMemory(size_t bytes) : bytes_(bytes) {
    const size_t alignment = bytes >= huge_page ? huge_page : 64;
    const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    const int64_t machine = memory_bytes();
    const bool too_much = machine > 0 && bytes > static_cast<size_t>(machine);  // the kernel would promise it, then kill us
    if (!too_much && rounded >= bytes) data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
    if (data_ == nullptr)
      throw base::MemoryError("cannot get {} bytes ({:.1f} MiB) of memory; the machine has {:.1f} MiB", bytes,
                              static_cast<double>(bytes) / 0x1p20, static_cast<double>(machine) / 0x1p20);
    if (bytes >= huge_page) madvise(data_, rounded, MADV_HUGEPAGE);
    std::memset(data_, 0, rounded);
  }
  ~HostMemory() override { std::free(data_); }

  std::byte* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

}  // namespace

int64_t memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? int64_t{pages} * page : 0;
}

std::unique_ptr<Memory> allocate(size_t bytes) { return std::make_unique<HostMemory>(bytes); }

}  // namespace gpipe::device::cpu
