// cuDNN's convolutions against plain sums in double, and what they refuse.
#include "tests/emulated_cuda/numbers.h"
#include "tests/emulated_cuda/test_support.h"

#include <cudnn.h>
#include <set>

namespace gpipe::emulated {
namespace {

struct Case {
  int n, c, h, w, k, r, s;
  int pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, groups = 1;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NHWC;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_FMA_MATH;
};

/// Handle and descriptors of one case.
struct Convolution {
  Case z;
  int oh = 0, ow = 0;
  Stream stream;
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x = nullptr, y = nullptr;
  cudnnFilterDescriptor_t filter = nullptr;
  cudnnConvolutionDescriptor_t conv = nullptr;

  explicit Convolution(const Case& of) : z(of) {
    REQUIRE(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnSetStream(handle, stream) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnCreateTensorDescriptor(&x) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnCreateTensorDescriptor(&y) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnCreateFilterDescriptor(&filter) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnCreateConvolutionDescriptor(&conv) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnSetTensor4dDescriptor(x, z.format, z.type, z.n, z.c, z.h, z.w) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnSetFilter4dDescriptor(filter, z.type, z.format, z.k, z.c / z.groups, z.r, z.s) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnSetConvolution2dDescriptor(conv, z.pad_h, z.pad_w, z.stride_h, z.stride_w, z.dilation_h, z.dilation_w, z.mode,
                                            CUDNN_DATA_FLOAT) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnSetConvolutionMathType(conv, z.math) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnSetConvolutionGroupCount(conv, z.groups) == CUDNN_STATUS_SUCCESS);
    int n = 0, c = 0;
    REQUIRE(cudnnGetConvolution2dForwardOutputDim(conv, x, filter, &n, &c, &oh, &ow) == CUDNN_STATUS_SUCCESS);
    CHECK(n == z.n);
    CHECK(c == z.k);
    REQUIRE(cudnnSetTensor4dDescriptor(y, z.format, z.type, n, c, oh, ow) == CUDNN_STATUS_SUCCESS);
  }
  ~Convolution() {
    CHECK(cudnnDestroyConvolutionDescriptor(conv) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnnDestroyFilterDescriptor(filter) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnnDestroyTensorDescriptor(y) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnnDestroyTensorDescriptor(x) == CUDNN_STATUS_SUCCESS);
    CHECK(cudnnDestroy(handle) == CUDNN_STATUS_SUCCESS);
  }
  size_t x_count() const { return static_cast<size_t>(z.n) * z.c * z.h * z.w; }
  size_t y_count() const { return static_cast<size_t>(z.n) * z.k * oh * ow; }
  size_t filter_count() const { return static_cast<size_t>(z.k) * (z.c / z.groups) * z.r * z.s; }

  /// Where element (a, b, i, j) of a tensor of b_size, rows, columns is.
  size_t at(int a, int b, int i, int j, int b_size, int rows, int columns) const {
    return static_cast<size_t>(z.format == CUDNN_TENSOR_NHWC ? ((a * rows + i) * columns + j) * b_size + b
                                                             : ((a * b_size + b) * rows + i) * columns + j);
  }

  /// Calls body(index in x, in filter, in y) for each product of the convolution: plain loops over the definition.
  template <class Body>
  void each_product(Body&& body) const {
    const int cg = z.c / z.groups;
    for (int n = 0; n < z.n; ++n)
      for (int k = 0; k < z.k; ++k)
        for (int i = 0; i < oh; ++i)
          for (int j = 0; j < ow; ++j)
            for (int c = 0; c < cg; ++c)
              for (int r = 0; r < z.r; ++r)
                for (int s = 0; s < z.s; ++s) {
                  const int row = i * z.stride_h - z.pad_h + r * z.dilation_h;
                  const int column = j * z.stride_w - z.pad_w + s * z.dilation_w;
                  if (row < 0 || row >= z.h || column < 0 || column >= z.w) continue;
                  const bool mirrored = z.mode == CUDNN_CONVOLUTION;
                  body(at(n, k / (z.k / z.groups) * cg + c, row, column, z.c, z.h, z.w),
                       at(k, c, mirrored ? z.r - 1 - r : r, mirrored ? z.s - 1 - s : s, cg, z.r, z.s),
                       at(n, k, i, j, z.k, oh, ow));
                }
  }

