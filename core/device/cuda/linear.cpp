// Linear on cuBLAS. Its matrices are column by column, so ours are read as their transposes: y^T = W x^T and so on.
// Forward is cuBLASLt's, which adds the bias while it stores; backward is plain cuBLAS, whose beta = 1 adds to the gradient.
// In bf16 and f16 both multiply rounded copies (of W the packed one, of x and dy in the workspace) and give f32.
#include "core/base/error.h"
#include "core/device/cuda/context.h"
#include "core/device/cuda/helpers.h"
#include "core/device/cuda/narrow.h"
#include "core/device/cuda/ops.h"

#include <algorithm>
#include <limits>

namespace gpipe::device::cuda {
namespace {

int to_int(int64_t extent) {
  if (extent > std::numeric_limits<int>::max())
    throw base::ConfigError("cuBLAS counts in 32 bits: an extent of {} is too large, use smaller micro-batches", extent);
  return static_cast<int>(extent);
}

class CudaLinear final : public WeightedOp {
 public:
  CudaLinear(const LinearSpec& spec, const Batches& batches, Context& context) : spec_(spec), context_(context) {
    context.queue().use();
    describe_product();
    for (int64_t batch : batches) {
      plans_.push_back(plan(batch));
      workspace_ = std::max({workspace_, spec.bias ? sum_columns_bytes(batch, spec.out_features) : 0,
                             factor_bytes(batch * spec.in_features) + factor_bytes(batch * spec.out_features)});
    }
  }

  size_t workspace_bytes() const override { return workspace_; }
  std::string implementation() const override { return "cublasLt:heuristic cublas:default"; }
  size_t packed_weight_bytes() const override { return factor_bytes(spec_.in_features * spec_.out_features); }
  size_t packed_gradient_bytes() const override { return 0; }
  void pack_weight(const TensorView& weight, std::byte* packed, std::byte*) override { read(weight, packed); }
  void unpack_gradient(const std::byte*, const TensorView&, std::byte*) override {}

  void forward(const TensorView& x, const Weight& w, const TensorView& bias, const TensorView& y, std::byte* workspace) override {
    context_.queue().use();
    const Plan& plan = of(x);
    if (fuses_bias()) set_bias(bias.data);
    const std::byte* from = read(x, workspace);
    const float one = 1, zero = 0;
    check(cublasLtMatmul(context_.blas_lt(), product_.get(), &one, weight_of(w), weight_.get(), from, plan.x.get(), &zero, y.data,
                         plan.y.get(), y.data, plan.y.get(), &plan.algorithm, context_.blas_workspace(),
                         Context::blas_workspace_bytes, context_.compute()),
          "cublasLtMatmul", context_.device());
    if (spec_.bias && !fuses_bias()) add_bias(context_.queue(), bias.f32(), x.shape[0], spec_.out_features, y.f32());
  }

  void backward_input(const TensorView& dy, const Weight& w, const TensorView& dx, std::byte* workspace) override {
    const int in = to_int(spec_.in_features), out = to_int(spec_.out_features), rows = to_int(dy.shape[0]);
    multiply(CUBLAS_OP_N, CUBLAS_OP_N, in, rows, out, weight_of(w), in, read(dy, workspace), out, 0, dx.data);
  }

  void backward_weight(const TensorView& x, const TensorView& dy, const WeightGradient& dw, const TensorView& dbias,
                       bool accumulate, std::byte* workspace) override {
    const int in = to_int(spec_.in_features), out = to_int(spec_.out_features), rows = to_int(dy.shape[0]);
    const std::byte *from_x = read(x, workspace), *from_dy = read(dy, workspace + factor_bytes(x.elements()));
    multiply(CUBLAS_OP_N, CUBLAS_OP_T, in, out, rows, from_x, in, from_dy, out, accumulate ? 1.0F : 0.0F, dw.plain.data);
    if (spec_.bias) sum_columns(context_.queue(), dy.f32(), rows, out, dbias.f32(), accumulate, workspace);
  }

 private:
  struct Plan {
    int64_t batch;
    MatrixLayout x, y;
    cublasLtMatmulAlgo_t algorithm;
  };

