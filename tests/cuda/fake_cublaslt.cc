// A fake cuBLASLt for machines without a device: takes a product by the documented API and computes
// it on the CPU. Matrices are column-major; A is m x k after transposition, B is k x n, D is m x n.
#include "tests/cuda/fake_cublaslt.h"

#include <cmath>
#include <cstring>
#include <new>

namespace {

using octavo::testing::FakeCublasLt;

struct Description {
  std::int32_t trans_a = CUBLAS_OP_N, trans_b = CUBLAS_OP_N;
  std::int32_t pointers = CUBLASLT_POINTER_MODE_HOST;
  std::int32_t a_mode = 0, b_mode = 0;
  std::int8_t fast = -1;
  const float *a_scale = nullptr, *b_scale = nullptr;
};
struct Layout {
  cudaDataType type;
  std::uint64_t rows, cols;
  std::int64_t pitch;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = 7, a = 256, b = 256, c = 256, d = 256;
};

template <typename T, typename Opaque>
T& in(Opaque* opaque) {
  static_assert(sizeof(T) <= sizeof(Opaque));
  return *reinterpret_cast<T*>(opaque);
}

template <typename T>
cublasStatus_t take(T& to, const void* from, std::size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

double eight_bits(unsigned code, int mantissa, int bias) {
  const int exponent = static_cast<int>(code >> mantissa & ((1u << (7 - mantissa)) - 1)),
            fraction = static_cast<int>(code & ((1u << mantissa) - 1)),
            whole = exponent == 0 ? fraction : fraction + (1 << mantissa);
  const double value = std::ldexp(whole, (exponent == 0 ? 1 : exponent) - bias - mantissa);
  return (code & 0x80) != 0 ? -value : value;
}

double number(const void* data, cudaDataType type, std::int64_t at) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  if (type == CUDA_R_8F_E4M3) return eight_bits(bytes[at], 3, 7);
  if (type == CUDA_R_8F_E5M2) return eight_bits(bytes[at], 2, 15);
  std::uint16_t half = 0;  // bf16: the upper half of an f32
  std::memcpy(&half, bytes + 2 * at, 2);
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float value = 0;
  std::memcpy(&value, &bits, 4);
  return static_cast<double>(value);
}

bool is_known(cudaDataType type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2 || type == CUDA_R_16BF;
}

constexpr std::uint64_t kAlgorithm = 0xF00D;

}  // namespace

extern "C" {

FakeCublasLt fake_cublaslt;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int there = 0;
  if (fake_cublaslt.handle != CUBLAS_STATUS_SUCCESS) return fake_cublaslt.handle;
  *handle = reinterpret_cast<cublasLtHandle_t>(&there);
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "no memory";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "a wrong value";
    default:
      return "what the stand-in was told to say";
  }
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t to, std::size_t bytes,
                                               cublasComputeType_t compute, cudaDataType scale) {
  if (bytes < sizeof(Description) || compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
    return CUBLAS_STATUS_INVALID_VALUE;
  new (to) Description;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t of,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* from, std::size_t bytes) {
  auto& to = in<Description>(of);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(to.trans_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(to.trans_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return take(to.pointers, from, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return take(to.fast, from, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
      return take(to.a_mode, from, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
      return take(to.b_mode, from, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return take(to.a_scale, from, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return take(to.b_scale, from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t to, std::size_t bytes,
                                                 cudaDataType type, std::uint64_t rows,
                                                 std::uint64_t cols, std::int64_t pitch) {
  if (bytes < sizeof(Layout) || pitch < static_cast<std::int64_t>(rows))
    return CUBLAS_STATUS_INVALID_VALUE;
  new (to) Layout{type, rows, cols, pitch};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t to,
                                                     std::size_t bytes) {
  if (bytes < sizeof(Preference)) return CUBLAS_STATUS_INVALID_VALUE;
  new (to) Preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t of,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* from, std::size_t bytes) {
  auto& to = in<Preference>(of);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(to.workspace, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(to.reductions, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(to.a, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(to.b, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(to.c, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(to.d, from, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  ++fake_cublaslt.asked;
  const auto& asked = in<Preference>(preference);
  fake_cublaslt.most_workspace = asked.workspace;
  fake_cublaslt.reductions = asked.reductions;
  fake_cublaslt.a_alignment = asked.a;
  fake_cublaslt.b_alignment = asked.b;
  fake_cublaslt.d_alignment = asked.c == asked.d ? asked.d : 0;
  *count = 0;
  if (fake_cublaslt.answer != CUBLAS_STATUS_SUCCESS) return fake_cublaslt.answer;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *count = 1;
  results[0] = {};
  results[0].algo.data[0] = kAlgorithm;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void*, std::size_t,
                              cudaStream_t) {
  const auto& how = in<Description>(description);
  const auto &x = in<Layout>(a_layout), &y = in<Layout>(b_layout), &z = in<Layout>(d_layout);
  ++fake_cublaslt.queued;
  fake_cublaslt.fast_accumulation = how.fast;
  fake_cublaslt.a_scale_mode = how.a_mode;
  if (fake_cublaslt.status != CUBLAS_STATUS_SUCCESS) return fake_cublaslt.status;
  // The only layout that FP8 has (TN), and the only one accepted here.
  if (how.trans_a != CUBLAS_OP_T || how.trans_b != CUBLAS_OP_N || x.rows != y.rows ||
      x.cols != z.rows || y.cols != z.cols || !is_known(x.type) || !is_known(y.type) ||
      z.type != CUDA_R_32F || how.pointers != CUBLASLT_POINTER_MODE_HOST ||
      how.a_mode != how.b_mode || algorithm->data[0] != kAlgorithm || c != d ||
      *static_cast<const float*>(beta) != 0.0F)
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool by_row = how.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  const auto scale = [&](const float* scales, std::int64_t at) {
    return scales == nullptr ? 1.0 : static_cast<double>(scales[by_row ? at : 0]);
  };
  const auto depth = static_cast<std::int64_t>(x.rows);
  for (std::int64_t j = 0; j < static_cast<std::int64_t>(z.cols); ++j)
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(z.rows); ++i) {
      double sum = 0;
      for (std::int64_t k = 0; k < depth; ++k)
        sum += number(a, x.type, i * x.pitch + k) * number(b, y.type, j * y.pitch + k);
      static_cast<float*>(d)[j * z.pitch + i] =
          static_cast<float>(static_cast<double>(*static_cast<const float*>(alpha)) * sum *
                             scale(how.a_scale, i) * scale(how.b_scale, j));
    }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
