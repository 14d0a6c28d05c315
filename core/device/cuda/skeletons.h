// The few forms that every kernel of ours has, and the only place that launches one.
//
//   each     f(i) for every element
//   rows     body(team, row): a *team* of threads works on a row, with sums in a fixed order
//   columns  sums down the columns of a matrix, in a fixed order
//
// "A fixed order" depends on the extents alone, never on the device, so two runs give the same bits. This file is compiled
// twice: by nvcc, and as plain C++ for the emulated devices of the tests, where the same order runs in one loop after the
// other. Both are compiled without contraction of a * b + c, so that the two (and the CPU's functors) agree bit for bit.
#pragma once

#include "core/device/cuda/queue.h"

#include <algorithm>
#include <cstdint>
#ifdef __CUDACC__
#define GPIPE_KERNEL __device__
#else
#define GPIPE_KERNEL
#include <functional>
/// Of the emulation: runs `body` in the order of the stream, on the stream's thread.
void gpipe_emulated_launch(cudaStream_t stream, const char* kernel, std::function<void()> body);
#endif

namespace gpipe::device::cuda {

/// Two sums at once.
struct Two {
  double first, second;
  GPIPE_KERNEL Two operator+(const Two& other) const { return {first + other.first, second + other.second}; }
};

constexpr int block_threads = 256;
constexpr int64_t most_blocks = 1 << 16;  // more elements than that: each thread walks on in strides of the whole grid

/// How many threads share a row; a function of its width alone, because the order of its sums follows from it.
constexpr int team_size(int64_t width) { return width <= 512 ? 32 : block_threads; }

/// Rows of a column sum are cut into chunks of `size`, each summed in eight lanes; then the chunks in their order.
struct Chunks {
  static constexpr int64_t lanes = 8, most = 256;
  int64_t size, count;
  static Chunks of(int64_t rows) {
    const int64_t wanted = std::max<int64_t>((rows + most - 1) / most, 64);
    const int64_t size = (wanted + lanes - 1) / lanes * lanes;
    return {size, (rows + size - 1) / size};
  }
};

#ifdef __CUDACC__

/// The threads of a warp or of a block. All of them run the body; what each() does not share out, all do alike.
template <int size>
class Team {
 public:
  static constexpr int slot = 16;  // bytes a thread, of shared memory
  __device__ Team(char* shared, int lane) : shared_(shared), lane_(lane) {}

  /// f(i) for i < width, shared among the threads: i always goes to the same one.
  template <class F>
  __device__ void each(int64_t width, const F& f) const {
    for (int64_t i = lane_; i < width; i += size) f(i);
  }
  /// By one thread.
  template <class F>
  __device__ void once(const F& f) const {
    if (lane_ == 0) f();
  }
  /// Combines f(0), ..., f(width - 1): thread by thread in strides, then the threads as a tree.
  template <class T, class F, class Combine>
  __device__ T reduce(int64_t width, T own, const F& f, const Combine& combine) const {
    static_assert(sizeof(T) <= slot);
    for (int64_t i = lane_; i < width; i += size) own = combine(own, f(i));
    T* values = reinterpret_cast<T*>(shared_);
    sync();
    values[lane_] = own;
    sync();
    for (int half = size / 2; half > 0; half /= 2) {
      if (lane_ < half) values[lane_] = combine(values[lane_], values[lane_ + half]);
      sync();
    }
    return values[0];
  }
  template <class T, class F>
  __device__ T sum(int64_t width, const F& f) const {
    return reduce(width, T{}, f, [](const T& a, const T& b) { return a + b; });
  }

 private:
  __device__ void sync() const {
    if constexpr (size == 32)
      __syncwarp();
    else
      __syncthreads();
  }
  char* shared_;
  int lane_;
};

template <class F>
__global__ void each_kernel(int64_t count, F f) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) f(i);
}

template <int size, class Body>
__global__ void rows_kernel(int64_t rows, Body body) {
  __shared__ __align__(16) char shared[block_threads * Team<size>::slot];
  constexpr int teams = block_threads / size;
  const int own = static_cast<int>(threadIdx.x) / size;
  Team<size> team(shared + own * size * Team<size>::slot, static_cast<int>(threadIdx.x) % size);
  const int64_t stride = int64_t{gridDim.x} * teams;
  for (int64_t row = int64_t{blockIdx.x} * teams + own; row < rows; row += stride) body(team, row);
}

template <class T, class F>
__global__ void columns_kernel(int64_t rows, int64_t columns, int64_t size, F f, T* parts) {
  __shared__ T sums[Chunks::lanes][32];
  const int64_t column = int64_t{blockIdx.x} * 32 + threadIdx.x, begin = int64_t{blockIdx.y} * size;
  const int64_t end = begin + size < rows ? begin + size : rows;
  T sum{};
  if (column < columns)
    for (int64_t row = begin + threadIdx.y; row < end; row += Chunks::lanes) sum = sum + f(row, column);
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  T total{};
  for (int lane = 0; lane < Chunks::lanes; ++lane) total = total + sums[lane][threadIdx.x];
  parts[int64_t{blockIdx.y} * columns + column] = total;
}

