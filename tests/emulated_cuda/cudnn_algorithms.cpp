#include "tests/emulated_cuda/cudnn_algorithms.h"

#include <algorithm>
#include <atomic>

namespace gpipe::emulated {

namespace {

/// How an algorithm works: what it can do follows from this.
enum class Method { implicit, precomputed, atomic, partial_sums, gemm, fft, fft_tiling, winograd, winograd_nonfused, absent };

struct Algorithm {
  Method method;
  bool nhwc;  // layouts NHWC and KRSC too
  bool is_deterministic;
  bool dilates;
  SumOrder order;
  float cost;             // time, relative, as cuDNN would guess it
  float measured = cost;  // and as it is
};

const std::vector<Algorithm>& algorithms_of(Direction direction) {
  using enum Method;
  static const std::vector<Algorithm> forward = {
      {implicit, true, true, true, SumOrder::channel_first, 1.3f, 1.0f},
      {precomputed, true, true, true, SumOrder::filter_first, 1.0f},
      {gemm, false, true, false, SumOrder::channel_first, 1.5f},
      {absent, false, true, false, SumOrder::filter_first, 0},
      {fft, false, true, false, SumOrder::backwards, 2.0f},
      {fft_tiling, false, true, false, SumOrder::backwards, 1.7f},
      {winograd, false, true, false, SumOrder::backwards, 0.9f},
      {winograd_nonfused, false, true, false, SumOrder::backwards, 0.95f},
  };
  static const std::vector<Algorithm> backward_data = {
      {atomic, true, false, true, SumOrder::random, 0.9f},
      {precomputed, true, true, true, SumOrder::filter_first, 1.0f},
      {fft, false, true, false, SumOrder::backwards, 2.0f},
      {fft_tiling, false, true, false, SumOrder::backwards, 1.7f},
      {winograd, false, true, false, SumOrder::channel_first, 0.9f},
      {winograd_nonfused, false, true, false, SumOrder::channel_first, 0.95f},
  };
  static const std::vector<Algorithm> backward_filter = {
      {atomic, true, false, true, SumOrder::random, 0.9f},
      {partial_sums, true, true, true, SumOrder::filter_first, 1.0f},
      {fft, false, true, false, SumOrder::backwards, 2.0f},
      {precomputed, false, false, false, SumOrder::random, 0.85f},
      {absent, false, true, false, SumOrder::filter_first, 0},
      {winograd_nonfused, false, true, false, SumOrder::backwards, 0.95f},
      {fft_tiling, false, true, false, SumOrder::backwards, 1.7f},
  };
  switch (direction) {
    case Direction::forward: return forward;
    case Direction::backward_data: return backward_data;
    case Direction::backward_filter: break;
  }
  return backward_filter;
}

bool is_fft(Method method) { return method == Method::fft || method == Method::fft_tiling; }
bool is_winograd(Method method) { return method == Method::winograd || method == Method::winograd_nonfused; }

std::string unsupported_transform(const ConvolutionProblem& p, Method method) {
  const cudnnConvolutionStruct& conv = p.convolution;
  if (conv.stride_h != 1 || conv.stride_w != 1) return "this algorithm wants strides of 1";
  if (p.x.type == CUDNN_DATA_BFLOAT16) return "this algorithm has no bf16";
  if (is_fft(method)) {
    if (p.filter.h <= conv.pad_h || p.filter.w <= conv.pad_w) return "FFT wants a filter larger than the padding";
    if (method == Method::fft_tiling && (p.filter.h > 32 || p.filter.w > 32)) return "FFT_TILING wants a filter of at most 32";
    if (method == Method::fft && (p.x.h + 2 * conv.pad_h > 256 || p.x.w + 2 * conv.pad_w > 256))
      return "FFT wants at most 256 rows";
    return "";
  }
  const bool three = p.filter.h == 3 && p.filter.w == 3;
  const bool five = p.filter.h == 5 && p.filter.w == 5 && method == Method::winograd_nonfused;
  return three || five ? "" : "Winograd wants a 3 x 3 filter (not fused: or 5 x 5)";
}

}  // namespace

int output_size(int size, int pad, int filter, int dilation, int stride) {
  const int covered = (filter - 1) * dilation + 1;
  return size + 2 * pad < covered ? 0 : 1 + (size + 2 * pad - covered) / stride;
}

cudnnStatus_t check_problem(const ConvolutionProblem& p) {
  const cudnnConvolutionStruct& conv = p.convolution;
  const auto bad = [&](const std::string& why) { return refuse(p.call, CUDNN_STATUS_BAD_PARAM, why); };
  if (p.x.c != p.filter.c * conv.groups) {
    return bad("x has " + std::to_string(p.x.c) + " channels, the filter " + std::to_string(p.filter.c) + " in " +
               std::to_string(conv.groups) + " groups");
  }
  if (p.filter.k % conv.groups != 0) return bad("the groups do not divide the number of filters");
  const int rows = output_size(p.x.h, conv.pad_h, p.filter.h, conv.dilation_h, conv.stride_h);
  const int columns = output_size(p.x.w, conv.pad_w, p.filter.w, conv.dilation_w, conv.stride_w);
  if (rows <= 0 || columns <= 0) return bad("the filter is larger than the padded image");
  if (p.y.n != p.x.n || p.y.c != p.filter.k || p.y.h != rows || p.y.w != columns) {
    return bad("y is " + std::to_string(p.y.n) + "x" + std::to_string(p.y.c) + "x" + std::to_string(p.y.h) + "x" +
               std::to_string(p.y.w) + ", but the convolution gives " + std::to_string(p.x.n) + "x" + std::to_string(p.filter.k) +
               "x" + std::to_string(rows) + "x" + std::to_string(columns));
  }
  if (p.x.type != p.filter.type || p.x.type != p.y.type) {
    return refuse(p.call, CUDNN_STATUS_NOT_SUPPORTED, "the types of x, filter and y differ");
  }
  if (p.x.format != p.filter.format || p.x.format != p.y.format) {
    return refuse(p.call, CUDNN_STATUS_NOT_SUPPORTED, "the layouts of x, filter and y differ");
  }
  return CUDNN_STATUS_SUCCESS;
}

ConvolutionShape shape_of(const ConvolutionProblem& p) {
  const cudnnConvolutionStruct& conv = p.convolution;
  ConvolutionShape z;
  z.n = p.x.n;
  z.c = p.x.c;
  z.h = p.x.h;
  z.w = p.x.w;
  z.k = p.filter.k;
  z.r = p.filter.h;
  z.s = p.filter.w;
  z.oh = p.y.h;
  z.ow = p.y.w;
  z.pad_h = conv.pad_h;
  z.pad_w = conv.pad_w;
  z.stride_h = conv.stride_h;
  z.stride_w = conv.stride_w;
  z.dilation_h = conv.dilation_h;
  z.dilation_w = conv.dilation_w;
  z.groups = conv.groups;
  z.flipped = conv.mode == CUDNN_CONVOLUTION;
  z.nhwc = p.x.format == CUDNN_TENSOR_NHWC;
  z.type = p.x.type == CUDNN_DATA_FLOAT ? Number::f32 : p.x.type == CUDNN_DATA_BFLOAT16 ? Number::bf16 : Number::f16;
  return z;
}

std::string unsupported(const ConvolutionProblem& p, int algorithm) {
  const Algorithm& a = algorithms_of(p.direction)[static_cast<size_t>(algorithm)];
  const cudnnConvolutionStruct& conv = p.convolution;
  if (a.method == Method::absent) return "cuDNN has a number for this algorithm and no kernel";
  if (p.x.format == CUDNN_TENSOR_NHWC && !a.nhwc) return "this algorithm wants NCHW";
  if (!a.dilates && (conv.dilation_h != 1 || conv.dilation_w != 1)) return "this algorithm wants dilations of 1";
  return is_fft(a.method) || is_winograd(a.method) ? unsupported_transform(p, a.method) : "";
}

int algorithm_count(Direction direction) { return static_cast<int>(algorithms_of(direction).size()); }

size_t workspace_of(const ConvolutionProblem& p, int algorithm) {
  const Method method = algorithms_of(p.direction)[static_cast<size_t>(algorithm)].method;
  const auto x = static_cast<size_t>(p.x.elements());
  const auto y = static_cast<size_t>(p.y.elements());
  const auto filter = static_cast<size_t>(p.filter.elements());
  switch (method) {
    case Method::precomputed: return 256 + 4 * static_cast<size_t>(p.filter.h) * p.filter.w * p.filter.c;  // offsets
    case Method::partial_sums: return 4 * filter * std::min<size_t>(8, static_cast<size_t>(p.x.n)) + 512;
    case Method::gemm: return 4 * static_cast<size_t>(p.x.c) * p.filter.h * p.filter.w * p.y.h * p.y.w;  // im2col
    case Method::fft:
    case Method::fft_tiling: return 8 * 2 * (x + y + filter);
    case Method::winograd_nonfused: return 4 * 36 * (x + y) / 16 + 4 * 4 * filter;
    default: return 0;
  }
}

bool deterministic(Direction direction, int algorithm) {
  return algorithms_of(direction)[static_cast<size_t>(algorithm)].is_deterministic;
}

SumOrder order_of(Direction direction, int algorithm) { return algorithms_of(direction)[static_cast<size_t>(algorithm)].order; }

Rounding rounding_of(const ConvolutionProblem& p) {
  if (p.x.type != CUDNN_DATA_FLOAT) return Rounding::none;
  switch (p.convolution.math) {
    case CUDNN_FMA_MATH: return Rounding::none;
    case CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION: return Rounding::f16;
    default: return Rounding::tf32;  // documented for GPUs from the A100 on, also of CUDNN_DEFAULT_MATH
  }
}

std::vector<AlgorithmEntry> list_algorithms(const ConvolutionProblem& p, bool measured, size_t limit) {
  static std::atomic<uint64_t> measurements{0};
  const uint64_t measurement = measurements.fetch_add(1, std::memory_order_relaxed);
  const double products = static_cast<double>(p.y.elements()) * p.filter.c * p.filter.h * p.filter.w;
  std::vector<AlgorithmEntry> entries;
  for (int i = 0; i < algorithm_count(p.direction); ++i) {
    AlgorithmEntry entry{i, CUDNN_STATUS_SUCCESS, -1, 0, deterministic(p.direction, i)};
    if (unsupported(p, i).empty()) {
      entry.workspace = workspace_of(p, i);
      const double noise = measured ? 0.8 + 0.4 * uniform(state().options.seed, measurement, static_cast<uint64_t>(i)) : 1.0;
      const Algorithm& algorithm = algorithms_of(p.direction)[static_cast<size_t>(i)];
      entry.time_ms = static_cast<float>((0.01 + products / 1e10) * (measured ? algorithm.measured : algorithm.cost) * noise);
      if (measured && entry.workspace > limit) entry.status = CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    } else {
      entry.status = CUDNN_STATUS_NOT_SUPPORTED;
    }
    entries.push_back(entry);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const AlgorithmEntry& a, const AlgorithmEntry& b) {
    const bool a_runs = a.status == CUDNN_STATUS_SUCCESS;
    const bool b_runs = b.status == CUDNN_STATUS_SUCCESS;
    return a_runs != b_runs ? a_runs : a_runs && a.time_ms < b.time_ms;
  });
  for (AlgorithmEntry& entry : entries) {
    if (!measured || entry.status != CUDNN_STATUS_SUCCESS) entry.time_ms = -1;
  }
  return entries;
}

}  // namespace gpipe::emulated
