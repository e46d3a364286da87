// A GEMM through the kernel table as a C function, so that a Python program can time it beside
// others on the memory of their tensors.
#include <cstdint>
#include <exception>
#include <iterator>
#include <string>

#include "octavo/backend/cuda.h"
#include "octavo/backend/cuda/gemm/gemm_cublaslt.h"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/registry.h"
#include "octavo/format/named_formats.h"
#include "octavo/octavo.h"

namespace {

using octavo::DType;

octavo::Matrix matrix(void* data, DType dtype, std::int64_t rows, std::int64_t cols,
                      std::int64_t row_pitch, std::int64_t col_stride) {
  return {.data = data,
          .dtype = dtype,
          .format = octavo::e4m3fn,
          .rows = rows,
          .cols = cols,
          .row_pitch = row_pitch,
          .col_stride = col_stride};
}

}  // namespace

extern "C" {

// Dense e4m3 codes, with scales of any strides (in bytes), f32 or e8m0; a scale's tile is tile_rows
// x tile_cols, 0 for all.
struct BenchOperand {
  void* codes;
  void* scales;
  std::int64_t rows, tile_rows, tile_cols, scale_row_pitch, scale_col_pitch, is_mx;
};

// Returns null on success, else the problem. `shape`: an index into kGemmShapes, or -1 for the one
// that octavo chooses.
__attribute__((visibility("default"))) const char* octavo_bench_gemm(
    const BenchOperand* a, const BenchOperand* b, std::int64_t k, void* out, int out_is_f32,
    void* workspace, std::int64_t workspace_bytes, void* stream, int shape) {
  static std::string problem;
  try {
    const auto operand = [&](const BenchOperand& of) {
      octavo::GemmOperand made;
      octavo::QuantizedMatrix& q = made.quantized;
      q.codes = matrix(of.codes, DType::code, of.rows, k, k, 1);
      q.tile = {of.tile_rows, of.tile_cols};
      q.scales =
          matrix(of.scales, of.is_mx != 0 ? DType::code : DType::f32,
                 octavo::tile_count(of.tile_rows, of.rows), octavo::tile_count(of.tile_cols, k),
                 of.scale_row_pitch, of.scale_col_pitch);
      if (of.is_mx != 0) q.scales.format = octavo::e8m0fnu;
      return made;
    };
    const DType dtype = out_is_f32 != 0 ? DType::f32 : DType::bf16;
    const std::int64_t each = out_is_f32 != 0 ? 4 : 2;
    // By octavo's kernels, also where cuBLASLt is chosen for `native`.
    const bool is_mx = a->is_mx != 0 || b->is_mx != 0;
    const octavo::GemmJob job{
        .a = operand(*a),
        .b = operand(*b),
        .out = matrix(out, dtype, a->rows, b->rows, b->rows * each, each),
        .accumulator = is_mx ? octavo::Accumulator::native : octavo::Accumulator::hopper_fp8};
    const octavo::Exec exec{.device = {octavo::DeviceKind::cuda, 0},
                            .stream = stream,
                            .workspace = {static_cast<std::byte*>(workspace),
                                          static_cast<std::size_t>(workspace_bytes)}};
    static const octavo::Kernels* kernels =
        octavo::device_api({octavo::DeviceKind::cuda, 0}).kernels;
    if (!kernels->gemm_offered(job)) return "not offered";
    if (shape >= static_cast<int>(std::size(octavo::cuda::kGemmShapes))) return "no such shape";
    shape < 0 ? kernels->gemm(exec, job)
              : octavo::cuda::gemm_fp8(exec, job, &octavo::cuda::kGemmShapes[shape]);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}

// A plain GEMM of dense operands by octavo's kernels or by cuBLASLt. `kind` is a GemmKind, and the
// result has 16 bits: f16 for f16, else bf16. Scales are f32, per tensor or per row; 16-bit
// operands have none.
struct BenchProduct {
  std::int64_t kind;
  void *a, *b, *a_scales, *b_scales, *out;
  std::int64_t m, n, k;
};

__attribute__((visibility("default"))) const char* octavo_bench_gemm_by(
    const BenchProduct* product, void* workspace, std::int64_t workspace_bytes, void* stream,
    int by_library) {
  static std::string problem;
  try {
    const auto kind = static_cast<octavo::cuda::GemmKind>(product->kind);
    const bool is_fp8 =
        kind == octavo::cuda::GemmKind::fp8_tensor || kind == octavo::cuda::GemmKind::fp8_row;
    const DType dtype = kind == octavo::cuda::GemmKind::f16 ? DType::f16 : DType::bf16;
    const std::int64_t k = product->k;
    const auto operand = [&](void* elements, void* scales, std::int64_t rows) {
      octavo::GemmOperand made;
      if (!is_fp8) {
        made.values = matrix(elements, dtype, rows, k, k * 2, 2);
        return made;
      }
      made.quantized.codes = matrix(elements, DType::code, rows, k, k, 1);
      made.quantized.tile = {kind == octavo::cuda::GemmKind::fp8_row ? 1 : 0, 0};
      made.quantized.scales =
          matrix(scales, DType::f32, octavo::tile_count(made.quantized.tile.rows, rows), 1, 4, 4);
      return made;
    };
    const octavo::GemmJob job{
        .a = operand(product->a, product->a_scales, product->m),
        .b = operand(product->b, product->b_scales, product->n),
        .out = matrix(product->out, dtype, product->m, product->n, product->n * 2, 2),
        .accumulator = octavo::Accumulator::native};
    const octavo::Exec exec{.device = {octavo::DeviceKind::cuda, 0},
                            .stream = stream,
                            .workspace = {static_cast<std::byte*>(workspace),
                                          static_cast<std::size_t>(workspace_bytes)}};
    if (by_library != 0) {
      if (!octavo::cuda::gemm_cublaslt_problem().empty())
        return octavo::cuda::gemm_cublaslt_problem().c_str();
      return octavo::cuda::gemm_cublaslt(exec, job) ? nullptr : "declined";
    }
    static const octavo::Kernels* kernels =
        octavo::device_api({octavo::DeviceKind::cuda, 0}).kernels;
    if (!kernels->gemm_offered(job)) return "not offered";
    (void)octavo::cuda::force_cublaslt(false);
    kernels->gemm(exec, job);
    (void)octavo::cuda::force_cublaslt(std::nullopt);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}

}  // extern "C"
