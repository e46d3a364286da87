// Attention through the kernel table as a C function, so that a Python program can time it beside
// others on the memory of their tensors.
#include <cmath>
#include <cstdint>
#include <exception>
#include <string>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cuda.h"
#include "octavo/backend/registry.h"
#include "octavo/format/named_formats.h"
#include "octavo/octavo.h"

namespace {

using octavo::AttentionJob;
using octavo::AttentionOperand;
using octavo::AttentionP;
using octavo::DType;

octavo::Matrix dense(void* data, DType dtype, std::int64_t rows, std::int64_t cols,
                     std::int64_t each) {
  return {.data = data,
          .dtype = dtype,
          .format = octavo::e4m3fn,
          .rows = rows,
          .cols = cols,
          .row_pitch = cols * each,
          .col_stride = each};
}

}  // namespace

extern "C" {

// Dense [batches, heads, rows, size] of bf16, or e4m3 codes with f32 scales, whose tile is
// tile_rows x tile_cols, 0 for all of a head.
struct BenchAttentionOperand {
  void* elements;
  void* scales;  // null: bf16
  std::int64_t tile_rows, tile_cols;
};
struct BenchAttention {
  BenchAttentionOperand q, k, v;
  void* out;  // bf16
  void* log_sum_exp;
  std::int64_t batches, heads, kv_heads, queries, keys, size, causal;
  std::int64_t p;  // 0: bf16, 1: two terms of e4m3, 2: e4m3
  void* workspace;
  std::int64_t workspace_bytes;
  void* stream;
};

// Returns null on success, else the problem.
__attribute__((visibility("default"))) const char* octavo_bench_attention(
    const BenchAttention* call) {
  static std::string problem;
  try {
    const std::int64_t size = call->size;
    const auto operand = [&](const BenchAttentionOperand& of, std::int64_t heads,
                             std::int64_t rows) {
      const std::int64_t each = of.scales == nullptr ? 2 : 1;
      AttentionOperand made{.batch_pitch = heads * rows * size * each,
                            .head_pitch = rows * size * each};
      if (of.scales == nullptr) {
        made.first.values = dense(of.elements, DType::bf16, rows, size, each);
        return made;
      }
      const std::int64_t down = octavo::tile_count(of.tile_rows, rows),
                         across = octavo::tile_count(of.tile_cols, size);
      made.first.quantized.codes = dense(of.elements, DType::code, rows, size, each);
      made.first.quantized.scales = dense(of.scales, DType::f32, down, across, 4);
      made.first.quantized.tile = {of.tile_rows, of.tile_cols};
      made.scale_head_pitch = down * across * 4;
      made.scale_batch_pitch = heads * made.scale_head_pitch;
      return made;
    };
    constexpr AttentionP kForms[] = {AttentionP::bf16, AttentionP::fp8_split, AttentionP::fp8};
    AttentionJob job{.batches = call->batches,
                     .heads = call->heads,
                     .kv_heads = call->kv_heads,
                     .queries = call->queries,
                     .keys = call->keys};
    job.q = operand(call->q, call->heads, call->queries);
    job.k = operand(call->k, call->kv_heads, call->keys);
    job.v = operand(call->v, call->kv_heads, call->keys);
    job.out = operand({call->out, nullptr, 0, 0}, call->heads, call->queries);
    job.log_sum_exp = static_cast<float*>(call->log_sum_exp);
    job.softmax_scale = 1.0 / std::sqrt(static_cast<double>(size));
    job.right = call->causal != 0 ? 0 : -1;
    job.values = call->q.scales == nullptr ? DType::bf16 : DType::f32;
    job.p = kForms[call->p];
    job.p_factor = job.p == AttentionP::bf16 ? 1.0F : 256.0F;
    const octavo::Exec exec{.device = {octavo::DeviceKind::cuda, 0},
                            .stream = call->stream,
                            .workspace = {static_cast<std::byte*>(call->workspace),
                                          static_cast<std::size_t>(call->workspace_bytes)}};
    static const octavo::Kernels* kernels =
        octavo::device_api({octavo::DeviceKind::cuda, 0}).kernels;
    if (!kernels->attention_offered(job)) return "not offered";
    kernels->attention(exec, job);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}

}  // extern "C"
