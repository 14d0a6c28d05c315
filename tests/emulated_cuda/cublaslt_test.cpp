// cuBLASLt: epilogues, algorithms with their workspaces and alignments, refusals.
#include "tests/emulated_cuda/numbers.h"
#include "tests/emulated_cuda/test_support.h"

#include <algorithm>
#include <cmath>
#include <cublasLt.h>

namespace gpipe::emulated {
namespace {

/// D = epilogue(A B) of column-major f32 matrices, m x k and k x n.
struct Matmul {
  int m, n, k;
  Stream stream;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t op = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;

  Matmul(int rows, int columns, int depth) : m(rows), n(columns), k(depth) {
    REQUIRE(cublasLtCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatmulDescCreate(&op, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, static_cast<uint64_t>(m), static_cast<uint64_t>(k), m) ==
            CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatrixLayoutCreate(&b, CUDA_R_32F, static_cast<uint64_t>(k), static_cast<uint64_t>(n), k) ==
            CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatrixLayoutCreate(&d, CUDA_R_32F, static_cast<uint64_t>(m), static_cast<uint64_t>(n), m) ==
            CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
  }
  ~Matmul() {
    CHECK(cublasLtMatmulPreferenceDestroy(preference) == CUBLAS_STATUS_SUCCESS);
    for (const cublasLtMatrixLayout_t layout : {a, b, d}) CHECK(cublasLtMatrixLayoutDestroy(layout) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatmulDescDestroy(op) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtDestroy(handle) == CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, T value) {
    return cublasLtMatmulDescSetAttribute(op, attribute, &value, sizeof value);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> suggest(uint64_t workspace, uint32_t alignment = 256) {
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, 8) ==
          CUBLAS_STATUS_SUCCESS);
    for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                 CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, 4) == CUBLAS_STATUS_SUCCESS);
    }
    std::vector<cublasLtMatmulHeuristicResult_t> results(4);
    int returned = 0;
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle, op, a, b, d, d, preference, 4, results.data(), &returned) ==
          CUBLAS_STATUS_SUCCESS);
    results.resize(static_cast<size_t>(returned));
    return results;
  }
  cublasStatus_t run(const void* from, const void* with, float* to, const cublasLtMatmulAlgo_t* algorithm = nullptr,
                     void* workspace = nullptr, size_t bytes = 0) {
    const float alpha = 1, beta = 0;
    return cublasLtMatmul(handle, op, &alpha, from, a, with, b, &beta, to, d, to, d, algorithm, workspace, bytes, stream);
  }
};

TEST_CASE("epilogues add a bias to each column and cut at 0") {
  Machine machine;
  Matmul matmul(3, 4, 5);
  const std::vector<float> a = random_floats(15, 1), b = random_floats(20, 2), bias = random_floats(3, 3);
  Buffer<float> a_memory(a, matmul.stream), b_memory(b, matmul.stream), bias_memory(bias, matmul.stream), d_memory(12);
  for (const uint32_t epilogue :
       {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS}) {
    REQUIRE(matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(matmul.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias_memory.data)) == CUBLAS_STATUS_SUCCESS);
    CHECK(matmul.run(a_memory.data, b_memory.data, d_memory.data) == CUBLAS_STATUS_SUCCESS);
    matmul.stream.synchronize();
    const std::vector<float> found = d_memory.download(matmul.stream);
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 4; ++j) {
        double wanted = (epilogue & CUBLASLT_EPILOGUE_BIAS) ? bias[i] : 0;
        for (size_t p = 0; p < 5; ++p) wanted += double{a[p * 3 + i]} * b[j * 5 + p];
        if (epilogue & CUBLASLT_EPILOGUE_RELU) wanted = std::max(wanted, 0.0);
        CHECK(std::abs(found[j * 3 + i] - wanted) < 1e-6);
      }
    }
  }
}

TEST_CASE("factors of 16 bits give f32 with a bias of f32, and one of their own type is refused") {
  Machine machine;
  for (const cudaDataType type : {CUDA_R_16BF, CUDA_R_16F}) {
    Matmul matmul(1, 1, 2);
    const uint32_t number = type;
    for (const cublasLtMatrixLayout_t layout : {matmul.a, matmul.b})
      REQUIRE(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_TYPE, &number, 4) == CUBLAS_STATUS_SUCCESS);
    const auto of = [&](float value) { return type == CUDA_R_16F ? to_f16(value) : to_bf16(value); };
    Buffer<uint16_t> a(std::vector{of(1.0f), of(0x1p-12f)}, matmul.stream), b(std::vector{of(1.0f), of(1.0f)}, matmul.stream);
    Buffer<float> bias(std::vector{0x1p-20f}, matmul.stream), d(1);
    REQUIRE(matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_BIAS}) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(matmul.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.data)) == CUBLAS_STATUS_SUCCESS);
    CHECK(matmul.run(a.data, b.data, d.data) == CUBLAS_STATUS_SUCCESS);
    matmul.stream.synchronize();
    CHECK(d.download(matmul.stream).front() == 1.0f + 0x1p-12f + 0x1p-20f);
    REQUIRE(matmul.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type)) == CUBLAS_STATUS_SUCCESS);
    CHECK(matmul.run(a.data, b.data, d.data) == CUBLAS_STATUS_NOT_SUPPORTED);
    check_violation({"the bias must have the type of D"});
  }
}

