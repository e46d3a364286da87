// Consumer warpgroup of the forward kernel of `fast`: everything is e4m3, scores are f16 in pairs,
// which halves the instructions of the softmax, and P V is promoted to f32 after every tile of
// keys, because sums of FP8 products keep 13 fraction bits (docs/numerics/gemm.md). Eight columns
// of ones beside V sum P as it was rounded, with the same truncation, so that a constant V comes
// out as that constant.
//
// Scores cannot overflow f16: codes of a row of Q are multiplied by a power of two, in shared
// memory, such that the sum of their magnitudes times e4m3's largest number is an f16.
#pragma once

#include "octavo/backend/cuda/attention/forward/forward_consumer.cuh"
#include "octavo/backend/cuda/attention/half_pairs.cuh"

namespace octavo::cuda {

template <typename Kernel>
class ForwardFp8Consumer {
 public:
  __device__ __forceinline__ ForwardFp8Consumer(const ForwardPlan& plan,
                                                const ForwardPipeline<Kernel>& pipeline, int group)
      : plan_(plan),
        pipeline_(pipeline),
        turns_{group},
        group_(group),
        lane_(static_cast<int>(threadIdx.x) % 32),
        row_in_tile_(group * 64 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane_ / 4) {}

  __device__ __forceinline__ void run() {
    turns_.begin();
    WorkReader<Kernel> works;
    ForwardWork work;
    while (works.next(pipeline_, lane_, work)) do_work(work);
    turns_.end();
  }

 private:
  static constexpr int kPairs = Kernel::kKeys / 4, kWords = kPairs / 8, kSums = Kernel::kDepth / 2;
  static constexpr float kTop = 8.0F;  // log2 of p_factor
  // Above it 8 - M is no exact f16, and scores are subtracted from the largest before they are
  // scaled.
  static constexpr float kMostExactTop = 1024.0F;

  __device__ __forceinline__ void do_work(const ForwardWork& work) {
    const AttentionJob& job = plan_.job;
    const KeyTiles tiles = key_tiles<Kernel>(job, work);
    const int rows[2] = {work.first + row_in_tile_, work.first + row_in_tile_ + 8};
    float sums[kSums], weight_sums[2] = {0.0F, 0.0F}, units[2] = {0.0F, 0.0F};
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = 0.0F;
    RowTops tops;
    LaneChannels<Kernel::kDepth> channels;
    if (tiles.first < tiles.last) {
      HalfPair scores[kPairs], unit_pairs[2];
      float parts[kSums + 4];
      std::uint32_t p[kWords][4];
      AttentionJob::Keys keys[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) keys[r] = job.keys_of(work.batch, rows[r]);

      load_units(work, rows, units);
      mbarrier_wait(pipeline_.full_q(), rings_.q_phase);
      rings_.q_phase ^= 1;
      narrow_q();
      finish_units(units, unit_pairs);
      turns_.wait();
      mbarrier_wait(pipeline_.full_k(rings_.k.stage), rings_.k.phase);
      multiply_keys(scores);
      turns_.pass();
      wgmma_wait<0>();
      wgmma_fence_operand(scores);
      finish_scores(scores, tiles, tiles.first, keys);
      release_k();
      weigh(scores, units, unit_pairs, tops);
      pack(scores, p);
      for (int tile = tiles.first + 1; tile < tiles.last; ++tile) {
        const float shrink[2] = {tops.shrink[0], tops.shrink[1]};
        turns_.wait();
        mbarrier_wait(pipeline_.full_k(rings_.k.stage), rings_.k.phase);
        multiply_keys(scores);
        mbarrier_wait(pipeline_.full_v(rings_.v.stage), rings_.v.phase);
        multiply_values(parts, p);
        turns_.pass();
        wgmma_wait<1>();
        wgmma_fence_operand(scores);
        finish_scores(scores, tiles, tile, keys);
        release_k();
        weigh(scores, units, unit_pairs, tops);
        wgmma_fence_operand(scores);  // softmax comes before the wait for P V
        wgmma_wait<0>();
        wgmma_fence_operand(parts);
        release_v(tiles, tile - 1, work);
        promote(parts, shrink, sums, weight_sums);
        pack(scores, p);
      }
      if (lane_ == 0) mbarrier_arrive(pipeline_.empty_q());
      const float shrink[2] = {tops.shrink[0], tops.shrink[1]};
      mbarrier_wait(pipeline_.full_v(rings_.v.stage), rings_.v.phase);
      multiply_values(parts, p);
      channels.load(plan_, work.batch, work.head / plan_.heads_per_kv);
      wgmma_wait<0>();
      wgmma_fence_operand(parts);
      release_v(tiles, tiles.last - 1, work);
      promote(parts, shrink, sums, weight_sums);
    }
    finish(work, rows, units, tops, weight_sums, channels, sums);
  }

