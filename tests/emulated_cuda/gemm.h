// The arithmetic of matrix products, column-major as BLAS has it, and the checks that cuBLAS and cuBLASLt share.
#pragma once

#include "tests/emulated_cuda/memory.h"
#include "tests/emulated_cuda/numbers.h"

#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::emulated {

/// `batches` matrices of rows x cols elements in memory; element (i, j) of matrix b is at b * stride + j * ld + i, or at
/// j * ld + i of each[b] where there are such.
struct Matrix {
  const void* data = nullptr;
  Number type = Number::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;
  int64_t stride = 0;
  int64_t batches = 1;
  std::vector<const void*> each = {};
  size_t alignment = 1;  // that each wants beyond that of an element
  const std::byte* at(int64_t batch) const {
    if (!each.empty()) return static_cast<const std::byte*>(each[static_cast<size_t>(batch)]);
    return static_cast<const std::byte*>(data) + static_cast<size_t>(batch * stride) * bytes_of(type);
  }
  /// What it occupies, as "A", or "A[3]" of those in `each`.
  std::vector<Range> ranges(const std::string& argument) const;
};

/// d = activation(alpha op(a) op(b) + beta c + bias), sums in f32 in a fixed order.
struct Product {
  const char* call = "";
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  Matrix a, b, c, d;
  float alpha = 1;
  float beta = 0;  // 0: c is not read
  Rounding rounding = Rounding::none;
  int parts = 1;               // partial sums over k that are added at the end
  const void* bias = nullptr;  // one for each row of d
  Number bias_type = Number::f32;
  int64_t bias_stride = 0;
  bool relu = false;
  void* workspace = nullptr;  // scribbled on, so that two users of one at a time show
  size_t workspace_bytes = 0;
};

void multiply(const Product& product);

/// Reports what is wrong with the pointers of a product on `device`: true when nothing is. With Lock.
bool check_product(const Product& product, int device);
/// Pointers the product's task uses.
std::vector<const void*> touched_by(const Product& product);

/// Writes a pattern over at most 64 KiB of a workspace. Runs on a stream.
void scribble(void* workspace, size_t bytes);

}  // namespace gpipe::emulated
