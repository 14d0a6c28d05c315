// cuBLAS's products against plain sums in double, and what they refuse.
#include "tests/emulated_cuda/numbers.h"
#include "tests/emulated_cuda/test_support.h"

#include <array>
#include <cmath>
#include <cublas_v2.h>
#include <memory>

namespace gpipe::emulated {
namespace {

/// Memory that device 0 may not use: another device's, and some that was given back.
struct Misplaced {
  std::unique_ptr<Buffer<float>> foreign;
  void* freed = nullptr;
  Misplaced() {
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    foreign = std::make_unique<Buffer<float>>(16);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    REQUIRE(cudaMalloc(&freed, 64) == cudaSuccess);
    REQUIRE(cudaFree(freed) == cudaSuccess);
  }
};

struct Blas {
  Stream stream;
  cublasHandle_t handle = nullptr;
  Blas() {
    REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS);
  }
  ~Blas() { CHECK(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS); }
};

/// Shapes of a product, or of `batches` of them at these distances.
struct Shape {
  int m, n, k;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  int lda = 0, ldb = 0, ldc = 0, batches = 1;
  long long stride_a = 0, stride_b = 0, stride_c = 0;
  int a_rows() const { return a == CUBLAS_OP_N ? m : k; }
  int b_rows() const { return b == CUBLAS_OP_N ? k : n; }
  int a_columns() const { return a == CUBLAS_OP_N ? k : m; }
  int b_columns() const { return b == CUBLAS_OP_N ? n : k; }
};

cublasStatus_t call(cublasHandle_t handle, const Shape& z, float alpha, const void* a, cudaDataType ab_type, const void* b,
                    float beta, void* c, cudaDataType c_type, cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
  return cublasGemmEx(handle, z.a, z.b, z.m, z.n, z.k, &alpha, a, ab_type, z.lda, b, ab_type, z.ldb, &beta, c, c_type, z.ldc,
                      compute, CUBLAS_GEMM_DEFAULT);
}

/// The pointers of a batch, in memory of the device.
struct Arrays {
  Buffer<float*> a, b, c;
  Arrays(const Blas& blas, const std::vector<float*>& to_a, const std::vector<float*>& to_b, const std::vector<float*>& to_c)
      : a(to_a, blas.stream), b(to_b, blas.stream), c(to_c, blas.stream) {}
  Arrays(const Blas& blas, const Shape& z, float* to_a, float* to_b, float* to_c)
      : Arrays(blas, at(to_a, z.stride_a, z.batches), at(to_b, z.stride_b, z.batches), at(to_c, z.stride_c, z.batches)) {}
  static std::vector<float*> at(float* first, long long stride, int batches) {
    std::vector<float*> pointers;
    for (int i = 0; i < batches; ++i) pointers.push_back(first + stride * i);
    return pointers;
  }
};

cublasStatus_t call(const Blas& blas, const Shape& z, float alpha, const void* const* a, const void* const* b, float beta,
                    void* const* c, cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
  return cublasGemmBatchedEx(blas.handle, z.a, z.b, z.m, z.n, z.k, &alpha, a, CUDA_R_32F, z.lda, b, CUDA_R_32F, z.ldb, &beta, c,
                             CUDA_R_32F, z.ldc, z.batches, compute, CUBLAS_GEMM_DEFAULT);
}
cublasStatus_t call(const Blas& blas, const Shape& z, float alpha, const Arrays& arrays, float beta,
                    cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
  const auto pointers = [](const Buffer<float*>& array) { return reinterpret_cast<void* const*>(array.data); };
  return call(blas, z, alpha, pointers(arrays.a), pointers(arrays.b), beta, pointers(arrays.c), compute);
}

std::vector<double> plain(const Shape& z, double alpha, const std::vector<float>& a, const std::vector<float>& b, double beta,
                          const std::vector<float>& c) {
  std::vector<double> out(c.begin(), c.end());
  for (int batch = 0; batch < z.batches; ++batch) {
    for (int i = 0; i < z.m; ++i) {
      for (int j = 0; j < z.n; ++j) {
        double sum = 0;
        for (int p = 0; p < z.k; ++p) {
          const auto at_a = static_cast<size_t>(batch * z.stride_a + (z.a == CUBLAS_OP_N ? p * z.lda + i : i * z.lda + p));
          const auto at_b = static_cast<size_t>(batch * z.stride_b + (z.b == CUBLAS_OP_N ? j * z.ldb + p : p * z.ldb + j));
          sum += double{a[at_a]} * b[at_b];
        }
        double& to = out[static_cast<size_t>(batch * z.stride_c + j * z.ldc + i)];
        to = alpha * sum + (beta != 0 ? beta * to : 0);
      }
    }
  }
  return out;
}

TEST_CASE("products are the sums of the definition for N and T, leading dimensions, batches, alpha and beta") {
  Machine machine;
  Blas blas;
  for (const auto& [ta, tb] : {std::pair{CUBLAS_OP_N, CUBLAS_OP_N}, std::pair{CUBLAS_OP_T, CUBLAS_OP_N},
                               std::pair{CUBLAS_OP_N, CUBLAS_OP_T}, std::pair{CUBLAS_OP_T, CUBLAS_OP_T}}) {
    Shape z{5, 7, 9, ta, tb};
    z.lda = z.a_rows() + 2;
    z.ldb = z.b_rows() + 1;
    z.ldc = z.m + 3;
    z.batches = 3;
    z.stride_a = z.lda * z.a_columns();
    z.stride_b = z.ldb * z.b_columns() + 5;
    z.stride_c = z.ldc * z.n;
    const std::vector<float> a = random_floats(static_cast<size_t>(z.stride_a * 3), 1),
                             b = random_floats(static_cast<size_t>(z.stride_b * 3), 2),
                             c = random_floats(static_cast<size_t>(z.stride_c * 3), 3);
    for (const float beta : {0.0f, 0.5f}) {
      Buffer<float> a_memory(a, blas.stream), b_memory(b, blas.stream), c_memory(c, blas.stream);
      const Arrays arrays(blas, z, a_memory.data, b_memory.data, c_memory.data);
      CHECK(call(blas, z, 1.5f, arrays, beta) == CUBLAS_STATUS_SUCCESS);
      blas.stream.synchronize();
      const std::vector<float> found = c_memory.download(blas.stream);
      const std::vector<double> wanted = plain(z, 1.5, a, b, beta, c);
      double worst = 0;
      for (size_t i = 0; i < found.size(); ++i) worst = std::max(worst, std::abs(found[i] - wanted[i]));
      CHECK(worst < 1e-5);
    }
  }
}

TEST_CASE("heads side by side in one matrix are batches whose matrices interleave") {
  Machine machine;
  Blas blas;
  Shape z{4, 6, 3};  // columns of 4 at a distance of 8: two heads
  z.lda = 4, z.ldb = 3, z.ldc = 8, z.batches = 2, z.stride_c = 4;
  const std::vector<float> a = random_floats(12, 1), b = random_floats(18, 2);
  Buffer<float> a_memory(a, blas.stream), b_memory(b, blas.stream), c_memory(48);
  const Arrays apart(blas, z, a_memory.data, b_memory.data, c_memory.data);
  CHECK(call(blas, z, 1, apart, 0) == CUBLAS_STATUS_SUCCESS);
  blas.stream.synchronize();
  const std::vector<float> found = c_memory.download(blas.stream);
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i] == found[i % 8 < 4 ? i + 4 : i - 4]);
  z.stride_c = 3;
  const Arrays overlapping(blas, z, a_memory.data, b_memory.data, c_memory.data);
  CHECK(call(blas, z, 1, overlapping, 0) == CUBLAS_STATUS_SUCCESS);
  CHECK(cudaStreamSynchronize(blas.stream) == cudaErrorIllegalAddress);
  check_violation({"cublasGemmBatchedEx", "overlap"});
}

