#include "octavo/backend/cuda/gemm/gemm_cublaslt.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "octavo/backend/cuda/gemm/cublaslt/gemm_cublaslt_call.h"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/base/env.h"
#include "octavo/base/error.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

// Dense rows at multiples of 16 bytes, and fewer than 2^31 elements: what the table was measured
// with.
bool has_usual_rows(const Matrix& matrix) {
  const std::int64_t each = element_bytes(matrix.dtype, matrix.format);
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  return matrix.rows <= kMax / std::max<std::int64_t>(matrix.row_pitch / each, 1) &&
         has_aligned_pitch(matrix, 16) && matrix.row_pitch >= matrix.cols * each &&
         (matrix.cols <= 1 || matrix.col_stride == each);
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
  return matrix.dtype == DType::code && is_fp8_format(matrix.format);
}

struct ProblemHash {
  std::size_t operator()(const CublasLtProblem& problem) const {
    std::uint64_t words[sizeof(CublasLtProblem) / sizeof(std::uint64_t)], hash = 0;
    std::memcpy(words, &problem, sizeof problem);
    for (const std::uint64_t word : words) {
      hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return static_cast<std::size_t>(hash);
  }
};

// Cache of heuristic results. The heuristic takes long compared with a GEMM. A full cache is
// cleared: a program with that many shapes asks again now and then.
class Answers {
 public:
  std::optional<CublasLtAlgorithm> find(const CublasLtProblem& problem) {
    const std::lock_guard lock(guard_);
    const auto at = known_.find(problem);
    return at == known_.end() ? std::nullopt : std::optional(at->second);
  }
  void keep(const CublasLtProblem& problem, const CublasLtAlgorithm& algorithm) {
    const std::lock_guard lock(guard_);
    if (known_.size() >= kMax) known_.clear();
    known_.insert_or_assign(problem, algorithm);
  }

 private:
  static constexpr std::size_t kMax = 4096;
  std::mutex guard_;
  std::unordered_map<CublasLtProblem, CublasLtAlgorithm, ProblemHash> known_;
};

Answers& answers() {
  static Answers* const all = new Answers;  // never destroyed: the library is not unloaded
  return *all;
}

// Lets cuBLASLt allocate memory of its own while this thread's stream is being captured into a
// graph.
class Relaxed {
 public:
  Relaxed() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~Relaxed() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Logs why octavo's kernels run a GEMM that cuBLASLt was chosen for, once per reason. NOT_SUPPORTED
// is not logged: the heuristic returns it for many problems.
void tell(const Exec& exec, const CublasLt& library, cublasStatus_t status) {
  if (exec.log == nullptr || status == CUBLAS_STATUS_NOT_SUPPORTED) return;
  exec.log->once(text("[gemm] cuBLASLt would be faster for a product, but declines it (",
                      library.status_text(status), "); octavo's kernels run it"));
}

std::atomic<int> forced{-1};

bool is_wanted(GemmKind kind, const GemmJob& job) {
  const int now = forced.load(std::memory_order_relaxed);
  if (now >= 0) return now == 1;
  static const std::optional<bool> asked = env_cuda_library_gemm();
  return asked.value_or(prefers_cublaslt(kind, job.a.rows(), job.b.rows(), job.a.cols()));
}

}  // namespace

const std::string& gemm_cublaslt_problem() { return cublaslt_problem(); }

std::optional<bool> force_cublaslt(std::optional<bool> wanted) {
  const int before = forced.exchange(wanted ? (*wanted ? 1 : 0) : -1, std::memory_order_relaxed);
  return before < 0 ? std::nullopt : std::optional(before == 1);
}

std::optional<GemmKind> cublaslt_kind(const GemmJob& job) {
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

bool gemm_cublaslt(const Exec& exec, const GemmJob& job) {
  const std::optional<GemmKind> kind = cublaslt_kind(job);
  if (!kind) return false;
  const CublasLt* library = cublaslt();
  if (library == nullptr) {
    if (exec.log != nullptr)
      exec.log->once(
          text("[gemm] cuBLASLt would be faster for some products, but cannot be loaded (",
               cublaslt_problem(), "); octavo's kernels run them"));
    return false;
  }
  CublasLtCall call(*library, exec, job, *kind);
  std::optional<CublasLtAlgorithm> algorithm = answers().find(call.problem());
  std::optional<Relaxed> relaxed;  // the first time, when cuBLASLt also loads its kernels
  if (!algorithm) relaxed.emplace();
  const CublasLtHandle made = cublaslt_handle(*library, exec);
  if (made.handle == nullptr) {
    tell(exec, *library, made.status);
    return false;
  }
  if (!algorithm) {
    const CublasLtAnswer answer = call.ask(made.handle);
    algorithm = answer.algorithm;
    if (is_about_problem(answer.status)) answers().keep(call.problem(), *algorithm);
    if (!algorithm->usable) tell(exec, *library, answer.status);
  }
  if (!algorithm->usable) return false;

  const Exec elsewhere = without_workspace(exec);
  const Scratch workspace(is_aligned(exec.workspace.data(), 256) ? exec : elsewhere,
                          algorithm->workspace);
  const Scratch factors(elsewhere, call.scales_by_alpha() ? 2 * sizeof(float) : 0);
  if (call.scales_by_alpha()) multiply_scales(exec, job, factors.as<float>());
  const cublasStatus_t status =
      call.queue(exec, made.handle, *algorithm, workspace.as<void>(), factors.as<float>());
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  check(is_about_problem(status), ErrorCode::device, "cuda", "cublasLtMatmul failed with ",
        library->status_text(status), "; set OCTAVO_CUDA_LIBRARY_GEMM=0 to use octavo's kernels");
  answers().keep(call.problem(), {});  // cache it as declined
  tell(exec, *library, status);
  return false;
}

bool gemm_cublaslt_if_chosen(const Exec& exec, const GemmJob& job) {
  if (job.accumulator != Accumulator::native || job.is_group ||
      (job.out.dtype != DType::bf16 && job.out.dtype != DType::f16))
    return false;
  const std::optional<GemmKind> kind = cublaslt_kind(job);
  return kind && is_wanted(*kind, job) && gemm_cublaslt(exec, job);
}

}  // namespace octavo::cuda
