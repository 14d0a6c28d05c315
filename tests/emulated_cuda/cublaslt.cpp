// cuBLASLt: products with an epilogue, and the choice of an algorithm.
//
// Two algorithms: 0 sums over k at once, 1 in four parts (and gives other last bits), with a workspace. Epilogues: DEFAULT, RELU,
// BIAS, RELU_BIAS; the others are NOT_SUPPORTED.
#include "tests/emulated_cuda/cublaslt_types.h"
#include "tests/emulated_cuda/gemm.h"
#include "tests/emulated_cuda/stream.h"

#include <algorithm>

namespace gpipe::emulated {

namespace {

constexpr uint64_t kMagic = 0x6770697065616c67;
constexpr int kParts = 4;

/// What a call on one product describes.
struct Problem {
  const char* call = "";
  MatmulDescriptor op;
  MatrixLayout a, b, c, d;
  int64_t m() const { return static_cast<int64_t>(d.rows); }
  int64_t n() const { return static_cast<int64_t>(d.cols); }
  int64_t k() const { return static_cast<int64_t>(op.transa == CUBLAS_OP_N ? a.cols : a.rows); }
  bool has_bias() const { return (op.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
};

Number number_of(uint32_t type) { return type == CUDA_R_32F ? Number::f32 : type == CUDA_R_16BF ? Number::bf16 : Number::f16; }

bool read_problem(Problem& p, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                  cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  return read_object(p.call, "the matmul descriptor", op, p.op) && read_object(p.call, "Adesc", a, p.a) &&
         read_object(p.call, "Bdesc", b, p.b) && read_object(p.call, "Cdesc", c, p.c) && read_object(p.call, "Ddesc", d, p.d);
}

std::string fault_in_layout(const MatrixLayout& layout) {
  if (layout.ld < std::max<int64_t>(1, static_cast<int64_t>(layout.rows))) return "a leading dimension is below the rows";
  if (layout.batches < 1 || layout.stride < 0) return "a number of matrices is not positive, or a stride negative";
  return "";
}

/// "" or what makes the configuration impossible.
std::string fault_in_shape(const Problem& p) {
  for (const MatrixLayout* layout : {&p.a, &p.b, &p.c, &p.d}) {
    if (const std::string fault = fault_in_layout(*layout); !fault.empty()) return fault;
    if (layout->batches != p.d.batches) return "the layouts differ in their number of matrices";
  }
  const bool ta = p.op.transa != CUBLAS_OP_N;
  const bool tb = p.op.transb != CUBLAS_OP_N;
  if (p.c.rows != p.d.rows || p.c.cols != p.d.cols) return "C and D differ in size";
  if ((ta ? p.a.cols : p.a.rows) != p.d.rows) return "op(A) and D differ in rows";
  if ((tb ? p.b.rows : p.b.cols) != p.d.cols) return "op(B) and D differ in columns";
  if ((tb ? p.b.cols : p.b.rows) != static_cast<uint64_t>(p.k())) return "the columns of op(A) are not the rows of op(B)";
  if (p.has_bias() && !p.op.bias) return "the epilogue adds a bias, but CUBLASLT_MATMUL_DESC_BIAS_POINTER is not set";
  return "";
}

/// "" or what the documentation has not, or the emulation.
std::string unsupported(const Problem& p) {
  for (const MatrixLayout* layout : {&p.a, &p.b, &p.c, &p.d}) {
    if (layout->order != CUBLASLT_ORDER_COL) return "orders other than CUBLASLT_ORDER_COL are not emulated";
  }
  if (p.op.pointer_mode != CUBLASLT_POINTER_MODE_HOST) return "pointer modes other than the host's are not emulated";
  const uint32_t in = p.a.type;
  const bool half = in == CUDA_R_16BF || in == CUDA_R_16F;
  const bool types = p.b.type == in && p.c.type == p.d.type &&
                     (in == CUDA_R_32F ? p.d.type == in : half && (p.d.type == in || p.d.type == CUDA_R_32F));
  const bool plain = p.op.compute == CUBLAS_COMPUTE_32F || p.op.compute == CUBLAS_COMPUTE_32F_PEDANTIC;
  const bool fast =
      in == CUDA_R_32F && (p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32 || p.op.compute == CUBLAS_COMPUTE_32F_FAST_16BF ||
                           p.op.compute == CUBLAS_COMPUTE_32F_FAST_16F);
  if (!types || (!plain && !fast)) return "this combination of types and compute type is not supported or not emulated";
  if (p.has_bias() && p.op.bias_type != -1 && static_cast<uint32_t>(p.op.bias_type) != p.d.type)
    return "the bias must have the type of D";
  switch (p.op.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS: return "";
    default: return "epilogue " + std::to_string(p.op.epilogue) + " is not emulated";
  }
}

cublasStatus_t check(const Problem& p) {
  if (const std::string fault = fault_in_shape(p); !fault.empty()) return refuse_lt(p.call, CUBLAS_STATUS_INVALID_VALUE, fault);
  if (const std::string why = unsupported(p); !why.empty()) return refuse_lt(p.call, CUBLAS_STATUS_NOT_SUPPORTED, why);
  return CUBLAS_STATUS_SUCCESS;
}

/// What an algorithm was chosen for.
uint64_t key_of(const Problem& p) {
  uint64_t key = mix(p.op.compute, p.op.epilogue, static_cast<uint64_t>(p.op.transa * 4 + p.op.transb));
  for (const MatrixLayout* layout : {&p.a, &p.b, &p.c, &p.d}) {
    key = mix(key, layout->rows, layout->cols);
    key = mix(key, static_cast<uint64_t>(layout->ld), layout->type);
    key = mix(key, static_cast<uint64_t>(layout->batches), static_cast<uint64_t>(layout->stride));
  }
  return key;
}

size_t workspace_of(const Problem& p, int algorithm) {
  return algorithm == 0 ? 0 : sizeof(float) * kParts * static_cast<size_t>(p.m() * p.n()) * static_cast<size_t>(p.d.batches);
}

cublasLtMatmulHeuristicResult_t result_of(const Problem& p, int algorithm, const MatmulPreference& preference) {
  cublasLtMatmulHeuristicResult_t result = {};
  result.algo.data[0] = kMagic;
  result.algo.data[1] = static_cast<uint64_t>(algorithm);
  result.algo.data[2] = key_of(p);
  for (int i = 0; i < 4; ++i) result.algo.data[3 + i] = preference.alignment[i];
  result.workspaceSize = workspace_of(p, algorithm);
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1.0f;
  return result;
}

cublasStatus_t suggest(const Problem& p, const MatmulPreference& preference, int requested,
                       cublasLtMatmulHeuristicResult_t* results, int* returned) {
  if (!results || !returned || requested < 1) {
    return refuse_lt(p.call, CUBLAS_STATUS_INVALID_VALUE, "no algorithm was requested, or the place for results is null");
  }
  *returned = 0;
  const bool parts = p.k() >= 64 && workspace_of(p, 1) <= preference.max_workspace;
  if (parts) results[(*returned)++] = result_of(p, 1, preference);
  if (*returned < requested) results[(*returned)++] = result_of(p, 0, preference);
  return CUBLAS_STATUS_SUCCESS;
}

/// "" or why the algorithm may not be used for this call.
std::string fault_in_algorithm(const Problem& p, const cublasLtMatmulAlgo_t& algorithm, const void* (&matrices)[4],
                               void* workspace, size_t workspace_bytes) {
  if (algorithm.data[0] != kMagic || algorithm.data[1] > 1) return "the algorithm is none of cublasLtMatmulAlgoGetHeuristic";
  if (algorithm.data[2] != key_of(p)) return "the algorithm was chosen for another problem";
  const size_t wanted = workspace_of(p, static_cast<int>(algorithm.data[1]));
  if (workspace_bytes < wanted || (wanted > 0 && !workspace)) {
    return "the workspace has " + std::to_string(workspace_bytes) + " bytes, the algorithm wants " + std::to_string(wanted);
  }
  for (int i = 0; i < 4; ++i) {
    if (reinterpret_cast<uintptr_t>(matrices[i]) % algorithm.data[3 + i] == 0) continue;
    return std::string("the algorithm was chosen for ") + "ABCD"[i] + " aligned to " + std::to_string(algorithm.data[3 + i]) +
           " bytes (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT), " + shown(matrices[i]) + " is not";
  }
  return "";
}

Matrix matrix_of(const void* data, const MatrixLayout& layout) {
  return {data,          number_of(layout.type), static_cast<int64_t>(layout.rows), static_cast<int64_t>(layout.cols), layout.ld,
          layout.stride, layout.batches};
}

Rounding rounding_of(cublasComputeType_t compute) {
  switch (compute) {
    case CUBLAS_COMPUTE_32F_FAST_TF32: return Rounding::tf32;
    case CUBLAS_COMPUTE_32F_FAST_16BF: return Rounding::bf16;
    case CUBLAS_COMPUTE_32F_FAST_16F: return Rounding::f16;
    default: return Rounding::none;
  }
}

Product product_of(const Problem& p, float alpha, float beta, const void* (&matrices)[4]) {
  Product product;
  product.call = p.call;
  product.m = p.m();
  product.n = p.n();
  product.k = p.k();
  product.transpose_a = p.op.transa != CUBLAS_OP_N;
  product.transpose_b = p.op.transb != CUBLAS_OP_N;
  product.a = matrix_of(matrices[0], p.a);
  product.b = matrix_of(matrices[1], p.b);
  product.c = matrix_of(matrices[2], p.c);
  product.d = matrix_of(matrices[3], p.d);
  product.alpha = alpha;
  product.beta = beta;
  product.rounding = rounding_of(p.op.compute);
  product.relu = (p.op.epilogue & CUBLASLT_EPILOGUE_RELU) != 0;
  if (p.has_bias()) product.bias = p.op.bias;
  product.bias_type = number_of(p.d.type);
  product.bias_stride = p.op.bias_stride;
  return product;
}

cublasStatus_t enqueue(const Problem& p, const LtHandle& handle, Product product, cudaStream_t to) {
  auto task = make_task(p.call, [product] { multiply(product); });
  Lock lock;
  CUstream_st* stream = find_stream(p.call, to);
  if (!stream) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (handle.device != current_device() || stream->device != handle.device) {
    report(std::string(p.call) + ": the handle is of device " + std::to_string(handle.device) + ", the stream of device " +
           std::to_string(stream->device) + ", and the current device is " + std::to_string(current_device()));
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  if (product.m == 0 || product.n == 0) return CUBLAS_STATUS_SUCCESS;
  if (!check_product(product, handle.device)) {
    break_device(handle.device, cudaErrorIllegalAddress);
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  push(*stream, std::move(task), touched_by(product));
  return CUBLAS_STATUS_SUCCESS;
}

int device_of_lt(cublasLtHandle_t handle) {
  ensure_ready();
  Lock lock;
  const auto found = state().objects.find(handle);
  return found != state().objects.end() ? found->second.device : current_device();
}

}  // namespace

}  // namespace gpipe::emulated

using namespace gpipe::emulated;

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  const char* call = "cublasLtMatmulAlgoGetHeuristic";
  return lt_call(call, device_of_lt(handle), [&] {
    LtHandle context;
    MatmulPreference wanted;
    Problem p;
    p.call = call;
    if (!read_object(call, "handle", handle, context)) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!read_problem(p, op, a, b, c, d) || !read_object(call, "preference", preference, wanted))
      return CUBLAS_STATUS_INVALID_VALUE;
    if (const cublasStatus_t status = check(p); status != CUBLAS_STATUS_SUCCESS) return status;
    return suggest(p, wanted, requested, results, returned);
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  const char* call = "cublasLtMatmul";
  return lt_call(call, device_of_lt(handle), [&] {
    LtHandle context;
    Problem p;
    p.call = call;
    if (!read_object(call, "handle", handle, context)) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!read_problem(p, op, a_layout, b_layout, c_layout, d_layout)) return CUBLAS_STATUS_INVALID_VALUE;
    if (const cublasStatus_t status = check(p); status != CUBLAS_STATUS_SUCCESS) return status;
    if (!alpha || !beta) return refuse_lt(call, CUBLAS_STATUS_INVALID_VALUE, "alpha or beta is null");
    const void* matrices[4] = {a, b, c, d};
    Product product = product_of(p, *static_cast<const float*>(alpha), *static_cast<const float*>(beta), matrices);
    if (product.beta == 0) matrices[2] = nullptr;  // C is not read
    if (algorithm) {
      const std::string fault = fault_in_algorithm(p, *algorithm, matrices, workspace, workspace_bytes);
      if (!fault.empty()) return refuse_lt(call, CUBLAS_STATUS_INVALID_VALUE, fault);
      product.parts = algorithm->data[1] == 1 ? kParts : 1;
    }
    if (workspace && reinterpret_cast<uintptr_t>(workspace) % 256 != 0) {
      return refuse_lt(call, CUBLAS_STATUS_INVALID_VALUE, "the workspace is not aligned to 256 bytes");
    }
    product.workspace = workspace_bytes ? workspace : nullptr;
    product.workspace_bytes = workspace_bytes;
    return enqueue(p, context, product, stream);
  });
}