  template <class T>
  std::vector<T> forward(int algorithm, const Buffer<T>& from, const Buffer<T>& weight, Buffer<T>& to, float beta = 0) {
    const auto algo = static_cast<cudnnConvolutionFwdAlgo_t>(algorithm);
    size_t bytes = 0;
    REQUIRE(cudnnGetConvolutionForwardWorkspaceSize(handle, x, filter, conv, y, algo, &bytes) == CUDNN_STATUS_SUCCESS);
    Buffer<char> workspace(bytes);
    const float alpha = 1;
    CHECK(cudnnConvolutionForward(handle, &alpha, x, from.data, filter, weight.data, conv, algo, workspace.data, bytes, &beta, y,
                                  to.data) == CUDNN_STATUS_SUCCESS);
    stream.synchronize();
    return to.download(stream);
  }
  std::vector<float> backward_data(int algorithm, const Buffer<float>& weight, const Buffer<float>& dy, Buffer<float>& dx) {
    const auto algo = static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm);
    size_t bytes = 0;
    REQUIRE(cudnnGetConvolutionBackwardDataWorkspaceSize(handle, filter, y, conv, x, algo, &bytes) == CUDNN_STATUS_SUCCESS);
    Buffer<char> workspace(bytes);
    const float alpha = 1, beta = 0;
    CHECK(cudnnConvolutionBackwardData(handle, &alpha, filter, weight.data, y, dy.data, conv, algo, workspace.data, bytes, &beta,
                                       x, dx.data) == CUDNN_STATUS_SUCCESS);
    stream.synchronize();
    return dx.download(stream);
  }
  std::vector<float> backward_filter(int algorithm, const Buffer<float>& from, const Buffer<float>& dy, Buffer<float>& dw,
                                     float beta = 0) {
    const auto algo = static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm);
    size_t bytes = 0;
    REQUIRE(cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x, y, conv, filter, algo, &bytes) == CUDNN_STATUS_SUCCESS);
    Buffer<char> workspace(bytes);
    const float alpha = 1;
    CHECK(cudnnConvolutionBackwardFilter(handle, &alpha, x, from.data, y, dy.data, conv, algo, workspace.data, bytes, &beta,
                                         filter, dw.data) == CUDNN_STATUS_SUCCESS);
    stream.synchronize();
    return dw.download(stream);
  }
};

void check_near(const std::vector<float>& found, const std::vector<double>& wanted, double tolerance) {
  REQUIRE(found.size() == wanted.size());
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(found[i] - wanted[i]));
  CHECK(worst < tolerance);
}

const std::vector<Case> kCases = {
    {2, 3, 7, 6, 4, 3, 3, 1, 1},
    {1, 4, 9, 8, 6, 3, 2, 2, 1, 2, 3},
    {2, 4, 8, 9, 6, 3, 3, 2, 2, 1, 1, 2, 2, 2},
    {3, 6, 5, 5, 6, 3, 3, 1, 1, 1, 1, 1, 1, 6},
    {2, 3, 7, 6, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1, CUDNN_TENSOR_NCHW},
    {2, 4, 8, 9, 6, 2, 3, 0, 2, 2, 1, 1, 2, 2, CUDNN_TENSOR_NCHW},
    {2, 3, 7, 6, 4, 3, 2, 1, 1, 1, 2, 1, 1, 1, CUDNN_TENSOR_NCHW, CUDNN_CONVOLUTION},
    {1, 5, 4, 4, 3, 1, 1},
};

TEST_CASE("convolutions are the sums of the definition, forward and both gradients, in both layouts") {
  for (const Case& z : kCases) {
    Machine machine;
    Convolution conv(z);
    const std::vector<float> x = random_floats(conv.x_count(), 1), w = random_floats(conv.filter_count(), 2),
                             dy = random_floats(conv.y_count(), 3);
    std::vector<double> y(dy.size()), dx(x.size()), dw(w.size());
    conv.each_product([&](size_t i, size_t j, size_t o) {
      y[o] += double{x[i]} * w[j];
      dx[i] += double{dy[o]} * w[j];
      dw[j] += double{dy[o]} * x[i];
    });
    Buffer<float> x_memory(x, conv.stream), w_memory(w, conv.stream), dy_memory(dy, conv.stream);
    Buffer<float> y_memory(y.size()), dx_memory(x.size()), dw_memory(w.size());
    for (const int algorithm : {0, 1}) {
      check_near(conv.forward(algorithm, x_memory, w_memory, y_memory), y, 1e-4);
      check_near(conv.backward_data(algorithm, w_memory, dy_memory, dx_memory), dx, 1e-4);
      check_near(conv.backward_filter(algorithm, x_memory, dy_memory, dw_memory), dw, 1e-4);
    }
    for (double& value : dw) value *= 2;
    check_near(conv.backward_filter(1, x_memory, dy_memory, dw_memory, 1.0f), dw, 1e-4);  // beta adds
  }
}