TEST_CASE("arrays of pointers are read when the stream has come to the product") {
  Machine machine({.delay_us = 300});
  Blas blas;
  Shape z{1, 1, 1};
  z.lda = z.ldb = z.ldc = 1, z.batches = 2;
  Buffer<float> x(std::vector{2.0f, 3.0f, 5.0f}, blas.stream), y(2);
  Buffer<float*> a(2), b(2), c(2);
  const auto write = [&](float* const(&pointers)[6]) {
    std::vector<float*> values(std::begin(pointers), std::end(pointers));
    gpipe_emulated_launch(blas.stream, "pointers", [values, a = a.data, b = b.data, c = c.data] {
      for (size_t i = 0; i < 2; ++i) a[i] = values[i], b[i] = values[2 + i], c[i] = values[4 + i];
    });
  };
  const auto product = [&] {
    return call(blas, z, 1, reinterpret_cast<void* const*>(a.data), reinterpret_cast<void* const*>(b.data), 0,
                reinterpret_cast<void* const*>(c.data));
  };
  write({x.data, x.data + 1, x.data + 2, x.data, y.data, y.data + 1});
  CHECK(product() == CUBLAS_STATUS_SUCCESS);
  write({y.data, y.data, x.data, x.data + 2, x.data, x.data + 1});
  CHECK(x.download(blas.stream) == std::vector{2.0f, 3.0f, 5.0f});  // only the pointers changed
  CHECK(y.download(blas.stream) == std::vector{10.0f, 6.0f});
}

