// Query rows of decode attention: into the order of mma.sync's operand, and results of rows out of
// sums.
#pragma once

#include <cmath>
#include <cstdint>

#include "octavo/backend/attention_sink.h"
#include "octavo/backend/cuda/attention/decode/decode_elements.cuh"
#include "octavo/backend/cuda/attention/decode/decode_plan.h"

namespace octavo::cuda {

// The state of a row: of what its sums are multiples, and what they are sums of.
struct DecodeState {
  float top = -HUGE_VALF;      // M: weights are 2^(score - M)
  float unit = -HUGE_VALF;     // sums of weighted values are multiples of 2^unit
  float sum = 0.0F;            // of weights, as rounded
  float largest = -HUGE_VALF;  // score
  float poisoned = 0.0F;
};

// Where row r of a group comes from.
struct DecodeRow {
  bool exists = false;
  std::int64_t head = 0, query = 0;
};
__device__ __forceinline__ DecodeRow decode_row(const DecodePlan& plan, int head_and_group, int r) {
  const int group = head_and_group % plan.groups, kv_head = head_and_group / plan.groups;
  const int at = group * 8 * plan.row_tiles + r, queries = static_cast<int>(plan.job.queries);
  const int shared_by = static_cast<int>(plan.job.heads / plan.job.kv_heads);
  return {at < plan.rows_of_head, static_cast<std::int64_t>(kv_head) * shared_by + at / queries,
          at % queries};
}

// Elements of a row of Q as the job takes them, every 32nd from the lane's on: codes without their
// scale, values rounded to bf16; zeros beyond the row's end.
template <int kEach, typename Decode>
__device__ __forceinline__ void load_elements(const std::byte* row, std::int64_t stride, int size,
                                              int lane, float (&numbers)[kEach],
                                              const Decode& decode) {
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    numbers[i] = lane + 32 * i < size ? decode(row + (lane + 32 * i) * stride) : 0.0F;
}
template <int kEach>
__device__ __forceinline__ void load_query_row(const DecodePlan& plan, std::int64_t batch,
                                               const DecodeRow& row, int lane,
                                               float (&numbers)[kEach]) {
  const GemmOperand& q = plan.job.q.first;
  const std::int64_t at = batch * plan.job.q.batch_pitch + row.head * plan.job.q.head_pitch;
  const int size = static_cast<int>(q.cols());
  const auto load = [&](const Matrix& of, const auto& decode) {
    load_elements(static_cast<const std::byte*>(of.data) + at + row.query * of.row_pitch,
                  of.col_stride, size, lane, numbers, decode);
  };
  const auto rounded = [](float number) { return __bfloat162float(__float2bfloat16_rn(number)); };
  if (q.is_quantized()) {
    const Matrix& codes = q.quantized.codes;
    if (codes.format.mantissa_bits == 2) {
      load(codes, [](const std::byte* from) {
        return floats_of_f16(Fp8Element<true>::pair(static_cast<std::uint32_t>(*from))).x;
      });
    } else {
      load(codes, [](const std::byte* from) {
        return floats_of_f16(Fp8Element<false>::pair(static_cast<std::uint32_t>(*from))).x;
      });
    }
  } else if (q.values.dtype == DType::bf16) {
    load(q.values, [](const std::byte* from) {
      return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(from));
    });
  } else if (q.values.dtype == DType::f16) {
    load(q.values, [&](const std::byte* from) {
      return rounded(__half2float(*reinterpret_cast<const __half*>(from)));
    });
  } else {
    load(q.values,
         [&](const std::byte* from) { return rounded(*reinterpret_cast<const float*>(from)); });
  }
}

// The scale of a row of Q; one where it has none.
__device__ __forceinline__ double query_scale(const DecodePlan& plan, std::int64_t batch,
                                              const DecodeRow& row) {
  const QuantizedMatrix& q = plan.job.q.first.quantized;
  if (!q.wanted()) return 1.0;
  const std::int64_t height = tile_extent(q.tile.rows, q.codes.rows);
  return static_cast<double>(*reinterpret_cast<const float*>(
      static_cast<const std::byte*>(q.scales.data) + batch * plan.job.q.scale_batch_pitch +
      row.head * plan.job.q.scale_head_pitch + row.query / height * q.scales.row_pitch));
}