  // Codes of Q in shared memory times a power of two for each row; what units must be multiplied by
  // is left in row_factors. Two threads have a row.
  __device__ __forceinline__ void narrow_q() const {
    constexpr float kMostSum = 60000.0F / 448.0F;
    constexpr int kVectors = Kernel::kLine / 2 / 16;
    const int thread = static_cast<int>(threadIdx.x) % 128, row = group_ * 64 + thread / 2;
    const SharedAddress from =
        pipeline_.q() + row * Kernel::kLine + thread % 2 * (Kernel::kLine / 2);
    uint4 codes[Kernel::kPanels][kVectors];
    float sum = 0.0F;
#pragma unroll
    for (int panel = 0; panel < Kernel::kPanels; ++panel)
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        // Neighbouring rows start at other vectors, so that banks do not conflict.
        uint4& four = codes[panel][i];
        four =
            load_shared_vector(from + panel * Kernel::kQPanel + (i ^ (row & (kVectors - 1))) * 16);
        sum += sum_of_magnitudes(four.x) + sum_of_magnitudes(four.y) + sum_of_magnitudes(four.z) +
               sum_of_magnitudes(four.w);
      }
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    // 2^-ceil(log2(sum / most)) where that is below one; a NaN is left as it is.
    float factor = 1.0F;
    if (sum > kMostSum) {
      const std::uint32_t ratio = __float_as_uint(sum * (1.0F / kMostSum)) + 0x007FFFFFu;
      factor = __uint_as_float((254u - (ratio >> 23)) << 23);
    }
    const HalfPair by = both_halves(factor);
#pragma unroll
    for (int panel = 0; panel < Kernel::kPanels; ++panel)
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const uint4& four = codes[panel][i];
        store_shared_vector(from + panel * Kernel::kQPanel + (i ^ (row & (kVectors - 1))) * 16,
                            {scaled_codes(four.x, by), scaled_codes(four.y, by),
                             scaled_codes(four.z, by), scaled_codes(four.w, by)});
      }
    if (thread % 2 == 0) store_shared(pipeline_.row_factors() + row * 4, 1.0F / factor);
    fence_proxy_async();
    named_barrier_sync(8 + group_, 128);
  }

  // From sums of products to scores in units of log2; those of codes of Q as they came.
  __device__ __forceinline__ void load_units(const ForwardWork& work, const int (&rows)[2],
                                             float (&units)[2]) const {
    const int kv_head = work.head / plan_.heads_per_kv;
    float unit = plan_.score_unit;
    if constexpr (Kernel::kKeyScales)
      unit *= plan_.key_scale_most[work.batch * static_cast<int>(plan_.job.kv_heads) + kv_head];
    else
      unit *= *plan_.k_scales.at(work.batch, kv_head);
    const float* const scales = plan_.q_scales.at(work.batch, work.head);
    const int last = static_cast<int>(plan_.job.queries) - 1;
#pragma unroll
    for (int r = 0; r < 2; ++r) units[r] = unit * scales[min(rows[r], last) * plan_.q_scales.step];
  }
  __device__ __forceinline__ void finish_units(float (&units)[2], HalfPair (&unit_pairs)[2]) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      units[r] *= load_shared(pipeline_.row_factors() + (row_in_tile_ + 8 * r) * 4);
      // At least f16's least number, so that -inf times it is -inf; at most its largest, so that a
      // score of zero stays a number. Beyond either the order of scores is all that is left.
      unit_pairs[r] = both_halves(fminf(fmaxf(units[r], 0x1p-24F), 65504.0F));
    }
  }

  __device__ __forceinline__ void multiply_keys(HalfPair (&scores)[kPairs]) const {
    const std::uint64_t q = panel_descriptor<Kernel>(pipeline_.q() + group_ * 64 * Kernel::kLine),
                        k = panel_descriptor<Kernel>(pipeline_.k(rings_.k.stage));
    wgmma_fence_operand(scores);
    wgmma_fence();
#pragma unroll
    for (int panel = 0; panel < Kernel::kPanels; ++panel)
#pragma unroll
      for (int step = 0; step < Kernel::kLine / kMmaBytes; ++step)
        wgmma_e4m3_f16(scores, q + panel * (Kernel::kQPanel / 16) + step * kDescriptorStep,
                       k + panel * (Kernel::kKPanel / 16) + step * kDescriptorStep,
                       panel + step > 0);
    wgmma_commit();
  }

  __device__ __forceinline__ void multiply_values(float (&parts)[kSums + 4],
                                                  const std::uint32_t (&p)[kWords][4]) const {
    const std::uint64_t v = smem_descriptor(pipeline_.v(rings_.v.stage));
    wgmma_fence_operand(parts);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kWords; ++step)
      wgmma_rs_e4m3(parts, p[step], v + step * kDescriptorStep, step > 0);
    wgmma_commit();
  }

  // Scales of keys, relative to the largest of the head; -inf where a row does not see the key.
  __device__ __forceinline__ void finish_scores(HalfPair (&scores)[kPairs], const KeyTiles& tiles,
                                                int tile,
                                                const AttentionJob::Keys (&keys)[2]) const {
    const int quad = lane_ % 4;
    if constexpr (Kernel::kKeyScales) {
      const SharedAddress scales = pipeline_.key_scales(rings_.k.stage) + quad * 8;
#pragma unroll
      for (int j = 0; j < kPairs / 2; j += 2) {
        const float2 two = load_shared_pair(scales + j / 2 * 32);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          scores[2 * j + r] = pair_multiply(scores[2 * j + r], __float_as_uint(two.x));
          scores[2 * j + 2 + r] = pair_multiply(scores[2 * j + 2 + r], __float_as_uint(two.y));
        }
      }
    }
    if (!tiles.is_partial(tile, Kernel::kKeys)) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const LaneKeys seen = lane_keys(keys[r], tile * Kernel::kKeys + 2 * quad);