/// What each bad array is reported as; those known at the call are refused by it, the others break the device later.
TEST_CASE("arrays of pointers are memory of the device that was written, and each matrix may be used") {
  struct Bad {
    std::string text;
    int which;
    bool at_once;
  };
  for (const Bad& bad :
       {Bad{"the array A 0x", 0, true}, Bad{"the array B 0x", 1, true}, Bad{"the array C is null", 2, true},
        Bad{"read memory nobody wrote: the array A at element 1", 3, false}, Bad{"A[1] 0x", 4, false},
        Bad{"B[0] is 64 bytes at offset 4 of 64 bytes", 5, false}, Bad{"C[1] 0x", 6, false}, Bad{"A[1] is null", 7, false},
        Bad{"shares elements with B", 8, false}, Bad{"device 1, which device 0 has no access to", 9, false},
        Bad{"A[0] 0x", 10, false}, Bad{"is not aligned to 8", 11, true}}) {
    CAPTURE(bad.which);
    Machine machine({.devices = 2});
    Blas blas;
    std::array<float, 16> of_host = {};
    Buffer<float> a(std::vector<float>(33, 1.0f), blas.stream), b(std::vector<float>(16, 1.0f), blas.stream), c(32);
    const Misplaced elsewhere;
    Shape z{4, 4, 4};
    z.lda = z.ldb = z.ldc = 4, z.batches = 2;
    std::vector<float*> to_a{a.data, a.data + 16}, to_b{b.data, b.data}, to_c{c.data, c.data + 16};
    if (bad.which == 4) to_a[1] = of_host.data();
    if (bad.which == 5) to_b[0] = b.data + 1;
    if (bad.which == 6) to_c[1] = static_cast<float*>(elsewhere.freed);
    if (bad.which == 7) to_a[1] = nullptr;
    if (bad.which == 8) to_c[0] = b.data;
    if (bad.which == 9) to_a[1] = elsewhere.foreign->data;
    if (bad.which == 10) to_a[0] = a.data + 1;  // 16 bytes are read at once by the fast types
    const Arrays arrays(blas, to_a, to_b, to_c);
    Buffer<float*> half(3);
    half.upload({a.data}, blas.stream);
    const auto pointers = [](auto* array) { return reinterpret_cast<void* const*>(array); };
    const cublasStatus_t status = call(blas, z, 1,
                                       bad.which == 0    ? pointers(to_a.data())
                                       : bad.which == 3  ? pointers(half.data)
                                       : bad.which == 11 ? pointers(reinterpret_cast<char*>(half.data) + 4)
                                                         : pointers(arrays.a.data),
                                       bad.which == 1 ? pointers(elsewhere.freed) : pointers(arrays.b.data), 0,
                                       bad.which == 2 ? nullptr : pointers(arrays.c.data),
                                       bad.which == 10 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
    CHECK(status == (bad.at_once ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS));
    CHECK(cudaStreamSynchronize(blas.stream) == cudaErrorIllegalAddress);
    check_violation({"cublasGemmBatchedEx", bad.text});
  }
}

TEST_CASE("matrices of a batch may lie anywhere, of one input, and a factor of 4 bytes where no 16 are read at once") {
  Machine machine;
  Blas blas;
  Shape z{1, 1, 3};
  z.a = CUBLAS_OP_T;
  z.lda = z.ldb = 3, z.ldc = 1, z.batches = 2;
  Buffer<float> x(std::vector{1.0f, 2.0f, 3.0f, 4.0f}, blas.stream), y(2);
  const Arrays arrays(blas, {x.data + 1, x.data}, {x.data, x.data}, {y.data + 1, y.data});
  CHECK(call(blas, z, 1, arrays, 0, CUBLAS_COMPUTE_32F_FAST_TF32) == CUBLAS_STATUS_SUCCESS);
  CHECK(y.download(blas.stream) == std::vector{14.0f, 20.0f});
  z.batches = -1;
  CHECK(call(blas, z, 1, arrays, 0) == CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"cublasGemmBatchedEx", "negative"});
}

