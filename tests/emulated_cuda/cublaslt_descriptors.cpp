// cuBLASLt: handles, descriptors and their attributes.
#include "tests/emulated_cuda/cublaslt_types.h"

#include <cstring>

namespace gpipe::emulated {

namespace {

template <class Body, class Handle>
void give_out(Handle* out, Kind kind, std::shared_ptr<Body> body) {
  *out = reinterpret_cast<Handle>(body.get());
  Lock lock;
  add_object(body.get(), kind, current_device(), body);
}

cublasStatus_t destroy(const char* call, const void* handle, Kind kind) {
  return lt_call(call, -1, [&] {
    Lock lock;
    return end_object(call, "descriptor", handle, kind) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
  });
}

/// Copies an attribute of exactly the field's size.
template <class Field>
cublasStatus_t assign(const char* call, Field& field, const void* from, size_t bytes) {
  if (bytes != sizeof field) {
    report(std::string(call) + ": the attribute has " + std::to_string(sizeof field) + " bytes, not " + std::to_string(bytes));
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  std::memcpy(&field, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t not_emulated(const char* call, int attribute) {
  report(std::string(call) + ": attribute " + std::to_string(attribute) + " is not emulated");
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

/// Finds the object to change and calls `set` on it, under Lock.
template <class Body, class Set>
cublasStatus_t change(const char* call, const void* handle, Kind kind, const void* from, Set&& set) {
  return lt_call(call, -1, [&] {
    Lock lock;
    const Object* object = find_object(call, "descriptor", handle, kind);
    if (!object || !from) return CUBLAS_STATUS_INVALID_VALUE;
    return set(*static_cast<Body*>(object->body.get()));
  });
}

}  // namespace

cublasStatus_t refuse_lt(const char* call, cublasStatus_t status, const std::string& why) {
  report_unlocked(std::string(call) + ": " + why);
  return status;
}

bool read_object(const char* call, const char* argument, cublasLtMatmulDesc_t descriptor, MatmulDescriptor& out) {
  return read(call, argument, descriptor, Kind::matmul, out);
}
bool read_object(const char* call, const char* argument, cublasLtMatrixLayout_t descriptor, MatrixLayout& out) {
  return read(call, argument, descriptor, Kind::layout, out);
}
bool read_object(const char* call, const char* argument, cublasLtMatmulPreference_t descriptor, MatmulPreference& out) {
  return read(call, argument, descriptor, Kind::preference, out);
}
bool read_object(const char* call, const char* argument, cublasLtHandle_t handle, LtHandle& out) {
  return read(call, argument, handle, Kind::cublas_lt, out);
}

}  // namespace gpipe::emulated

using namespace gpipe::emulated;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return lt_call("cublasLtCreate", current_device(), [&] {
    if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
    auto body = std::make_shared<LtHandle>();
    body->device = current_device();
    give_out(handle, Kind::cublas_lt, body);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy("cublasLtDestroy", handle, Kind::cublas_lt); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* descriptor, cublasComputeType_t compute,
                                        cudaDataType_t scale_type) {
  const char* call = "cublasLtMatmulDescCreate";
  return lt_call(call, -1, [&] {
    if (!descriptor) return CUBLAS_STATUS_INVALID_VALUE;
    if (scale_type != CUDA_R_32F) return refuse_lt(call, CUBLAS_STATUS_NOT_SUPPORTED, "scales other than f32 are not emulated");
    auto body = std::make_shared<MatmulDescriptor>();
    body->compute = compute;
    body->scale_type = scale_type;
    give_out(descriptor, Kind::matmul, body);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
  return destroy("cublasLtMatmulDescDestroy", descriptor, Kind::matmul);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t attribute,
                                              const void* from, size_t bytes) {
  const char* call = "cublasLtMatmulDescSetAttribute";
  return change<MatmulDescriptor>(call, descriptor, Kind::matmul, from, [&](MatmulDescriptor& body) {
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA: return assign(call, body.transa, from, bytes);
      case CUBLASLT_MATMUL_DESC_TRANSB: return assign(call, body.transb, from, bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE: return assign(call, body.epilogue, from, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return assign(call, body.bias, from, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return assign(call, body.bias_stride, from, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return assign(call, body.bias_type, from, bytes);
      case CUBLASLT_MATMUL_DESC_POINTER_MODE: return assign(call, body.pointer_mode, from, bytes);
      default: return not_emulated(call, attribute);
    }
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows, uint64_t cols,
                                          int64_t ld) {
  return lt_call("cublasLtMatrixLayoutCreate", -1, [&] {
    if (!layout) return CUBLAS_STATUS_INVALID_VALUE;
    auto body = std::make_shared<MatrixLayout>();
    body->type = type;
    body->rows = rows;
    body->cols = cols;
    body->ld = ld;
    give_out(layout, Kind::layout, body);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy("cublasLtMatrixLayoutDestroy", layout, Kind::layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* from, size_t bytes) {
  const char* call = "cublasLtMatrixLayoutSetAttribute";
  return change<MatrixLayout>(call, layout, Kind::layout, from, [&](MatrixLayout& body) {
    switch (attribute) {
      case CUBLASLT_MATRIX_LAYOUT_TYPE: return assign(call, body.type, from, bytes);
      case CUBLASLT_MATRIX_LAYOUT_ORDER: return assign(call, body.order, from, bytes);
      case CUBLASLT_MATRIX_LAYOUT_ROWS: return assign(call, body.rows, from, bytes);
      case CUBLASLT_MATRIX_LAYOUT_COLS: return assign(call, body.cols, from, bytes);
      case CUBLASLT_MATRIX_LAYOUT_LD: return assign(call, body.ld, from, bytes);
      case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return assign(call, body.batches, from, bytes);
      case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return assign(call, body.stride, from, bytes);
      default: return not_emulated(call, attribute);
    }
  });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return lt_call("cublasLtMatmulPreferenceCreate", -1, [&] {
    if (!preference) return CUBLAS_STATUS_INVALID_VALUE;
    give_out(preference, Kind::preference, std::make_shared<MatmulPreference>());
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy("cublasLtMatmulPreferenceDestroy", preference, Kind::preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* from,
                                                    size_t bytes) {
  const char* call = "cublasLtMatmulPreferenceSetAttribute";
  return change<MatmulPreference>(call, preference, Kind::preference, from, [&](MatmulPreference& body) {
    switch (attribute) {
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return assign(call, body.max_workspace, from, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return assign(call, body.alignment[0], from, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return assign(call, body.alignment[1], from, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return assign(call, body.alignment[2], from, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return assign(call, body.alignment[3], from, bytes);
      default: return not_emulated(call, attribute);
    }
  });
}
