// The loops of all kernels that oneDNN lacks: each element, each row, each block of a fixed size.
//
// One thread: a plain loop, no OpenMP region. More: contiguous static parts. Bodies may depend on the index only, never
// on the thread, so that the number of threads changes no bit.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <omp.h>

namespace gpipe::device::cpu {

/// Below this many elements a team costs more than it saves.
constexpr int64_t parallel_grain = 4096;

/// Calls body(begin, end) for consecutive parts of [0, count); `work` is the number of elements touched in all.
template <class Body>
void each_part(int threads, int64_t count, int64_t work, const Body& body) {
  if (threads == 1 || count < 2 || work < parallel_grain) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  const int parts = static_cast<int>(std::min<int64_t>(threads, count));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int part = 0; part < parts; ++part) body(count * part / parts, count * (part + 1) / parts);
}

/// out[i] = f(a[i]); out may be a.
template <class F>
void each_element(int threads, int64_t count, const float* a, float* out, const F& f) {
  each_part(threads, count, count, [=](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) out[i] = f(a[i]);
  });
}

/// out[i] = f(a[i], b[i]); out may be a or b.
template <class F>
void each_element(int threads, int64_t count, const float* a, const float* b, float* out, const F& f) {
  each_part(threads, count, count, [=](int64_t begin, int64_t end) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) out[i] = f(a[i], b[i]);
  });
}

/// body(row) for each of `rows` rows of `width` elements.
template <class Body>
void each_row(int threads, int64_t rows, int64_t width, const Body& body) {
  each_part(threads, rows, rows * width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

/// Sum over i of f(i) in double: 64 parts whose bounds depend on `count` alone, 8 lanes in each, added in one order.
template <class F>
double fixed_order_sum(int threads, int64_t count, const F& f) {
  constexpr int64_t parts = 64, width = 8;
  std::array<double, parts> sums{};
  each_part(threads, parts, count, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      const int64_t begin = count * part / parts, end = count * (part + 1) / parts;
      std::array<double, width> lane{};
      int64_t i = begin;
      for (; i + width <= end; i += width)
        for (int64_t j = 0; j < width; ++j) lane[static_cast<size_t>(j)] += f(i + j);
      for (int64_t j = 0; i < end; ++i, ++j) lane[static_cast<size_t>(j)] += f(i);
      double sum = 0;
      for (double x : lane) sum += x;
      sums[static_cast<size_t>(part)] = sum;
    }
  });
  double sum = 0;
  for (double x : sums) sum += x;
  return sum;
}

}  // namespace gpipe::device::cpu