// A scale that all tokens of a KV head share.
__device__ inline double shared_scale(const DecodeTokens& of, std::int64_t batch,
                                      std::int64_t kv_head, std::int64_t channel = 0) {
  if (of.shared == nullptr) return 1.0;
  return static_cast<double>(
      *reinterpret_cast<const float*>(of.shared + batch * of.shared_page_pitch +
                                      kv_head * of.shared_head_pitch + channel * of.channel_step));
}

__device__ __forceinline__ void store_result(const AttentionOperand& to_all, std::int64_t batch,
                                             const DecodeRow& row, std::int64_t col,
                                             double number) {
  const Matrix& out = to_all.first.values;
  std::byte* const to = static_cast<std::byte*>(out.data) + batch * to_all.batch_pitch +
                        row.head * to_all.head_pitch + row.query * out.row_pitch +
                        col * out.col_stride;
  const auto narrow = static_cast<float>(number);
  switch (out.dtype) {
    case DType::bf16:
      *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16_rn(narrow);
      break;
    case DType::f16:
      *reinterpret_cast<__half*>(to) = __float2half_rn(narrow);
      break;
    case DType::f64:
      *reinterpret_cast<double*>(to) = number;
      break;
    default:
      *reinterpret_cast<float*>(to) = narrow;
  }
}

// 2^n, for n that a double holds.
__device__ __forceinline__ double power_of_two(int n) {
  return __hiloint2double((1023 + max(-1022, min(n, 1023))) << 20, 0);
}

// What a row's sums are multiplied by.
struct DecodeFinish {
  double times = 0.0;
  bool is_nan = false, is_zero = true;
};
// All lanes of a warp call it with the same row, and the first one writes what goes beside the
// output.
__device__ __forceinline__ DecodeFinish finish_decode_row(const DecodePlan& plan,
                                                          std::int64_t batch, int kv_head,
                                                          const DecodeRow& row,
                                                          const DecodeState& state, int lane) {
  const AttentionJob& job = plan.job;
  const bool is_padding = job.query_lengths != nullptr && row.query >= job.query_lengths[batch];
  const bool is_empty = is_padding || (state.poisoned == 0.0F && state.top == -HUGE_VALF);
  BesideSink beside{.log2_sum = -HUGE_VAL};
  if (job.log_sum_exp != nullptr || job.sinks.exist()) {
    if (!is_empty)
      beside.log2_sum = static_cast<double>(state.top) + log2(static_cast<double>(state.sum));
    if (!is_padding) beside = beside_sink(job.sinks, row.head, beside.log2_sum);
  }
  DecodeFinish finish;
  finish.is_nan = !is_padding && (state.poisoned != 0.0F || beside.poisoned);
  finish.is_zero = is_empty;
  const double share = beside.share / static_cast<double>(state.sum);
  if (!is_empty)
    finish.times = share * power_of_two(static_cast<int>(state.unit - state.top)) *
                   (plan.v.channel_step == 0 ? shared_scale(plan.v, batch, kv_head) : 1.0);
  if (lane != 0) return finish;
  const std::int64_t at = (batch * job.heads + row.head) * job.queries + row.query;
  const float most = finish.is_nan || is_empty ? 0.0F : exp2f(state.largest - state.top);
  if (job.p_amax != nullptr) atomicMax(reinterpret_cast<int*>(job.p_amax), __float_as_int(most));
  if (job.largest_weight != nullptr)
    job.largest_weight[at] = finish.is_nan ? NAN
                             : is_empty    ? 0.0F
                                           : most * static_cast<float>(share);
  if (job.log_sum_exp != nullptr)
    job.log_sum_exp[at] =
        finish.is_nan ? NAN : static_cast<float>(beside.log2_sum * 0.6931471805599453);
  return finish;
}

// Of one element.
__device__ __forceinline__ void store_decode_sum(const DecodePlan& plan, std::int64_t batch,
                                                 int kv_head, const DecodeRow& row, int col,
                                                 float sum, const DecodeFinish& finish) {
  double number = 0.0;
  if (finish.is_nan)
    number = static_cast<double>(NAN);
  else if (!finish.is_zero)
    number = static_cast<double>(sum) * finish.times;
  if (plan.v.channel_step != 0 && !finish.is_zero)
    number *= shared_scale(plan.v, batch, kv_head, col);
  store_result(plan.job.out, batch, row, col, number);
}

}  // namespace octavo::cuda