TEST_CASE("every algorithm that says it can run does, and the sums of two differ in their last bits") {
  Machine machine;
  Convolution conv({2, 16, 8, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1, 1, CUDNN_TENSOR_NCHW});
  const std::vector<float> x = random_floats(conv.x_count(), 1), w = random_floats(conv.filter_count(), 2);
  Buffer<float> x_memory(x, conv.stream), w_memory(w, conv.stream), y_memory(conv.y_count());
  int returned = 0;
  cudnnConvolutionFwdAlgoPerf_t results[10];
  REQUIRE(cudnnGetConvolutionForwardAlgorithm_v7(conv.handle, conv.x, conv.filter, conv.conv, conv.y, 10, &returned, results) ==
          CUDNN_STATUS_SUCCESS);
  REQUIRE(returned == CUDNN_CONVOLUTION_FWD_ALGO_COUNT);
  std::set<std::vector<float>> outputs;
  int ran = 0;
  for (int i = 0; i < returned; ++i) {
    if (results[i].status != CUDNN_STATUS_SUCCESS) continue;
    outputs.insert(conv.forward(results[i].algo, x_memory, w_memory, y_memory));
    ++ran;
  }
  CHECK(ran == 7);
  CHECK(outputs.size() >= 3);
}

TEST_CASE("nondeterministic algorithms say so and are so; the others give the same bits") {
  Machine machine;
  Convolution conv({4, 8, 9, 9, 8, 3, 3, 1, 1});
  const std::vector<float> x = random_floats(conv.x_count(), 1), w = random_floats(conv.filter_count(), 2),
                           dy = random_floats(conv.y_count(), 3);
  Buffer<float> x_memory(x, conv.stream), w_memory(w, conv.stream), dy_memory(dy, conv.stream);
  Buffer<float> dx_memory(x.size()), dw_memory(w.size());
  CHECK(conv.backward_data(0, w_memory, dy_memory, dx_memory) != conv.backward_data(0, w_memory, dy_memory, dx_memory));
  CHECK(conv.backward_data(1, w_memory, dy_memory, dx_memory) == conv.backward_data(1, w_memory, dy_memory, dx_memory));
  CHECK(conv.backward_filter(0, x_memory, dy_memory, dw_memory) != conv.backward_filter(0, x_memory, dy_memory, dw_memory));
  CHECK(conv.backward_filter(1, x_memory, dy_memory, dw_memory) == conv.backward_filter(1, x_memory, dy_memory, dw_memory));
  int returned = 0;
  cudnnConvolutionBwdFilterAlgoPerf_t results[10];
  REQUIRE(cudnnGetConvolutionBackwardFilterAlgorithm_v7(conv.handle, conv.x, conv.y, conv.conv, conv.filter, 10, &returned,
                                                        results) == CUDNN_STATUS_SUCCESS);
  for (int i = 0; i < returned; ++i) {
    const bool random =
        results[i].algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 || results[i].algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3;
    CHECK((results[i].determinism == CUDNN_NON_DETERMINISTIC) == random);
  }
  CHECK(results[0].algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0);  // the fastest is not the one to take
}

