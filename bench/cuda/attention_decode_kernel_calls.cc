// Decode attention through the kernel table as a C function, so that a Python program can time it
// beside others on the memory of their tensors.
#include <cmath>
#include <cstdint>
#include <exception>
#include <string>

#include "octavo/octavo.h"

namespace {

using octavo::AttentionJob;
using octavo::AttentionOperand;
using octavo::DType;

}  // namespace

extern "C" {

// Rows of bf16, or of e4m3 codes where there are scales. Pitches are in bytes, from one batch, or
// page, head and row to the next.
struct BenchDecodeOperand {
  void* elements;
  std::int64_t batch_pitch, head_pitch, row_pitch;
  void* scales;  // f32, one for each row, or for all of them where their pitches are 0
  std::int64_t scale_batch_pitch, scale_head_pitch, scale_row_pitch;
};
struct BenchDecode {
  BenchDecodeOperand q, k, v;
  void* out;  // bf16, dense
  std::int64_t batches, heads, kv_heads, queries, keys, size;
  const std::int32_t* table;  // null: no pages
  std::int64_t table_pitch, page_rows, page_count;
  void* workspace;
  std::int64_t workspace_bytes;
  void* stream;
};

// Returns null on success, else the problem.
__attribute__((visibility("default"))) const char* octavo_bench_decode(const BenchDecode* call) {
  static std::string problem;
  try {
    const auto operand = [&](const BenchDecodeOperand& of, std::int64_t rows) {
      const bool is_codes = of.scales != nullptr;
      const std::int64_t each = is_codes ? 1 : 2;
      const octavo::Matrix elements{.data = of.elements,
                                    .dtype = is_codes ? DType::code : DType::bf16,
                                    .format = octavo::e4m3fn,
                                    .rows = rows,
                                    .cols = call->size,
                                    .row_pitch = of.row_pitch,
                                    .col_stride = each};
      AttentionOperand made{.batch_pitch = of.batch_pitch, .head_pitch = of.head_pitch};
      if (!is_codes) {
        made.first.values = elements;
        return made;
      }
      const bool is_one = of.scale_row_pitch == 0;
      made.first.quantized.codes = elements;
      made.first.quantized.scales = {.data = of.scales,
                                     .dtype = DType::f32,
                                     .rows = is_one ? 1 : rows,
                                     .cols = 1,
                                     .row_pitch = is_one ? 4 : of.scale_row_pitch,
                                     .col_stride = 4};
      made.first.quantized.tile = {is_one ? 0 : 1, 0};
      made.scale_batch_pitch = of.scale_batch_pitch;
      made.scale_head_pitch = of.scale_head_pitch;
      return made;
    };
    const std::int64_t rows = call->table != nullptr ? call->page_rows : call->keys,
                       row = call->size * 2, head = call->queries * row;
    AttentionJob job{.batches = call->batches,
                     .heads = call->heads,
                     .kv_heads = call->kv_heads,
                     .queries = call->queries,
                     .keys = call->keys};
    job.q = operand(call->q, call->queries);
    job.k = operand(call->k, rows);
    job.v = operand(call->v, rows);
    job.out = operand({call->out, call->heads * head, head, row, nullptr, 0, 0, 0}, call->queries);
    job.pages = {.table = call->table,
                 .table_pitch = call->table_pitch,
                 .page_rows = call->page_rows,
                 .page_count = call->page_count};
    job.softmax_scale = 1.0 / std::sqrt(static_cast<double>(call->size));
    job.right = 0;
    job.bottom_right = true;
    job.values = DType::bf16;
    job.p = octavo::AttentionP::bf16;
    const octavo::Exec exec{.device = {octavo::DeviceKind::cuda, 0},
                            .stream = call->stream,
                            .workspace = {static_cast<std::byte*>(call->workspace),
                                          static_cast<std::size_t>(call->workspace_bytes)}};
    static const octavo::Kernels* kernels =
        octavo::device_api({octavo::DeviceKind::cuda, 0}).kernels;
    kernels->attention(exec, job);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}

}  // extern "C"