#pragma unroll
      for (int j = 0; j < kPairs / 2; ++j) {
        HalfPair& pair = scores[2 * j + r];
        if (8 * j < seen.low || 8 * j >= seen.high) pair = (pair & 0xFFFF0000u) | 0xFC00u;
        if (8 * j + 1 < seen.low || 8 * j + 1 >= seen.high) pair = (pair & 0xFFFFu) | 0xFC000000u;
      }
    }
  }

  // Scores to p times p_factor. A NaN makes the maximum NaN, and with it the row.
  __device__ __forceinline__ void weigh(HalfPair (&scores)[kPairs], const float (&units)[2],
                                        const HalfPair (&unit_pairs)[2], RowTops& tops) const {
    HalfPair base[2];
    bool far = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      HalfPair most[2] = {scores[r], scores[2 + r]};
#pragma unroll
      for (int j = 2; j < kPairs / 2; ++j)
        most[j % 2] = pair_max_or_nan(most[j % 2], scores[2 * j + r]);
      HalfPair of_row = pair_max_or_nan(most[0], most[1]);
      of_row = pair_max_or_nan(of_row, __shfl_xor_sync(0xFFFFFFFFu, of_row, 1));
      of_row = pair_max_or_nan(of_row, __shfl_xor_sync(0xFFFFFFFFu, of_row, 2));
      const float2 halves = pair_values(of_row);
      tops.raise(r, max_or_nan(halves.x, halves.y), units[r]);
      far |= fabsf(tops.base(r)) > kMostExactTop;
      base[r] = both_halves(kTop - tops.base(r));
    }
    if (__any_sync(0xFFFFFFFFu, far)) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float raw = tops.raw[r] == -HUGE_VALF ? 0.0F : tops.raw[r];
        const HalfPair top = both_halves(-raw);
        const float below = __fmaf_rn(raw, units[r], -tops.base(r));
        base[r] = both_halves(kTop + fminf(fmaxf(below, -1.0F), 0.0F));
