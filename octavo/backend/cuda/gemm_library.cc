// Rows of octavo's matrices are columns of the library's: out^T [N, M] = B [N, K] A^T [K, M], where
// what the library calls A is octavo's B, transposed, and its B is octavo's A as it is. For FP8
// that is the one layout there is.
#include "octavo/backend/cuda/gemm_library.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "octavo/backend/cuda/cublaslt.h"
#include "octavo/backend/cuda/gemm_plan.h"
#include "octavo/base/env.h"
#include "octavo/base/error.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

constexpr std::uint64_t kMostWorkspace = std::uint64_t{32} << 20;

bool is_aligned(const void* data, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

std::int64_t bytes_each(const Matrix& matrix) { return element_bytes(matrix.dtype, matrix.format); }

// Rows one after the other, at multiples of 16 bytes, and elements that 31 bits count: what the
// table was measured with.
bool has_usual_rows(const Matrix& matrix) {
  const std::int64_t each = bytes_each(matrix);
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  return matrix.rows <= kMost / std::max<std::int64_t>(matrix.row_pitch / each, 1) &&
         is_aligned(matrix.data, 16) && matrix.row_pitch % 16 == 0 &&
         matrix.row_pitch >= matrix.cols * each && (matrix.cols <= 1 || matrix.col_stride == each);
}

bool has_one_scale(const GemmOperand& operand) {
  if (!operand.is_quantized()) return true;
  const QuantizedMatrix& q = operand.quantized;
  return q.tensor_scale == nullptr && q.scales.dtype != DType::f64 &&
         tile_extent(q.tile.rows, operand.rows()) >= operand.rows() &&
         tile_extent(q.tile.cols, operand.cols()) >= operand.cols();
}

bool has_a_scale_a_row(const GemmOperand& operand) {
  const QuantizedMatrix& q = operand.quantized;
  return q.tensor_scale == nullptr && tile_extent(q.tile.rows, operand.rows()) == 1 &&
         tile_extent(q.tile.cols, operand.cols()) >= operand.cols() &&
         q.scales.row_pitch == sizeof(float) && is_aligned(q.scales.data, 16);
}

bool is_fp8(const Matrix& matrix) {
  return matrix.dtype == DType::code && (matrix.format == e4m3fn || matrix.format == e5m2);
}

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

// Whether sums are multiplied by scales that lie beside operands, or by one number (`alpha`).
bool is_scaled(const GemmJob& job) {
  const auto scaled = [](const GemmOperand& operand) {
    return operand.is_quantized() && operand.quantized.scales.data != scale_of_one();
  };
  return scaled(job.a) || scaled(job.b);
}

// All that the library's choice depends on.
struct Problem {
  std::int64_t m = 0, n = 0, k = 0, a_pitch = 0, b_pitch = 0, out_pitch = 0;
  std::int32_t a_type = 0, b_type = 0, out_type = 0, device = 0;
  std::int32_t a_alignment = 0, b_alignment = 0, out_alignment = 0;
  std::int32_t kind = 0;  // twice a GemmKind, and one where alpha is on the device

  bool operator==(const Problem&) const = default;
};
static_assert(std::has_unique_object_representations_v<Problem>);

struct ProblemHash {
  std::size_t operator()(const Problem& problem) const {
    std::uint64_t words[sizeof(Problem) / sizeof(std::uint64_t)], hash = 0;
    std::memcpy(words, &problem, sizeof problem);
    for (const std::uint64_t word : words) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return static_cast<std::size_t>(hash);
  }
};

// What the library wants to do for a problem, or that it does not want to.
struct Algorithm {
  bool usable = false;
  cublasLtMatmulAlgo_t chosen{};
  std::size_t workspace = 0;
};

// Asking the library takes it a long time beside a product, so answers are kept. When there are too
// many all are forgotten: a program that has so many shapes asks anew now and then.
class Answers {
 public:
  std::optional<Algorithm> find(const Problem& problem) {
    const std::lock_guard lock(guard_);
    const auto at = known_.find(problem);
    return at == known_.end() ? std::nullopt : std::optional(at->second);
  }
  void keep(const Problem& problem, const Algorithm& algorithm) {
    const std::lock_guard lock(guard_);
    if (known_.size() >= kMost) known_.clear();
    known_.insert_or_assign(problem, algorithm);
  }

 private:
  static constexpr std::size_t kMost = 4096;
  std::mutex guard_;
  std::unordered_map<Problem, Algorithm, ProblemHash> known_;
};

Answers& answers() {
  static Answers* const all = new Answers;  // never destroyed, as the library is not unloaded
  return *all;
}

// While this thread's stream is captured into a graph the library may still allocate for itself.
class Relaxed {
 public:
  Relaxed() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// A product in the library's words.
class Call {
 public:
  Call(const CublasLt& library, const Exec& exec, const GemmJob& job, GemmKind kind)
      : library_(library), job_(job) {
    const Matrix &a = job.a.elements(), &b = job.b.elements(), &out = job.out;
    const bool is_16_bits = kind == GemmKind::bf16 || kind == GemmKind::f16;
    alpha_there_ = is_16_bits && is_scaled(job);
    const auto alignment = [](const Matrix& matrix) {
      return is_aligned(matrix.data, 256) ? 256 : 16;
    };
    problem_ = {.m = a.rows,
                .n = b.rows,
                .k = a.cols,
                .a_pitch = a.row_pitch / bytes_each(a),
                .b_pitch = b.row_pitch / bytes_each(b),
                .out_pitch = out.row_pitch / bytes_each(out),
                .a_type = type_of(a),
                .b_type = type_of(b),
                .out_type = type_of(out),
                .device = exec.device.index,
                .a_alignment = alignment(a),
                .b_alignment = alignment(b),
                .out_alignment = alignment(out),
                .kind = static_cast<std::int32_t>(kind) * 2 + (alpha_there_ ? 1 : 0)};
    describe(kind, is_16_bits);
  }

  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] bool scales_by_alpha() const { return alpha_there_; }

  [[nodiscard]] Algorithm ask(cublasLtHandle_t handle) {
    Algorithm answer;
    cublasLtMatmulPreferenceOpaque_t preference{};
    good_ = good_ && library_.prefer(&preference, sizeof preference) == CUBLAS_STATUS_SUCCESS;
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      good_ = good_ && library_.set_preference(&preference, attribute, &value, sizeof value) ==
                           CUBLAS_STATUS_SUCCESS;
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMostWorkspace);
    // Parts of a sum meet in f32: in the type of the result each would be rounded.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE} | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    const auto number = [](std::int32_t alignment) {
      return static_cast<std::uint32_t>(alignment);
    };
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, number(problem_.b_alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, number(problem_.a_alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, number(problem_.out_alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, number(problem_.out_alignment));
    if (!good_) return answer;
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const cublasStatus_t status = library_.choose(handle, &description_, &b_, &a_, &out_, &out_,
                                                  &preference, 1, &found, &count);
    if (status != CUBLAS_STATUS_SUCCESS || count < 1 || found.state != CUBLAS_STATUS_SUCCESS ||
        found.workspaceSize > kMostWorkspace)
      return answer;
    return {.usable = true, .chosen = found.algo, .workspace = found.workspaceSize};
  }

  [[nodiscard]] cublasStatus_t queue(const Exec& exec, cublasLtHandle_t handle,
                                     const Algorithm& algorithm, void* workspace,
                                     const float* alpha_and_beta) {
    if (!good_) return CUBLAS_STATUS_NOT_SUPPORTED;
    static constexpr float kPlain[2] = {1.0F, 0.0F};
    const float* factors = alpha_there_ ? alpha_and_beta : kPlain;
    return library_.matmul(handle, &description_, factors, job_.b.elements().data, &b_,
                           job_.a.elements().data, &a_, factors + 1, job_.out.data, &out_,
                           job_.out.data, &out_, &algorithm.chosen, workspace, algorithm.workspace,
                           stream_of(exec));
  }

 private:
  void lay_out(cublasLtMatrixLayoutOpaque_t& to, std::int32_t type, std::int64_t rows,
               std::int64_t cols, std::int64_t pitch) {
    good_ =
        good_ && library_.lay_out(&to, sizeof to, static_cast<cudaDataType>(type),
                                  static_cast<std::uint64_t>(rows),
                                  static_cast<std::uint64_t>(cols), pitch) == CUBLAS_STATUS_SUCCESS;
  }
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    good_ = good_ &&
            library_.set(&description_, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
  }

  void describe(GemmKind kind, bool is_16_bits) {
    good_ = library_.describe(&description_, sizeof description_, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
            CUBLAS_STATUS_SUCCESS;
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

  const CublasLt& library_;
  const GemmJob& job_;
  Problem problem_{};
  bool alpha_there_ = false;
  bool good_ = false;  // the library took everything so far
  cublasLtMatmulDescOpaque_t description_{};
  cublasLtMatrixLayoutOpaque_t a_{}, b_{}, out_{};
};

std::atomic<int> forced{-1};

bool is_wanted(GemmKind kind, const GemmJob& job) {
  const int now = forced.load(std::memory_order_relaxed);
  if (now >= 0) return now == 1;
  static const std::optional<bool> asked = env_cuda_library_gemm();
  return asked.value_or(prefers_library(kind, job.a.rows(), job.b.rows(), job.a.cols()));
}

}  // namespace

const std::string& library_problem() { return cublaslt_problem(); }

std::optional<bool> force_library(std::optional<bool> wanted) {
  const int before = forced.exchange(wanted ? (*wanted ? 1 : 0) : -1, std::memory_order_relaxed);
  return before < 0 ? std::nullopt : std::optional(before == 1);
}

std::optional<GemmKind> library_kind(const GemmJob& job) {
  const Matrix &a = job.a.elements(), &b = job.b.elements(), &out = job.out;
  if (job.group_count > 0 || job.bias.data != nullptr || job.residual.data != nullptr ||
      job.activation || a.rows < 1 || b.rows < 1 || a.cols < 1)
    return std::nullopt;
  if (out.dtype != DType::bf16 && out.dtype != DType::f16 && out.dtype != DType::f32)
    return std::nullopt;
  const bool is_16_bits = (a.dtype == DType::bf16 || a.dtype == DType::f16) && a.dtype == b.dtype;
  const bool are_fp8 = is_fp8(a) && is_fp8(b) && (a.format == e4m3fn || b.format == e4m3fn);
  if ((!is_16_bits && !are_fp8) || !has_usual_rows(a) || !has_usual_rows(b) || !has_usual_rows(out))
    return std::nullopt;
  const bool have_one = has_one_scale(job.a) && has_one_scale(job.b);
  if (is_16_bits) {
    if (!have_one) return std::nullopt;
    return a.dtype == DType::bf16 ? GemmKind::bf16 : GemmKind::f16;
  }
  if (job.a.quantized.scales.dtype != DType::f32 || job.b.quantized.scales.dtype != DType::f32)
    return std::nullopt;
  if (have_one) return GemmKind::fp8_tensor;
  if (has_a_scale_a_row(job.a) && has_a_scale_a_row(job.b)) return GemmKind::fp8_row;
  return std::nullopt;
}

bool gemm_by_library(const Exec& exec, const GemmJob& job) {
  const std::optional<GemmKind> kind = library_kind(job);
  if (!kind) return false;
  const CublasLt* library = cublaslt();
  if (library == nullptr) {
    if (exec.log != nullptr)
      exec.log->once(text("[gemm] cuBLASLt would be faster for some products, but is not there (",
                          cublaslt_problem(), "); octavo's own kernels do them"));
    return false;
  }
  Call call(*library, exec, job, *kind);
  std::optional<Algorithm> algorithm = answers().find(call.problem());
  std::optional<Relaxed> relaxed;  // the first time, when the library also loads its kernels
  if (!algorithm) relaxed.emplace();
  const cublasLtHandle_t handle = cublaslt_handle(*library, exec);
  if (!algorithm) {
    algorithm = handle != nullptr ? call.ask(handle) : Algorithm{};
    answers().keep(call.problem(), *algorithm);
  }
  if (!algorithm->usable) return false;

  Exec aligned = exec, elsewhere = exec;
  elsewhere.workspace = {};
  if (!is_aligned(exec.workspace.data(), 256)) aligned.workspace = {};
  const Scratch workspace(aligned, algorithm->workspace);
  const Scratch factors(elsewhere, call.scales_by_alpha() ? 2 * sizeof(float) : 0);
  if (call.scales_by_alpha()) multiply_scales(exec, job, factors.as<float>());
  const cublasStatus_t status =
      call.queue(exec, handle, *algorithm, workspace.as<void>(), factors.as<float>());
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  check(status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
            status == CUBLAS_STATUS_ARCH_MISMATCH,
        ErrorCode::unsupported, "cuda", "cublasLtMatmul failed with ", library->status_text(status),
        "; OCTAVO_CUDA_LIBRARY_GEMM=0 does without it");
  answers().keep(call.problem(), {});  // it declines after all
  return false;
}

bool gemm_by_chosen_library(const Exec& exec, const GemmJob& job) {
  if (job.accumulator != Accumulator::native ||
      (job.out.dtype != DType::bf16 && job.out.dtype != DType::f16))
    return false;
  const std::optional<GemmKind> kind = library_kind(job);
  return kind && is_wanted(*kind, job) && gemm_by_library(exec, job);
}

}  // namespace octavo::cuda