TEST_CASE("measuring leaves arbitrary values in the output, wants workspace, and times differ") {
  Machine machine;
  Convolution conv({2, 8, 9, 9, 8, 3, 3, 1, 1});
  Buffer<float> x(conv.x_count()), w(conv.filter_count()), y(std::vector<float>(conv.y_count(), 1.0f), conv.stream);
  cudnnConvolutionFwdAlgoPerf_t first[10], second[10];
  int returned = 0;
  const int64_t waits = host_waits();
  const auto find = [&](cudnnConvolutionFwdAlgoPerf_t* results, void* workspace, size_t bytes) {
    return cudnnFindConvolutionForwardAlgorithmEx(conv.handle, conv.x, x.data, conv.filter, w.data, conv.conv, conv.y, y.data, 10,
                                                  &returned, results, workspace, bytes);
  };
  REQUIRE(find(first, nullptr, 0) == CUDNN_STATUS_SUCCESS);
  CHECK(host_waits() > waits);
  CHECK(first[0].algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);  // the others do not fit into nothing, or want NCHW
  CHECK(first[1].status != CUDNN_STATUS_SUCCESS);
  Buffer<char> workspace(1 << 20);
  REQUIRE(find(first, workspace.data, workspace.count) == CUDNN_STATUS_SUCCESS);
  REQUIRE(find(second, workspace.data, workspace.count) == CUDNN_STATUS_SUCCESS);
  CHECK(first[1].status == CUDNN_STATUS_SUCCESS);
  CHECK(first[0].time != second[0].time);
  CHECK(y.download(conv.stream) != std::vector<float>(conv.y_count(), 1.0f));
}

TEST_CASE("both gradients are measured into their own outputs, and suggested without measuring") {
  Machine machine;
  Convolution conv({2, 8, 9, 9, 8, 3, 3, 1, 1});
  const auto ones = [&](size_t count) { return std::vector<float>(count, 1.0f); };
  Buffer<float> x(ones(conv.x_count()), conv.stream), w(ones(conv.filter_count()), conv.stream),
      dy(ones(conv.y_count()), conv.stream);
  Buffer<char> workspace(1 << 20);
  int returned = 0;
  cudnnConvolutionBwdDataAlgoPerf_t data[10];
  REQUIRE(cudnnGetConvolutionBackwardDataAlgorithm_v7(conv.handle, conv.filter, conv.y, conv.conv, conv.x, 10, &returned, data) ==
          CUDNN_STATUS_SUCCESS);
  CHECK(returned == CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT);
  CHECK(data[0].algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_0);
  CHECK(data[0].time == -1.0f);
  REQUIRE(cudnnFindConvolutionBackwardDataAlgorithmEx(conv.handle, conv.filter, w.data, conv.y, dy.data, conv.conv, conv.x,
                                                      x.data, 10, &returned, data, workspace.data,
                                                      workspace.count) == CUDNN_STATUS_SUCCESS);
  CHECK(data[0].time > 0.0f);
  CHECK(x.download(conv.stream) != ones(conv.x_count()));
  x.upload(ones(conv.x_count()), conv.stream);
  cudnnConvolutionBwdFilterAlgoPerf_t filter[10];
  REQUIRE(cudnnFindConvolutionBackwardFilterAlgorithmEx(conv.handle, conv.x, x.data, conv.y, dy.data, conv.conv, conv.filter,
                                                        w.data, 2, &returned, filter, workspace.data,
                                                        workspace.count) == CUDNN_STATUS_SUCCESS);
  CHECK(returned == 2);
  CHECK(w.download(conv.stream) != ones(conv.filter_count()));
  CHECK(x.download(conv.stream) == ones(conv.x_count()));
  CHECK(cudnnGetVersion() == CUDNN_VERSION);
  CHECK(std::string(cudnnGetErrorString(CUDNN_STATUS_NOT_SUPPORTED)) == "CUDNN_STATUS_NOT_SUPPORTED");
}

TEST_CASE("f32 means TF32 unless the math type is FMA; bf16 and f16 round the result") {
  const auto run = [](cudnnMathType_t math) {
    Machine machine;
    Convolution conv(
        {1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, CUDNN_TENSOR_NHWC, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT, math});
    Buffer<float> x(std::vector{1.0f + 0x1p-12f}, conv.stream), w(std::vector{1.0f}, conv.stream), y(1);
    return conv.forward(0, x, w, y).front();
  };
  CHECK(run(CUDNN_FMA_MATH) == 1.0f + 0x1p-12f);
  CHECK(run(CUDNN_DEFAULT_MATH) == 1.0f);
  CHECK(run(CUDNN_TENSOR_OP_MATH) == 1.0f);
  for (const cudnnDataType_t type : {CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF}) {
    Machine machine;
    Convolution conv({1, 2, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, CUDNN_TENSOR_NHWC, CUDNN_CROSS_CORRELATION, type});
    const auto of = [&](float value) { return type == CUDNN_DATA_HALF ? to_f16(value) : to_bf16(value); };
    Buffer<uint16_t> x(std::vector{of(1.0f), of(0x1p-12f)}, conv.stream), w(std::vector{of(1.0f), of(1.0f)}, conv.stream), y(1);
    CHECK(conv.forward(1, x, w, y).front() == of(1.0f));
  }
}

