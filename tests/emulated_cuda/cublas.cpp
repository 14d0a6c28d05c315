// cuBLAS: handles and matrix products with f32 sums.
#include "tests/emulated_cuda/gemm.h"
#include "tests/emulated_cuda/stream.h"

#include <algorithm>
#include <cublas_v2.h>
#include <memory>
#include <optional>

struct cublasContext {
  int device = 0;
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

namespace gpipe::emulated {

namespace {

constexpr unsigned kMathModes = 0xF;

cublasContext* find_handle(const char* call, cublasHandle_t handle) {
  const Object* object = find_object(call, "handle", handle, Kind::cublas);
  return object ? static_cast<cublasContext*>(object->body.get()) : nullptr;
}

int device_of_handle(cublasHandle_t handle) {
  ensure_ready();
  Lock lock;
  const auto found = state().objects.find(handle);
  return found != state().objects.end() ? found->second.device : current_device();
}

template <class Body>
cublasStatus_t blas_call(const char* call, cublasHandle_t handle, Body&& body) {
  const Entry entry = enter(call, device_of_handle(handle));
  if (entry.injected) return static_cast<cublasStatus_t>(entry.code);
  if (entry.device_error != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  return body();
}

/// One product, or as many as there are pointers in the arrays a, b and c.
struct Gemm {
  const char* call;
  cublasOperation_t transa, transb;
  int m, n, k;
  const void* alpha;
  const void *a, *b;
  const void* beta;
  void* c;
  cudaDataType a_type, b_type, c_type;
  int lda, ldb, ldc;
  bool arrays;
  int batches;
  cublasComputeType_t compute;
  cublasGemmAlgo_t algorithm;
};

std::string fault_in_shape(const Gemm& g) {
  const auto known = [](cublasOperation_t op) { return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C; };
  if (!known(g.transa) || !known(g.transb)) return "an operation is not N, T or C";
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batches < 0) return "m, n, k or the number of matrices is negative";
  if (g.lda < std::max(1, g.transa == CUBLAS_OP_N ? g.m : g.k)) return "lda is below the rows of A";
  if (g.ldb < std::max(1, g.transb == CUBLAS_OP_N ? g.k : g.n)) return "ldb is below the rows of B";
  if (g.ldc < std::max(1, g.m)) return "ldc is below the rows of C";
  if (!g.alpha || !g.beta) return "alpha or beta is null";
  const int number = static_cast<int>(g.algorithm);
  if ((number < -1 || number > 23) && (number < 99 || number > 115) && number != 999) return "the algorithm is unknown";
  return "";
}

/// The rounding of inputs, or nothing when the documentation has no such combination.
std::optional<Rounding> rounding_of(const Gemm& g, cublasMath_t math) {
  const bool f32_inputs = g.a_type == CUDA_R_32F && g.b_type == CUDA_R_32F && g.c_type == CUDA_R_32F;
  const bool half_inputs = g.a_type == g.b_type && (g.a_type == CUDA_R_16F || g.a_type == CUDA_R_16BF) &&
                           (g.c_type == g.a_type || g.c_type == CUDA_R_32F);
  switch (g.compute) {
    case CUBLAS_COMPUTE_32F:
      if (f32_inputs && (math & kMathModes) == CUBLAS_TF32_TENSOR_OP_MATH) return Rounding::tf32;
      if (f32_inputs && (math & kMathModes) == CUBLAS_TENSOR_OP_MATH) return Rounding::f16;
      [[fallthrough]];
    case CUBLAS_COMPUTE_32F_PEDANTIC: return f32_inputs || half_inputs ? std::optional(Rounding::none) : std::nullopt;
    case CUBLAS_COMPUTE_32F_FAST_TF32: return f32_inputs ? std::optional(Rounding::tf32) : std::nullopt;
    case CUBLAS_COMPUTE_32F_FAST_16BF: return f32_inputs ? std::optional(Rounding::bf16) : std::nullopt;
    case CUBLAS_COMPUTE_32F_FAST_16F: return f32_inputs ? std::optional(Rounding::f16) : std::nullopt;
    default: return std::nullopt;
  }
}

Number number_of(cudaDataType type) {
  return type == CUDA_R_32F ? Number::f32 : type == CUDA_R_16BF ? Number::bf16 : Number::f16;
}

Product product_of(const Gemm& g, Rounding rounding) {
  Product p;
  p.call = g.call;
  p.m = g.m;
  p.n = g.n;
  p.k = g.k;
  p.transpose_a = g.transa != CUBLAS_OP_N;
  p.transpose_b = g.transb != CUBLAS_OP_N;
  p.a = {g.a, number_of(g.a_type), p.transpose_a ? g.k : g.m, p.transpose_a ? g.m : g.k, g.lda, 0, g.batches};
  p.b = {g.b, number_of(g.b_type), p.transpose_b ? g.n : g.k, p.transpose_b ? g.k : g.n, g.ldb, 0, g.batches};
  p.c = {g.c, number_of(g.c_type), g.m, g.n, g.ldc, 0, g.batches};
  p.d = p.c;
  p.alpha = *static_cast<const float*>(g.alpha);
  p.beta = *static_cast<const float*>(g.beta);
  p.rounding = rounding;
  return p;
}

/// The arrays of pointers that the product reads, as it is given them.
std::vector<Range> arrays_of(const Gemm& g, const Product& p) {
  const size_t bytes = static_cast<size_t>(g.batches) * sizeof(void*);
  std::vector<Range> arrays = {{"the array C", g.c, bytes, alignof(void*)}};
  if (p.alpha != 0 && p.k > 0) {
    arrays.push_back({"the array A", g.a, bytes, alignof(void*)});
    arrays.push_back({"the array B", g.b, bytes, alignof(void*)});
  }
  return arrays;
}

/// A product whose matrices are known when the stream has come to it: reads the arrays, and checks what they point to.
void multiply_arrays(const Gemm& g, Product p, int device) {
  const std::vector<Range> arrays = arrays_of(g, p);
  bool written = true;
  for (const Range& array : arrays) {
    check_written(g.call, array.argument.c_str(), array.pointer, static_cast<size_t>(g.batches), sizeof(void*));
    written = written && find_poison(array.pointer, static_cast<size_t>(g.batches), sizeof(void*)) < 0;
  }
  // With numbers of 16 bits and in the fast types, cuBLAS reads 16 bytes at once where k is a multiple of as much.
  const bool fast = p.rounding != Rounding::none || p.a.type != Number::f32;
  const auto read = [&](Matrix& matrix) {
    const auto* pointers = static_cast<const void* const*>(matrix.data);
    matrix.each.assign(pointers, pointers + g.batches);
    if (fast && static_cast<size_t>(p.k) * bytes_of(p.a.type) % 16 == 0) matrix.alignment = 16;
  };
  if (written) {
    read(p.c);
    p.d = p.c;
    if (p.alpha != 0 && p.k > 0) {
      read(p.a);
      read(p.b);
    }
  }
  {
    Lock lock;
    if (!written || !check_product(p, device)) return break_device(device, cudaErrorIllegalAddress);
  }
  multiply(p);
}

cublasStatus_t run(cublasHandle_t handle, const Gemm& g) {
  const std::string start = std::string(g.call) + ": ";
  cublasContext context;
  {
    Lock lock;
    const cublasContext* found = find_handle(g.call, handle);
    if (!found) return CUBLAS_STATUS_NOT_INITIALIZED;
    context = *found;
    if (context.device != current_device()) {
      report(start + "the handle is of device " + std::to_string(context.device) + ", but the current device is " +
             std::to_string(current_device()));
      return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (const std::string fault = fault_in_shape(g); !fault.empty()) {
      report(start + fault);
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  const std::optional<Rounding> rounding = rounding_of(g, context.math);
  if (!rounding) {
    report_unlocked(start + "this combination of types and compute type is not supported or not emulated");
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  Product product = product_of(g, *rounding);
  product.workspace = context.workspace;
  product.workspace_bytes = context.workspace_bytes;
  auto task = make_task(
      g.call, [g, product, device = context.device] { g.arrays ? multiply_arrays(g, product, device) : multiply(product); });
  Lock lock;
  CUstream_st* stream = find_stream(g.call, context.stream);
  if (!stream) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (g.m == 0 || g.n == 0 || g.batches == 0) return CUBLAS_STATUS_SUCCESS;
  if (g.arrays ? !check_ranges(g.call, context.device, arrays_of(g, product)) : !check_product(product, context.device)) {
    break_device(context.device, cudaErrorIllegalAddress);
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  push(*stream, std::move(task), touched_by(product));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_stream(cublasHandle_t handle, cudaStream_t stream) {
  Lock lock;
  cublasContext* context = find_handle("cublasSetStream_v2", handle);
  if (!context) return CUBLAS_STATUS_NOT_INITIALIZED;
  const CUstream_st* found = find_stream("cublasSetStream_v2", stream);
  if (!found) return CUBLAS_STATUS_INVALID_VALUE;
  if (found->device != context->device) {
    report("cublasSetStream_v2: the handle is of device " + std::to_string(context->device) + ", the stream of device " +
           std::to_string(found->device));
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  context->stream = stream;
  context->workspace = nullptr;  // documented: the workspace is the default one again
  context->workspace_bytes = 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t set_workspace(cublasHandle_t handle, void* workspace, size_t bytes) {
  Lock lock;
  cublasContext* context = find_handle("cublasSetWorkspace_v2", handle);
  if (!context) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!check_ranges("cublasSetWorkspace_v2", context->device, {{"workspace", workspace, bytes, 256}})) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  context->workspace = bytes ? workspace : nullptr;
  context->workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

struct Named {
  cublasStatus_t status;
  const char* name;
  const char* text;
};
constexpr Named kStatuses[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE", "an invalid value was used as an argument"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH", "an absent device architectural feature is required"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR", "an access to GPU memory space failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "the GPU program failed to execute"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality requested is not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR", "an error was detected when checking the current licensing"},
};

}  // namespace

}  // namespace gpipe::emulated

using namespace gpipe::emulated;

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  const Entry entry = enter("cublasCreate_v2", current_device());
  if (entry.injected) return static_cast<cublasStatus_t>(entry.code);
  if (entry.device_error != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  auto context = std::make_shared<cublasContext>();
  context->device = current_device();
  *handle = context.get();
  Lock lock;
  add_object(context.get(), Kind::cublas, context->device, context);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  const Entry entry = enter("cublasDestroy_v2", device_of_handle(handle));
  if (entry.injected) return static_cast<cublasStatus_t>(entry.code);
  Lock lock;
  return end_object("cublasDestroy_v2", "handle", handle, Kind::cublas) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return blas_call("cublasSetStream_v2", handle, [&] { return set_stream(handle, stream); });
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  return blas_call("cublasSetWorkspace_v2", handle, [&] { return set_workspace(handle, workspace, bytes); });
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return blas_call("cublasSetMathMode", handle, [&] {
    Lock lock;
    cublasContext* context = find_handle("cublasSetMathMode", handle);
    if (!context) return CUBLAS_STATUS_NOT_INITIALIZED;
    const unsigned base = static_cast<unsigned>(mode) & ~static_cast<unsigned>(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (base > CUBLAS_TF32_TENSOR_OP_MATH) {
      report("cublasSetMathMode: the mode is unknown or not emulated");
      return CUBLAS_STATUS_INVALID_VALUE;
    }
    context->math = mode;
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
                            const void* alpha, const void* a, cudaDataType a_type, int lda, const void* b, cudaDataType b_type,
                            int ldb, const void* beta, void* c, cudaDataType c_type, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t algorithm) {
  return blas_call("cublasGemmEx", handle, [&] {
    return run(handle, {"cublasGemmEx", transa, transb, m,   n,   k,   alpha, a, b,       beta,     c,
                        a_type,         b_type, c_type, lda, ldb, ldc, false, 1, compute, algorithm});
  });
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
                                   const void* alpha, const void* const a[], cudaDataType a_type, int lda, const void* const b[],
                                   cudaDataType b_type, int ldb, const void* beta, void* const c[], cudaDataType c_type, int ldc,
                                   int batches, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return blas_call("cublasGemmBatchedEx", handle, [&] {
    return run(handle, {"cublasGemmBatchedEx",
                        transa,
                        transb,
                        m,
                        n,
                        k,
                        alpha,
                        a,
                        b,
                        beta,
                        const_cast<void**>(c),
                        a_type,
                        b_type,
                        c_type,
                        lda,
                        ldb,
                        ldc,
                        true,
                        batches,
                        compute,
                        algorithm});
  });
}

const char* cublasGetStatusName(cublasStatus_t status) {
  enter("cublasGetStatusName", -1);
  for (const Named& named : kStatuses) {
    if (named.status == status) return named.name;
  }
  return "unknown status";
}

const char* cublasGetStatusString(cublasStatus_t status) {
  enter("cublasGetStatusString", -1);
  for (const Named& named : kStatuses) {
    if (named.status == status) return named.text;
  }
  return "unknown status";
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  enter("cublasGetVersion_v2", -1);
  if (!version) return CUBLAS_STATUS_INVALID_VALUE;
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}