#pragma unroll
        for (int j = 0; j < kPairs / 2; ++j) scores[2 * j + r] = pair_add(scores[2 * j + r], top);
      }
    }
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const HalfPair exponent = pair_multiply_add(scores[i], unit_pairs[i % 2], base[i % 2]);
      scores[i] = i / 2 % Kernel::kPolynomialEvery == Kernel::kPolynomialEvery - 1
                      ? pair_exp2_polynomial(exponent)
                      : pair_exp2(exponent);
    }
  }

  __device__ __forceinline__ void pack(const HalfPair (&scores)[kPairs],
                                       std::uint32_t (&p)[kWords][4]) const {
#pragma unroll
    for (int step = 0; step < kWords; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * step + i / 2 * 4 + i % 2;
        p[step][i] = e4m3_four(scores[at], scores[at + 2]);
      }
  }

  __device__ __forceinline__ void promote(const float (&parts)[kSums + 4], const float (&shrink)[2],
                                          float (&sums)[kSums], float (&weight_sums)[2]) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = __fmaf_rn(sums[i], shrink[i / 2 % 2], parts[i]);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      weight_sums[r] = __fmaf_rn(weight_sums[r], shrink[r], parts[kSums + 2 * r]);
  }

  __device__ __forceinline__ void release_k() {
    if (lane_ == 0) mbarrier_arrive(pipeline_.empty_k(rings_.k.stage));
    rings_.k.next();
  }
  __device__ __forceinline__ void release_v(const KeyTiles& tiles, int tile,
                                            const ForwardWork& work) {
    if (tiles.is_partial(tile, Kernel::kKeys) && plan_.doubts != nullptr)
      note_doubt<Kernel>(plan_, work, pipeline_.v(rings_.v.stage));
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(pipeline_.empty_v(rings_.v.stage));
    rings_.v.next();
  }

  __device__ __forceinline__ void finish(const ForwardWork& work, const int (&rows)[2],
                                         const float (&units)[2], const RowTops& tops,
                                         const float (&weight_sums)[2],
                                         const LaneChannels<Kernel::kDepth>& channels,
                                         float (&sums)[kSums]) const {
    const AttentionJob& job = plan_.job;
    float factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      factors[r] = finish_row(plan_, work, rows[r], tops, r, units[r], weight_sums[r], 256.0F, 0.0F,
                              lane_ % 4 == 0)
                       .factor;
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      sums[i] = factors[i / 2 % 2] == 0.0F
                    ? 0.0F
                    : sums[i] * factors[i / 2 % 2] * channels.scale[i / 4 * 2 + i % 2];
    store_tile<Kernel::kDepth>(job.out, work.batch, work.head, plan_.stores_pairs, rows, work.end,
                               sums);
  }

  const ForwardPlan& plan_;
  const ForwardPipeline<Kernel>& pipeline_;
  const IssueTurns<Kernel> turns_;
  const int group_, lane_, row_in_tile_;
  ConsumerRings<Kernel> rings_;
};

}  // namespace octavo::cuda
