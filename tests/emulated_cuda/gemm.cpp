#include "tests/emulated_cuda/gemm.h"

#include <algorithm>
#include <cstring>

namespace gpipe::emulated {

namespace {

/// acc[0..m) += column * factor. The inner loop, not seen by ThreadSanitizer: all of it is the calling task's own.
__attribute__((no_sanitize("thread"))) void add_scaled(float* acc, const float* column, float factor, int64_t m) {
  for (int64_t i = 0; i < m; ++i) acc[i] += column[i] * factor;
}

/// op(matrix b of x), rows x cols, column-major without gaps.
std::vector<float> pack(const Matrix& x, int64_t batch, bool transpose, Rounding rounding) {
  std::vector<float> packed(static_cast<size_t>(x.rows * x.cols));
  for (int64_t j = 0; j < x.cols; ++j) {
    for (int64_t i = 0; i < x.rows; ++i) {
      const float value = rounded(load(x.at(batch), x.type, j * x.ld + i), rounding);
      packed[static_cast<size_t>(transpose ? i * x.cols + j : j * x.rows + i)] = value;
    }
  }
  return packed;
}

void check_input(const char* call, const char* argument, const Matrix& x) {
  const size_t size = bytes_of(x.type);
  for (int64_t batch = 0; batch < x.batches; ++batch) {
    for (int64_t j = 0; j < x.cols; ++j) {
      const std::byte* column = x.at(batch) + static_cast<size_t>(j * x.ld) * size;
      if (find_poison(column, static_cast<size_t>(x.rows), size) < 0) continue;
      check_written(call, argument, column, static_cast<size_t>(x.rows), size);
      return;
    }
  }
}

void finish_column(const Product& p, int64_t batch, int64_t j, const float* sums) {
  for (int64_t i = 0; i < p.m; ++i) {
    float value = p.alpha * sums[i];
    if (p.beta != 0) value += p.beta * load(p.c.at(batch), p.c.type, j * p.c.ld + i);
    if (p.bias) value += load(p.bias, p.bias_type, batch * p.bias_stride + i);
    if (p.relu) value = value > 0 ? value : value != value ? value : 0.0f;
    store(const_cast<std::byte*>(p.d.at(batch)), p.d.type, j * p.d.ld + i, value);
  }
}

void multiply_one(const Product& p, int64_t batch) {
  const bool reads = p.alpha != 0 && p.k > 0;
  const std::vector<float> a = reads ? pack(p.a, batch, p.transpose_a, p.rounding) : std::vector<float>();
  const std::vector<float> b = reads ? pack(p.b, batch, p.transpose_b, p.rounding) : std::vector<float>();
  std::vector<float> sums(static_cast<size_t>(p.m));
  std::vector<float> part(static_cast<size_t>(p.m));
  for (int64_t j = 0; j < p.n; ++j) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t s = 0; reads && s < p.parts; ++s) {
      std::fill(part.begin(), part.end(), 0.0f);
      for (int64_t at = p.k * s / p.parts; at < p.k * (s + 1) / p.parts; ++at) {
        add_scaled(part.data(), a.data() + at * p.m, b[static_cast<size_t>(j * p.k + at)], p.m);
      }
      add_scaled(sums.data(), part.data(), 1.0f, p.m);
    }
    finish_column(p, batch, j, sums.data());
  }
}

using Stretch = std::pair<uintptr_t, uintptr_t>;  // addresses [first, end)