TEST_CASE("algorithms need the workspace, the alignment and the problem they were chosen for, and differ in last bits") {
  Machine machine;
  Matmul matmul(8, 8, 500);
  const std::vector<float> a = random_floats(4000, 1), b = random_floats(4000, 2);
  Buffer<float> a_memory(a, matmul.stream), b_memory(b, matmul.stream), d_memory(64);
  Buffer<char> workspace(4096);
  CHECK(matmul.suggest(0).size() == 1);
  const auto results = matmul.suggest(4096);
  REQUIRE(results.size() == 2);
  CHECK(results[0].workspaceSize == 1024);
  std::vector<std::vector<float>> outputs;
  for (const auto& result : results) {
    CHECK(matmul.run(a_memory.data, b_memory.data, d_memory.data, &result.algo, workspace.data, 4096) == CUBLAS_STATUS_SUCCESS);
    matmul.stream.synchronize();
    outputs.push_back(d_memory.download(matmul.stream));
  }
  CHECK(outputs[0] != outputs[1]);
  CHECK(matmul.run(a_memory.data, b_memory.data, d_memory.data, &results[0].algo, workspace.data, 1000) ==
        CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"cublasLtMatmul", "the workspace has 1000 bytes, the algorithm wants 1024"});
  CHECK(matmul.run(a_memory.data, b_memory.data, d_memory.data, &results[1].algo, workspace.data + 16, 1024) ==
        CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"not aligned to 256"});
  REQUIRE(matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_RELU}) == CUBLAS_STATUS_SUCCESS);
  CHECK(matmul.run(a_memory.data, b_memory.data, d_memory.data, &results[1].algo) == CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"another problem"});
  const cublasLtMatmulAlgo_t garbage = {};
  CHECK(matmul.run(a_memory.data, b_memory.data, d_memory.data, &garbage) == CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"none of cublasLtMatmulAlgoGetHeuristic"});
  matmul.stream.synchronize();
}

TEST_CASE("an algorithm for aligned matrices is refused for others") {
  Machine machine;
  Matmul matmul(4, 4, 4);
  Buffer<float> a(std::vector<float>(20, 1.0f), matmul.stream), b(std::vector<float>(16, 1.0f), matmul.stream), d(16);
  const auto strict = matmul.suggest(0);
  const auto loose = matmul.suggest(0, 16);
  CHECK(matmul.run(a.data + 4, b.data, d.data, &strict[0].algo) == CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"A aligned to 256 bytes"});
  CHECK(matmul.run(a.data + 4, b.data, d.data, &loose[0].algo) == CUBLAS_STATUS_SUCCESS);
  matmul.stream.synchronize();
}

TEST_CASE("what cuBLASLt has not, or is not emulated, is refused") {
  Machine machine({.devices = 2});
  Matmul matmul(4, 4, 4);
  Buffer<float> a(std::vector<float>(16, 1.0f), matmul.stream), d(16);
  const auto run = [&] { return matmul.run(a.data, a.data, d.data); };
  REQUIRE(matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_GELU_BIAS}) == CUBLAS_STATUS_SUCCESS);
  CHECK(run() == CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"BIAS_POINTER"});
  REQUIRE(matmul.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(a.data)) == CUBLAS_STATUS_SUCCESS);
  CHECK(run() == CUBLAS_STATUS_NOT_SUPPORTED);
  check_violation({"epilogue 36 is not emulated"});
  REQUIRE(matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t{CUBLASLT_EPILOGUE_DEFAULT}) == CUBLAS_STATUS_SUCCESS);
  CHECK(matmul.set(CUBLASLT_MATMUL_DESC_EPILOGUE, uint64_t{1}) == CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"cublasLtMatmulDescSetAttribute", "has 4 bytes, not 8"});
  CHECK(matmul.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1}) == CUBLAS_STATUS_NOT_SUPPORTED);
  check_violation({"attribute 25 is not emulated"});
  const uint64_t rows = 3;
  REQUIRE(cublasLtMatrixLayoutSetAttribute(matmul.b, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, 8) == CUBLAS_STATUS_SUCCESS);
  CHECK(run() == CUBLAS_STATUS_INVALID_VALUE);
  check_violation({"the columns of op(A) are not the rows of op(B)"});
  const uint64_t four = 4;
  REQUIRE(cublasLtMatrixLayoutSetAttribute(matmul.b, CUBLASLT_MATRIX_LAYOUT_ROWS, &four, 8) == CUBLAS_STATUS_SUCCESS);
  const int32_t order = CUBLASLT_ORDER_ROW;
  REQUIRE(cublasLtMatrixLayoutSetAttribute(matmul.b, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, 4) == CUBLAS_STATUS_SUCCESS);
  CHECK(run() == CUBLAS_STATUS_NOT_SUPPORTED);
  check_violation({"CUBLASLT_ORDER_COL"});
  const int32_t column = CUBLASLT_ORDER_COL;
  REQUIRE(cublasLtMatrixLayoutSetAttribute(matmul.b, CUBLASLT_MATRIX_LAYOUT_ORDER, &column, 4) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(run() == CUBLAS_STATUS_EXECUTION_FAILED);
  check_violation({"current device is 1"});
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(run() == CUBLAS_STATUS_SUCCESS);
  matmul.stream.synchronize();
}

}  // namespace
}  // namespace gpipe::emulated
