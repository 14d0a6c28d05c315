// The arithmetic of matrix products, column-major as BLAS has it, and the checks that cuBLAS and cuBLASLt share.
#pragma once

#include "tests/emulated_cuda/memory.h"
#include "tests/emulated_cuda/numbers.h"

#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::emulated {

/// `batches` matrices of rows x cols elements in memory; element (i, j) of matrix b is at b * stride + j * ld + i.
struct Matrix {
  const void* data = nullptr;
  Number type = Number::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;
  int64_t stride = 0;
  int64_t batches = 1;
  /// Elements from the first of the first to the last of the last.
  int64_t span() const { return rows == 0 || cols == 0 ? 0 : stride * (batches - 1) + ld * (cols - 1) + rows; }
  Range range(const char* argument) const {
    return {argument, data, static_cast<size_t>(span()) * bytes_of(type), bytes_of(type)};
  }
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

/// "" or why two of the matrices of `out` share an element, or `out` one with `in`.
std::string overlap_of(const Matrix& out);
bool share_elements(const Matrix& out, const Matrix& in);

/// Reports what is wrong with the pointers of a product on `device`: true when nothing is. With Lock.
bool check_product(const Product& product, int device);
/// Pointers the product's task uses.
std::vector<const void*> touched_by(const Product& product);

/// Writes a pattern over at most 64 KiB of a workspace. Runs on a stream.
void scribble(void* workspace, size_t bytes);

}  // namespace gpipe::emulated