/// The columns of all matrices, in order.
std::vector<Stretch> columns_of(const Matrix& x) {
  std::vector<Stretch> found;
  const size_t size = bytes_of(x.type);
  for (int64_t batch = 0; batch < x.batches; ++batch) {
    for (int64_t j = 0; j < x.cols; ++j) {
      const uintptr_t first = reinterpret_cast<uintptr_t>(x.at(batch)) + static_cast<uintptr_t>(j * x.ld) * size;
      found.emplace_back(first, first + static_cast<uintptr_t>(x.rows) * size);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// From the first element to behind the last of all matrices.
Stretch bounds_of(const Matrix& x) {
  Stretch bounds{UINTPTR_MAX, 0};
  if (x.rows == 0 || x.cols == 0) return bounds;
  for (int64_t batch = 0; batch < x.batches; ++batch) {
    const auto first = reinterpret_cast<uintptr_t>(x.at(batch));
    bounds.first = std::min(bounds.first, first);
    bounds.second = std::max(bounds.second, first + static_cast<uintptr_t>(x.ld * (x.cols - 1) + x.rows) * bytes_of(x.type));
  }
  return bounds;
}

/// "" or why two of the matrices of `out` share an element.
std::string overlap_of(const Matrix& out) {
  if (out.rows == 0 || out.cols == 0) return "";
  if (out.batches == 1) return "";  // ld >= rows is checked before
  if (out.each.empty() && out.stride >= out.ld * (out.cols - 1) + out.rows) return "";
  const auto columns = columns_of(out);
  for (size_t i = 1; i < columns.size(); ++i) {
    if (columns[i].first < columns[i - 1].second) return "has matrices that overlap";
  }
  return "";
}

bool share_elements(const Matrix& out, const Matrix& in) {
  const Stretch o = bounds_of(out), i = bounds_of(in);
  if (o.second <= i.first || i.second <= o.first) return false;
  const auto outs = columns_of(out);
  const auto ins = columns_of(in);
  for (size_t a = 0, b = 0; a < outs.size() && b < ins.size();) {
    if (outs[a].first < ins[b].second && ins[b].first < outs[a].second) return true;
    (outs[a].second <= ins[b].second ? a : b) += 1;
  }
  return false;
}

}  // namespace

std::vector<Range> Matrix::ranges(const std::string& argument) const {
  if (rows == 0 || cols == 0) return {};
  const size_t size = bytes_of(type), wanted = std::max(size, alignment);
  const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements + ld * (cols - 1) + rows) * size; };
  if (each.empty()) return {{argument, data, bytes(stride * (batches - 1)), wanted}};
  std::vector<Range> found;
  for (size_t i = 0; i < each.size(); ++i) found.push_back({argument + "[" + std::to_string(i) + "]", each[i], bytes(0), wanted});
  return found;
}

void multiply(const Product& p) {
  if (p.alpha != 0 && p.k > 0) {
    check_input(p.call, "A", p.a);
    check_input(p.call, "B", p.b);
  }
  if (p.beta != 0) check_input(p.call, "C", p.c);
  if (p.bias) check_input(p.call, "the bias", {p.bias, p.bias_type, p.m, 1, p.m, p.bias_stride, p.bias_stride ? p.d.batches : 1});
  scribble(p.workspace, p.workspace_bytes);
  for (int64_t batch = 0; batch < p.d.batches; ++batch) multiply_one(p, batch);
}

bool check_product(const Product& p, int device) {
  std::vector<Range> ranges;
  const auto add = [&](const char* argument, const Matrix& x) {
    for (Range& range : x.ranges(argument)) ranges.push_back(std::move(range));
  };
  add(p.c.data == p.d.data ? "C" : "D", p.d);
  if (p.alpha != 0 && p.k > 0) {
    add("A", p.a);
    add("B", p.b);
  }
  if (p.beta != 0 && p.c.data != p.d.data) add("C", p.c);
  if (p.bias) {
    const int64_t count = p.bias_stride * (p.d.batches - 1) + p.m;
    ranges.push_back({"the bias", p.bias, static_cast<size_t>(count) * bytes_of(p.bias_type), bytes_of(p.bias_type)});
  }
  if (p.workspace) ranges.push_back({"the workspace", p.workspace, p.workspace_bytes, 16});
  if (!check_ranges(p.call, device, ranges)) return false;
  std::string fault = overlap_of(p.d);
  if (fault.empty() && p.alpha != 0 && p.k > 0) {
    if (share_elements(p.d, p.a)) fault = "shares elements with A";
    if (share_elements(p.d, p.b)) fault = "shares elements with B";
  }
  if (!fault.empty()) report(std::string(p.call) + ": the output " + fault);
  return fault.empty();
}

std::vector<const void*> touched_by(const Product& p) {
  std::vector<const void*> touched = {p.d.data};
  if (p.alpha != 0 && p.k > 0) touched.insert(touched.end(), {p.a.data, p.b.data});
  if (p.beta != 0) touched.push_back(p.c.data);
  if (p.bias) touched.push_back(p.bias);
  if (p.workspace) touched.push_back(p.workspace);
  return touched;
}

void scribble(void* workspace, size_t bytes) {
  if (workspace) std::memset(workspace, 0x5A, std::min<size_t>(bytes, size_t{64} << 10));
}

}  // namespace gpipe::emulated