  template <class Value>
  void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute",
          context_.device());
  }
  MatrixLayout layout(int64_t rows, int64_t columns, cudaDataType type) const {
    return make<MatrixLayout>(cublasLtMatrixLayoutCreate, "cublasLtMatrixLayoutCreate", context_.device(), type,
                              static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows);
  }

  size_t factor_bytes(int64_t count) const { return context_.narrow() ? narrow_bytes(count) : 0; }
  const std::byte* weight_of(const Weight& w) const { return context_.narrow() ? w.packed : w.plain.data; }
  /// The factor as cuBLAS reads it; where it has to be rounded, at `to`.
  const std::byte* read(const TensorView& factor, std::byte* to) const {
    if (!context_.narrow()) return factor.data;
    narrow(context_.queue(), context_.precision(), factor.f32(), factor.elements(), to);
    return to;
  }

  // A weight, its bias and the output may be slices of larger ones (the projections of attention), at most the second half: the
  // shape says how they are aligned. cuBLASLt's kernels want a bias on 16 bytes and cannot be told otherwise.
  bool fuses_bias() const { return spec_.bias && spec_.out_features % 8 == 0; }
  bool aligned_to_16() const { return spec_.in_features % 4 == 0 && spec_.out_features % 8 == 0; }

  // y^T [out, N] = W [out, in] x^T [in, N]; W lies as [in, out] there.
  void describe_product() {
    product_ = make<MatmulDescription>(cublasLtMatmulDescCreate, "cublasLtMatmulDescCreate", context_.device(),
                                       context_.compute_type(), CUDA_R_32F);
    set(product_.get(), CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(product_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE, fuses_bias() ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT);
    if (fuses_bias()) set_bias(context_.blas_workspace());  // the heuristic wants to see one; each call sets its own
    weight_ = layout(spec_.in_features, spec_.out_features, context_.blas_factor());
  }
  void set_bias(const std::byte* bias) const {
    const void* pointer = bias;
    set(product_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer);
  }

  // The first of the heuristic's suggestions: a function of the shapes, the device and the library's version.
  Plan plan(int64_t batch) {
    const int device = context_.device();
    Plan plan{batch, layout(spec_.in_features, batch, context_.blas_factor()), layout(spec_.out_features, batch, CUDA_R_32F), {}};
    const auto preference = make<MatmulPreference>(cublasLtMatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate", device);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute", device);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{Context::blas_workspace_bytes});
    const uint32_t alignment = aligned_to_16() ? 16 : 4;             // an arena aligns to 64, and the default here is 256
    const uint32_t of_factors = context_.narrow() ? 16 : alignment;  // rounded copies are never slices
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of_factors);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of_factors);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(context_.blas_lt(), product_.get(), weight_.get(), plan.x.get(),
                                                                 plan.y.get(), plan.y.get(), preference.get(), 1, &found, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && count == 0))
      throw base::ConfigError("cuBLASLt cannot do this linear map: {} features to {}, {} rows", spec_.in_features,
                              spec_.out_features, batch);
    check(status, "cublasLtMatmulAlgoGetHeuristic", device);
    plan.algorithm = found.algo;
    return plan;
  }

  // c [m, n] = op(a) op(b) + beta c, column by column; c has no gaps.
  void multiply(cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, const void* a, int lda, const void* b,
                int ldb, float beta, void* c) const {
    context_.queue().use();
    const float one = 1;
    const cudaDataType factor = context_.blas_factor();
    check(cublasGemmEx(context_.blas(), op_a, op_b, m, n, k, &one, a, factor, lda, b, factor, ldb, &beta, c, CUDA_R_32F, m,
                       context_.compute_type(), CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx", context_.device());
  }

  const Plan& of(const TensorView& view) const {
    for (const Plan& plan : plans_)
      if (plan.batch == view.shape[0]) return plan;
    throw base::BugError("linear: {} rows were not planned", view.shape[0]);
  }

  LinearSpec spec_;
  Context& context_;
  MatmulDescription product_;
  MatrixLayout weight_;
  std::vector<Plan> plans_;
  size_t workspace_ = 0;
};

}  // namespace

std::unique_ptr<WeightedOp> make_linear(const LinearSpec& spec, const Batches& batches, Context& context) {
  return std::make_unique<CudaLinear>(spec, batches, context);
}

}  // namespace gpipe::device::cuda