inline unsigned blocks_for(int64_t count, int64_t each_block) {
  return static_cast<unsigned>(std::min((count + each_block - 1) / each_block, most_blocks));
}

#else

/// The same team one thread after the other.
class Team {
 public:
  explicit Team(int size) : size_(size) {}

  template <class F>
  void each(int64_t width, const F& f) const {
    for (int64_t i = 0; i < width; ++i) f(i);
  }
  template <class F>
  void once(const F& f) const {
    f();
  }
  template <class T, class F, class Combine>
  T reduce(int64_t width, T start, const F& f, const Combine& combine) const {
    T values[block_threads];
    std::fill_n(values, size_, start);
    for (int64_t i = 0; i < width; ++i) values[i % size_] = combine(values[i % size_], f(i));
    for (int half = size_ / 2; half > 0; half /= 2)
      for (int lane = 0; lane < half; ++lane) values[lane] = combine(values[lane], values[lane + half]);
    return values[0];
  }
  template <class T, class F>
  T sum(int64_t width, const F& f) const {
    return reduce(width, T{}, f, [](const T& a, const T& b) { return a + b; });
  }

 private:
  int size_;
};

template <class T, class F>
void columns_loops(int64_t rows, int64_t columns, const Chunks& chunks, const F& f, T* parts) {
  for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
    const int64_t begin = chunk * chunks.size, end = std::min(begin + chunks.size, rows);
    for (int64_t column = 0; column < columns; ++column) {
      T sums[Chunks::lanes] = {};
      for (int64_t row = begin; row < end; ++row) {
        T& sum = sums[(row - begin) % Chunks::lanes];
        sum = sum + f(row, column);
      }
      T total{};
      for (const T& sum : sums) total = total + sum;
      parts[chunk * columns + column] = total;
    }
  }
}

#endif

/// f(i) for i < count. `name` is what an error calls the kernel. Divisions of i need no help: of operands below 2^32 nvcc's code
/// for 64 bits takes a branch that divides 32.
template <class F>
void each(const Queue& queue, const char* name, int64_t count, const F& f) {
  if (count == 0) return;
  queue.use();
#ifdef __CUDACC__
  each_kernel<<<blocks_for(count, block_threads), block_threads, 0, queue.stream>>>(count, f);
#else
  gpipe_emulated_launch(queue.stream, name, [=] {
    for (int64_t i = 0; i < count; ++i) f(i);
  });
#endif
  queue.launched(name);
}

/// body(team, row) for each row; `width` says how many elements a row has, for the team's size.
template <class Body>
void rows(const Queue& queue, const char* name, int64_t count, int64_t width, const Body& body) {
  if (count == 0) return;
  queue.use();
#ifdef __CUDACC__
  if (team_size(width) == 32)
    rows_kernel<32><<<blocks_for(count, block_threads / 32), block_threads, 0, queue.stream>>>(count, body);
  else
    rows_kernel<block_threads><<<blocks_for(count, 1), block_threads, 0, queue.stream>>>(count, body);
#else
  gpipe_emulated_launch(queue.stream, name, [=] {
    Team team(team_size(width));
    for (int64_t row = 0; row < count; ++row) body(team, row);
  });
#endif
  queue.launched(name);
}

/// What columns<T> wants at `workspace`.
template <class T>
size_t columns_bytes(int64_t rows, int64_t columns) {
  return (sizeof(T) * static_cast<size_t>(Chunks::of(rows).count * columns) + 255) / 256 * 256;
}

/// store(column, sum over the rows of f(row, column)); T is double or Two.
template <class T, class F, class Store>
void columns(const Queue& queue, const char* name, int64_t rows, int64_t columns, std::byte* workspace, const F& f,
             const Store& store) {
  if (columns == 0) return;
  const Chunks chunks = Chunks::of(rows);
  T* parts = reinterpret_cast<T*>(workspace);
  queue.use();
#ifdef __CUDACC__
  const dim3 grid(static_cast<unsigned>((columns + 31) / 32), static_cast<unsigned>(chunks.count));
  columns_kernel<<<grid, dim3(32, Chunks::lanes), 0, queue.stream>>>(rows, columns, chunks.size, f, parts);
#else
  gpipe_emulated_launch(queue.stream, name, [=] { columns_loops(rows, columns, chunks, f, parts); });
#endif
  queue.launched(name);
  const int64_t count = chunks.count;
  each(queue, name, columns, [=] GPIPE_KERNEL(int64_t column) {
    T sum{};
    for (int64_t chunk = 0; chunk < count; ++chunk) sum = sum + parts[chunk * columns + column];
    store(column, sum);
  });
}

}  // namespace gpipe::device::cuda
