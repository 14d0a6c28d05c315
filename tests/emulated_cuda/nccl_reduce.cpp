// The arithmetic of all-reduce: rank 0 first, then each next rank, in the element's own type.
#include "tests/emulated_cuda/memory.h"
#include "tests/emulated_cuda/nccl_types.h"
#include "tests/emulated_cuda/numbers.h"

#include <algorithm>
#include <cstring>

namespace gpipe::emulated {

namespace {

template <class T>
T combine(T a, T b, ncclRedOp_t reduction) {
  switch (reduction) {
    case ncclProd: return static_cast<T>(a * b);
    case ncclMax: return std::max(a, b);
    case ncclMin: return std::min(a, b);
    default: return static_cast<T>(a + b);
  }
}

/// Elements of type T as they are in memory.
template <class T>
struct Plain {
  static T get(const void* data, size_t i) { return static_cast<const T*>(data)[i]; }
  static void put(void* data, size_t i, T value) { static_cast<T*>(data)[i] = value; }
};

/// 16-bit numbers, rounded after each step.
template <Number type>
struct Half {
  static float get(const void* data, size_t i) { return load(data, type, static_cast<int64_t>(i)); }
  static void put(void* data, size_t i, float value) { store(data, type, static_cast<int64_t>(i), value); }
};

template <class Access>
void reduce_as(const std::vector<OperationPtr>& operations) {
  const Operation& first = *operations.front();
  std::vector<std::byte> sum(first.count * bytes_of(first.type));
  for (size_t i = 0; i < first.count; ++i) Access::put(sum.data(), i, Access::get(first.from, i));
  for (size_t rank = 1; rank < operations.size(); ++rank) {
    for (size_t i = 0; i < first.count; ++i) {
      Access::put(sum.data(), i, combine(Access::get(sum.data(), i), Access::get(operations[rank]->from, i), first.reduction));
    }
  }
  if (first.reduction == ncclAvg) {
    using Value = decltype(Access::get(nullptr, 0));
    for (size_t i = 0; i < first.count; ++i) {
      Access::put(sum.data(), i, static_cast<Value>(Access::get(sum.data(), i) / static_cast<Value>(operations.size())));
    }
  }
  for (const OperationPtr& o : operations) {
    if (!sum.empty()) std::memcpy(o->to, sum.data(), sum.size());
  }
}

}  // namespace

bool reduce(const std::vector<OperationPtr>& operations) {
  const Operation& first = *operations.front();
  for (const OperationPtr& o : operations) {
    if (o->count == first.count && o->type == first.type && o->reduction == first.reduction) continue;
    report_unlocked("NCCL: rank " + std::to_string(first.rank) + " reduces " + std::to_string(first.count) + " " +
                    name_of(first.type) + ", but rank " + std::to_string(o->rank) + " " + std::to_string(o->count) + " " +
                    name_of(o->type) + ", or with another operation");
    return false;
  }
  switch (first.type) {
    case ncclFloat32: reduce_as<Plain<float>>(operations); break;
    case ncclFloat64: reduce_as<Plain<double>>(operations); break;
    case ncclInt32: reduce_as<Plain<int32_t>>(operations); break;
    case ncclInt64: reduce_as<Plain<int64_t>>(operations); break;
    case ncclUint32: reduce_as<Plain<uint32_t>>(operations); break;
    case ncclUint64: reduce_as<Plain<uint64_t>>(operations); break;
    case ncclFloat16: reduce_as<Half<Number::f16>>(operations); break;
    case ncclBfloat16: reduce_as<Half<Number::bf16>>(operations); break;
    default: break;  // refused by the call
  }
  return true;
}

}  // namespace gpipe::emulated