TEST_CASE("what does not fit is refused with the documented status") {
  Machine machine;
  Convolution conv({2, 8, 9, 9, 8, 3, 3, 1, 1});
  Buffer<float> x(conv.x_count()), w(conv.filter_count()), y(conv.y_count());
  Buffer<char> workspace(1 << 16);
  const float alpha = 1, beta = 0;
  const auto run = [&](int algorithm, size_t bytes, float* to) {
    return cudnnConvolutionForward(conv.handle, &alpha, conv.x, x.data, conv.filter, w.data, conv.conv,
                                   static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), workspace.data, bytes, &beta, conv.y, to);
  };
  CHECK(run(1, 16, y.data) == CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
  check_violation({"cudnnConvolutionForward", "the workspace has 16 bytes"});
  CHECK(run(CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, 1 << 16, y.data) == CUDNN_STATUS_NOT_SUPPORTED);
  check_violation({"wants NCHW"});
  CHECK(run(CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, 1 << 16, y.data) == CUDNN_STATUS_NOT_SUPPORTED);
  check_violation({"a number for this algorithm and no kernel"});
  CHECK(run(9, 1 << 16, y.data) == CUDNN_STATUS_BAD_PARAM);
  check_violation({"algorithm 9"});
  REQUIRE(cudnnSetTensor4dDescriptor(conv.y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 8, 9, 8) == CUDNN_STATUS_SUCCESS);
  CHECK(run(0, 0, y.data) == CUDNN_STATUS_BAD_PARAM);
  check_violation({"y is 2x8x9x8", "gives 2x8x9x9"});
  REQUIRE(cudnnSetTensor4dDescriptor(conv.y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 8, 9, 9) == CUDNN_STATUS_SUCCESS);
  CHECK(run(0, 0, y.data) == CUDNN_STATUS_NOT_SUPPORTED);
  check_violation({"layouts"});
  char message[64];
  cudnnGetLastErrorString(message, sizeof message);
  CHECK(std::string(message).find("layouts") != std::string::npos);
  REQUIRE(cudnnSetConvolutionGroupCount(conv.conv, 2) == CUDNN_STATUS_SUCCESS);
  CHECK(run(0, 0, y.data) == CUDNN_STATUS_BAD_PARAM);
  check_violation({"8 channels", "2 groups"});
  CHECK(cudnnSetTensor4dDescriptor(conv.y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 0, 9, 9) == CUDNN_STATUS_BAD_PARAM);
  check_violation({"not positive"});
  CHECK(cudnnSetTensor4dDescriptor(conv.y, CUDNN_TENSOR_NHWC, CUDNN_DATA_DOUBLE, 2, 8, 9, 9) == CUDNN_STATUS_NOT_SUPPORTED);
  check_violation({"types"});
  CHECK(cudnnSetConvolution2dDescriptor(conv.conv, 0, 0, 0, 1, 1, 1, CUDNN_CONVOLUTION, CUDNN_DATA_FLOAT) ==
        CUDNN_STATUS_BAD_PARAM);
  check_violation({"stride"});
}

TEST_CASE("reading memory nobody wrote, and memory that may not be used, is reported") {
  Machine machine;
  Convolution conv({2, 8, 9, 9, 8, 3, 3, 1, 1});
  Buffer<float> x(conv.x_count()), w(std::vector<float>(conv.filter_count(), 1.0f), conv.stream), y(conv.y_count());
  conv.forward(0, x, w, y);
  check_violation({"cudnnConvolutionForward read memory nobody wrote: x at element 0"});
  const std::vector<float> host(conv.x_count());
  const float alpha = 1, beta = 0;
  CHECK(cudnnConvolutionForward(conv.handle, &alpha, conv.x, host.data(), conv.filter, w.data, conv.conv,
                                CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, &beta, conv.y,
                                y.data) == CUDNN_STATUS_EXECUTION_FAILED);
  check_violation({"cudnnConvolutionForward: x", "memory of the host"});
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);  // the device is gone, as after an illegal address
  CHECK(cudaStreamSynchronize(conv.stream) == cudaErrorIllegalAddress);
}

}  // namespace
}  // namespace gpipe::emulated
