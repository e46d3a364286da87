#include "octavo/backend/cuda/gemm/cublaslt/gemm_cublaslt_call.h"

#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr std::uint64_t kMaxWorkspace = std::uint64_t{32} << 20;

cudaDataType type_of(const Matrix& matrix) {
  switch (matrix.dtype) {
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    case DType::f32:
      return CUDA_R_32F;
    default:
      return matrix.format == e4m3fn ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
  }
}

std::int32_t alignment_of(const Matrix& matrix) { return is_aligned(matrix.data, 256) ? 256 : 16; }

std::int64_t pitch_of(const Matrix& matrix) {
  return matrix.row_pitch / element_bytes(matrix.dtype, matrix.format);
}

bool is_scaled(const GemmOperand& operand) {
  return operand.is_quantized() && operand.quantized.scales.data != scale_of_one();
}

}  // namespace

bool is_about_problem(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS || status == CUBLAS_STATUS_NOT_SUPPORTED ||
         status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_ARCH_MISMATCH;
}

CublasLtCall::CublasLtCall(const CublasLt& library, const Exec& exec, const GemmJob& job,
                           GemmKind kind)
    : library_(library), job_(job) {
  const Matrix &a = job.a.elements(), &b = job.b.elements(), &out = job.out;
  const bool is_16_bits = kind == GemmKind::bf16 || kind == GemmKind::f16;
  alpha_there_ = is_16_bits && (is_scaled(job.a) || is_scaled(job.b));
  problem_ = {.m = a.rows,
              .n = b.rows,
              .k = a.cols,
              .a_pitch = pitch_of(a),
              .b_pitch = pitch_of(b),
              .out_pitch = pitch_of(out),
              .a_type = type_of(a),
              .b_type = type_of(b),
              .out_type = type_of(out),
              .device = exec.device.index,
              .a_alignment = alignment_of(a),
              .b_alignment = alignment_of(b),
              .out_alignment = alignment_of(out),
              .kind = static_cast<std::int32_t>(kind) * 2 + (alpha_there_ ? 1 : 0)};
  describe(kind, is_16_bits);
}

template <typename Step>
void CublasLtCall::take(Step&& step) {
  if (status_ == CUBLAS_STATUS_SUCCESS) status_ = step();
}

void CublasLtCall::lay_out(cublasLtMatrixLayoutOpaque_t& to, std::int32_t type, std::int64_t rows,
                           std::int64_t cols, std::int64_t pitch) {
  take([&] {
    return library_.lay_out(&to, sizeof to, static_cast<cudaDataType>(type),
                            static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(cols),
                            pitch);
  });
}

template <typename T>
void CublasLtCall::set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
  take([&] { return library_.set(&description_, attribute, &value, sizeof value); });
}

void CublasLtCall::describe(GemmKind kind, bool is_16_bits) {
  take([&] {
    return library_.describe(&description_, sizeof description_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  });
  lay_out(a_, problem_.a_type, problem_.k, problem_.m, problem_.a_pitch);
  lay_out(b_, problem_.b_type, problem_.k, problem_.n, problem_.b_pitch);
  lay_out(out_, problem_.out_type, problem_.n, problem_.m, problem_.out_pitch);
  set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{CUBLAS_OP_T});
  set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{CUBLAS_OP_N});
  if (is_16_bits) {
    if (alpha_there_)
      set(CUBLASLT_MATMUL_DESC_POINTER_MODE, std::int32_t{CUBLASLT_POINTER_MODE_DEVICE});
    return;
  }
  set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{0});
  if (kind == GemmKind::fp8_row) {
    constexpr std::int32_t kRows = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kRows);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kRows);
  }
  const void *a = job_.a.quantized.scales.data, *b = job_.b.quantized.scales.data;
  set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b);
  set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a);
}

CublasLtAnswer CublasLtCall::ask(cublasLtHandle_t handle) {
  cublasLtMatmulPreferenceOpaque_t preference{};
  take([&] { return library_.prefer(&preference, sizeof preference); });
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    take([&] { return library_.set_preference(&preference, attribute, &value, sizeof value); });
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspace);
  // Split-K partial sums are reduced in f32; a reduction in the output type would round each of
  // them.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE} | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  const auto number = [](std::int32_t alignment) { return static_cast<std::uint32_t>(alignment); };
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, number(problem_.b_alignment));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, number(problem_.a_alignment));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, number(problem_.out_alignment));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, number(problem_.out_alignment));
  if (status_ != CUBLAS_STATUS_SUCCESS) return {.status = status_};
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status = library_.choose(handle, &description_, &b_, &a_, &out_, &out_,
                                                &preference, 1, &found, &count);
  if (status != CUBLAS_STATUS_SUCCESS) return {.status = status};
  if (count < 1 || found.workspaceSize > kMaxWorkspace)
    return {.status = CUBLAS_STATUS_NOT_SUPPORTED};
  if (found.state != CUBLAS_STATUS_SUCCESS) return {.status = found.state};
  return {.algorithm = {.usable = true, .chosen = found.algo, .workspace = found.workspaceSize}};
}

cublasStatus_t CublasLtCall::queue(const Exec& exec, cublasLtHandle_t handle,
                                   const CublasLtAlgorithm& algorithm, void* workspace,
                                   const float* alpha_and_zero) {
  if (status_ != CUBLAS_STATUS_SUCCESS) return status_;
  static constexpr float kPlain[2] = {1.0F, 0.0F};
  const float* factors = alpha_there_ ? alpha_and_zero : kPlain;
  return library_.matmul(handle, &description_, factors, job_.b.elements().data, &b_,
                         job_.a.elements().data, &a_, factors + 1, job_.out.data, &out_,
                         job_.out.data, &out_, &algorithm.chosen, workspace, algorithm.workspace,
                         stream_of(exec));
}

}  // namespace octavo::cuda