TEST_CASE("beta 0 does not read C, and k 0 leaves beta C") {
  Machine machine;
  Blas blas;
  Shape z{2, 2, 2};
  z.lda = z.ldb = z.ldc = 2;
  Buffer<float> a(std::vector{1.0f, 2.0f, 3.0f, 4.0f}, blas.stream), c(4);
  CHECK(call(blas.handle, z, 1, a.data, CUDA_R_32F, a.data, 0, c.data, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  CHECK(c.download(blas.stream) == std::vector{7.0f, 10.0f, 15.0f, 22.0f});
  z.k = 0;
  CHECK(call(blas.handle, z, 1, a.data, CUDA_R_32F, a.data, 2, c.data, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  CHECK(c.download(blas.stream) == std::vector{14.0f, 20.0f, 30.0f, 44.0f});
}

TEST_CASE("inputs are rounded as the compute type and the math mode say; bf16 and f16 results are rounded once") {
  Machine machine;
  Blas blas;
  Shape z{1, 1, 1};
  z.lda = z.ldb = z.ldc = 1;
  const float fine = 1.0f + 0x1p-12f, coarse = 1.0f + 0x1p-9f;
  const auto product = [&](float value, cublasComputeType_t compute) {
    Buffer<float> a(std::vector{value}, blas.stream), b(std::vector{1.0f}, blas.stream), c(1);
    CHECK(call(blas.handle, z, 1, a.data, CUDA_R_32F, b.data, 0, c.data, CUDA_R_32F, compute) == CUBLAS_STATUS_SUCCESS);
    blas.stream.synchronize();
    return c.download(blas.stream).front();
  };
  CHECK(product(fine, CUBLAS_COMPUTE_32F) == fine);
  CHECK(product(fine, CUBLAS_COMPUTE_32F_FAST_TF32) == 1.0f);
  CHECK(product(coarse, CUBLAS_COMPUTE_32F_FAST_TF32) == coarse);
  CHECK(product(coarse, CUBLAS_COMPUTE_32F_FAST_16BF) == 1.0f);
  REQUIRE(cublasSetMathMode(blas.handle, CUBLAS_TF32_TENSOR_OP_MATH) == CUBLAS_STATUS_SUCCESS);
  CHECK(product(fine, CUBLAS_COMPUTE_32F) == 1.0f);
  CHECK(product(fine, CUBLAS_COMPUTE_32F_PEDANTIC) == fine);
  z.k = z.lda = z.ldb = 2;
  z.a = CUBLAS_OP_T;
  for (const cudaDataType type : {CUDA_R_16BF, CUDA_R_16F}) {
    const auto of = [&](float value) { return type == CUDA_R_16F ? to_f16(value) : to_bf16(value); };
    Buffer<uint16_t> a(std::vector{of(1.0f), of(0x1p-12f)}, blas.stream), b(std::vector{of(1.0f), of(1.0f)}, blas.stream), c(1);
    Buffer<float> wide(1);
    CHECK(call(blas.handle, z, 1, a.data, type, b.data, 0, c.data, type) == CUBLAS_STATUS_SUCCESS);
    CHECK(call(blas.handle, z, 1, a.data, type, b.data, 0, wide.data, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    blas.stream.synchronize();
    CHECK(c.download(blas.stream).front() == of(1.0f));
    CHECK(wide.download(blas.stream).front() == fine);
  }
}

TEST_CASE("numbers of 16 bits convert as IEEE says") {
  CHECK(from_f16(0x3c01) == 1.0f + 0x1p-10f);
  CHECK(from_f16(0x0001) == 0x1p-24f);
  CHECK(std::isinf(from_f16(0x7c00)));
  CHECK(to_f16(65519.0f) == 0x7bff);
  CHECK(to_f16(65520.0f) == 0x7c00);
  CHECK(to_f16(-0x1p-25f) == 0x8000);  // a tie goes to even
  CHECK(to_f16(0x1.8p-24f) == 0x0002);
  CHECK(to_f16(1.0f + 0x1p-11f) == 0x3c00);
  CHECK(to_f16(1.0f + 0x1.8p-10f) == 0x3c02);
  CHECK(to_f16(0x1.ff8p-15f) == 0x03ff);
  CHECK(to_f16(0x1.ffcp-15f) == 0x0400);  // the largest subnormal rounds to the smallest normal
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) CHECK(to_f16(from_f16(static_cast<uint16_t>(bits))) == bits);
  CHECK(to_bf16(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(to_bf16(1.0f + 0x1.8p-7f) == 0x3f82);
  CHECK(std::isnan(from_bf16(to_bf16(NAN))));
  const uint32_t word = kPoison32;
  CHECK(std::isnan(std::bit_cast<float>(word)));
  CHECK(std::isnan(from_bf16(kPoison16)));
  CHECK(std::isnan(from_f16(kPoison16)));
}

/// Calls that are refused at once; the device stays whole.
TEST_CASE("wrong arguments give the documented status") {
  Machine machine;
  Blas blas;
  Buffer<float> memory(std::vector<float>(64, 1.0f), blas.stream);
  Shape z{4, 4, 4};
  z.lda = z.ldb = z.ldc = 4;
  const auto run = [&](const Shape& shape, cudaDataType type = CUDA_R_32F, cublasComputeType_t compute = CUBLAS_COMPUTE_32F) {
    return call(blas.handle, shape, 1, memory.data, type, memory.data + 16, 0, memory.data + 32, type, compute);
  };
  Shape bad = z;
  bad.lda = 3;
  CHECK(run(bad) == CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"lda"});
  bad = z;
  bad.ldc = 3;
  CHECK(run(bad) == CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"ldc"});
  bad = z;
  bad.m = -1;
  CHECK(run(bad) == CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"negative"});
  CHECK(run(z, CUDA_R_64F) == CUBLAS_STATUS_NOT_SUPPORTED);
  check_violation({"combination of types"});
  CHECK(run(z, CUDA_R_16BF, CUBLAS_COMPUTE_32F_FAST_TF32) == CUBLAS_STATUS_NOT_SUPPORTED);
  check_violation({"combination of types"});
  CHECK(cublasGemmEx(blas.handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, nullptr, memory.data, CUDA_R_32F, 4, memory.data, CUDA_R_32F,
                     4, nullptr, memory.data, CUDA_R_32F, 4, CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"cublasGemmEx", "alpha"});
  CHECK(cublasSetWorkspace(blas.handle, memory.data + 1, 16) == CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"cublasSetWorkspace_v2", "not aligned to 256"});
  cublasHandle_t other = nullptr;
  REQUIRE(cublasCreate(&other) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cublasDestroy(other) == CUBLAS_STATUS_SUCCESS);
  CHECK(cublasDestroy(other) == CUBLAS_STATUS_NOT_INITIALIZED);
  check_violation({"handle", "destroyed"});
  CHECK(std::string(cublasGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED)) == "CUBLAS_STATUS_NOT_SUPPORTED");
  CHECK(std::string(cublasGetStatusString(CUBLAS_STATUS_SUCCESS)) == "success");
  blas.stream.synchronize();
  int version = 0;
  CHECK(cublasGetVersion(blas.handle, &version) == CUBLAS_STATUS_SUCCESS);
  CHECK(version == CUBLAS_VERSION);
}

/// What each bad pointer of a product is reported as; each breaks the device.
TEST_CASE("pointers that may not be used are reported by argument") {
  const std::array<float, 16> host = {};
  struct Bad {
    std::string text;
    int which;  // 0: A is the host's, 1: B past the end, 2: C freed, 3: A unaligned, 4: A of another device, 5: C is A
  };
  for (const Bad& bad :
       {Bad{"A 0x", 0}, Bad{"B is 64 bytes at offset 4 of 64 bytes", 1}, Bad{"C 0x", 2}, Bad{"not aligned to 4", 3},
        Bad{"device 1, which device 0 has no access to", 4}, Bad{"shares elements with A", 5}}) {
    Machine machine({.devices = 2});
    Blas blas;
    Buffer<float> a(std::vector<float>(17, 1.0f), blas.stream), b(std::vector<float>(16, 1.0f), blas.stream), c(16);
    const Misplaced elsewhere;
    Shape z{4, 4, 4};
    z.lda = z.ldb = z.ldc = 4;
    const void* from = bad.which == 0   ? static_cast<const void*>(host.data())
                       : bad.which == 3 ? static_cast<const void*>(reinterpret_cast<const char*>(a.data) + 2)
                       : bad.which == 4 ? elsewhere.foreign->data
                                        : a.data;
    void* to = bad.which == 2 ? elsewhere.freed : bad.which == 5 ? a.data : c.data;
    CHECK(call(blas.handle, z, 1, from, CUDA_R_32F, bad.which == 1 ? b.data + 1 : b.data, 0, to, CUDA_R_32F) ==
          CUBLAS_STATUS_EXECUTION_FAILED);
    check_violation({"cublasGemmEx", bad.text});
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    CHECK(call(blas.handle, z, 1, a.data, CUDA_R_32F, b.data, 0, c.data, CUDA_R_32F) == CUBLAS_STATUS_EXECUTION_FAILED);
  }
}

TEST_CASE("a handle belongs to a device, as its stream does") {
  Machine machine({.devices = 2});
  Blas blas;
  Buffer<float> memory(std::vector<float>(64, 1.0f), blas.stream);
  Shape z{4, 4, 4};
  z.lda = z.ldb = z.ldc = 4;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(call(blas.handle, z, 1, memory.data, CUDA_R_32F, memory.data + 16, 0, memory.data + 32, CUDA_R_32F) ==
        CUBLAS_STATUS_EXECUTION_FAILED);
  check_violation({"the handle is of device 0, but the current device is 1"});
  {
    Stream other;
    CHECK(cublasSetStream(blas.handle, other) == CUBLAS_STATUS_INVALID_VALUE);
    check_violation({"cublasSetStream_v2", "device 0", "device 1"});
  }
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  cublasHandle_t fresh = nullptr;
  REQUIRE(cublasCreate(&fresh) == CUBLAS_STATUS_SUCCESS);
  CHECK(call(fresh, z, 1, memory.data, CUDA_R_32F, memory.data + 16, 0, memory.data + 32, CUDA_R_32F) ==
        CUBLAS_STATUS_EXECUTION_FAILED);
  check_violation({"default stream"});
  CHECK(cublasDestroy(fresh) == CUBLAS_STATUS_SUCCESS);
  blas.stream.synchronize();
}

TEST_CASE("a product of memory nobody wrote is reported") {
  Machine machine;
  Blas blas;
  Buffer<float> a(16), b(std::vector<float>(16, 1.0f), blas.stream), c(16);
  a.upload(std::vector<float>(7, 1.0f), blas.stream);
  Shape z{4, 4, 4};
  z.lda = z.ldb = z.ldc = 4;
  CHECK(call(blas.handle, z, 1, a.data, CUDA_R_32F, b.data, 0, c.data, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  blas.stream.synchronize();
  check_violation({"cublasGemmEx read memory nobody wrote: A", "offset 28 of 64 bytes of device 0"});
  CHECK(call(blas.handle, z, 1, b.data, CUDA_R_32F, b.data, 1, c.data, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
  blas.stream.synchronize();
  CHECK(violations().empty());  // C was written, if with NaN
}

}  // namespace
}  // namespace gpipe::emulated
