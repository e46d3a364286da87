// Consumer warpgroup of a forward kernel whose P and V are bf16. It multiplies Q by the next tile
// of keys before it multiplies P of the last one by V, so that the softmax of one runs beside the
// products of the other. Sums of weighted values stay in the accumulators of wgmma, which keep all
// bits of f32 where operands are bf16.
#pragma once

#include "octavo/backend/cuda/attention/forward/forward_producer.cuh"
#include "octavo/backend/cuda/attention/forward/forward_rows.cuh"
#include "octavo/backend/cuda/attention/forward/forward_store.cuh"
#include "octavo/backend/cuda/hopper/wgmma_attention.cuh"

namespace octavo::cuda {

// Warpgroups issue products in turn: each waits for the one before it.
template <typename Kernel>
struct IssueTurns {
  static constexpr int kFirst = 1, kThreads = 256;
  int group;
  // Before the first turn, and after the last.
  __device__ __forceinline__ void begin() const {
    if constexpr (Kernel::kTurns)
      if (group == Kernel::kGroups - 1) named_barrier_arrive(kFirst, kThreads);
  }
  __device__ __forceinline__ void end() const {
    if constexpr (Kernel::kTurns)
      if (group == 0) named_barrier_sync(kFirst, kThreads);
  }
  __device__ __forceinline__ void wait() const {
    if constexpr (Kernel::kTurns) named_barrier_sync(kFirst + group, kThreads);
  }
  __device__ __forceinline__ void pass() const {
    if constexpr (Kernel::kTurns)
      named_barrier_arrive(kFirst + (group + 1) % Kernel::kGroups, kThreads);
  }
};

// Where a consumer is in the rings.
template <typename Kernel>
struct ConsumerRings {
  RingState<Kernel::kStages> k, v;
  unsigned q_phase = 0;
};

template <typename Kernel>
__device__ __forceinline__ std::uint64_t panel_descriptor(SharedAddress address) {
  return Kernel::kLine == 64 ? smem_descriptor_64(address) : smem_descriptor(address);
}

template <typename Kernel>
class ForwardConsumer {
 public:
  __device__ __forceinline__ ForwardConsumer(const ForwardPlan& plan,
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
  static constexpr int kScores = Kernel::kKeys / 2, kWords = kScores / 8,
                       kSums = Kernel::kDepth / 2, kAllSums = kSums + (Kernel::kSumsByOnes ? 4 : 0);
  // Above it the product of a score and its unit is no longer near that rounded to f32, which M is
  // made from, and scores are subtracted from the largest before they are scaled.
  static constexpr float kMostExactTop = 0x1p20F;
  // Relative, of a sum of e4m3 products, of which the tensor cores keep 13 fraction bits: measured,
  // 2.8e-4 at most.
  static constexpr float kScoreError = Kernel::kForm == ForwardForm::strict ? 1.2e-4F : 0.0F;
  static constexpr float kMxint8Unit = 0x1p-6F;  // of a code of mxint8
  using Scores = std::conditional_t<Kernel::kForm == ForwardForm::balanced, std::int32_t, float>;

  __device__ __forceinline__ void do_work(const ForwardWork& work) {
    const AttentionJob& job = plan_.job;
    const KeyTiles tiles = key_tiles<Kernel>(job, work);
    const int rows[2] = {work.first + row_in_tile_, work.first + row_in_tile_ + 8};
    float sums[kAllSums], weight_sums[2] = {0.0F, 0.0F}, units[2];
#pragma unroll
    for (int i = 0; i < kAllSums; ++i) sums[i] = 0.0F;
    RowTops tops;
    LaneChannels<Kernel::kDepth> channels;
    row_units(work, rows, units);
    if (tiles.first < tiles.last) {
      Scores scores[kScores];
      std::uint32_t p[kWords][4];
      AttentionJob::Keys keys[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) keys[r] = job.keys_of(work.batch, rows[r]);

      mbarrier_wait(pipeline_.full_q(), rings_.q_phase);
      rings_.q_phase ^= 1;
      turns_.wait();
      mbarrier_wait(pipeline_.full_k(rings_.k.stage), rings_.k.phase);
      multiply_keys(scores);
      turns_.pass();
      wgmma_wait<0>();
      wgmma_fence_operand(scores);
      float numbers[kScores];
      finish_scores(scores, numbers, tiles, tiles.first, keys);
      release_k();
      weigh(numbers, units, tops);
      pack(numbers, p, weight_sums);
      for (int tile = tiles.first + 1; tile < tiles.last; ++tile) {
        turns_.wait();
        mbarrier_wait(pipeline_.full_k(rings_.k.stage), rings_.k.phase);
        multiply_keys(scores);
        mbarrier_wait(pipeline_.full_v(rings_.v.stage), rings_.v.phase);
        multiply_values(sums, p);
        turns_.pass();
        wgmma_wait<1>();
        wgmma_fence_operand(scores);
        finish_scores(scores, numbers, tiles, tile, keys);
        release_k();
        weigh(numbers, units, tops);
        wgmma_fence_operand(numbers);  // softmax comes before the wait for P V
        wgmma_wait<0>();
        wgmma_fence_operand(sums);
        release_v(tiles, tile - 1, work);
        shrink(sums, weight_sums, tops);
        pack(numbers, p, weight_sums);
      }
      if (lane_ == 0) mbarrier_arrive(pipeline_.empty_q());
      mbarrier_wait(pipeline_.full_v(rings_.v.stage), rings_.v.phase);
      multiply_values(sums, p);
      channels.load(plan_, work.batch, work.head / plan_.heads_per_kv);
      wgmma_wait<0>();
      wgmma_fence_operand(sums);
      release_v(tiles, tiles.last - 1, work);
    }
    finish(work, rows, units, tops, weight_sums, channels, sums);
  }

  // The factor from sums of products to scores in units of log2.
  __device__ __forceinline__ void row_units(const ForwardWork& work, const int (&rows)[2],
                                            float (&units)[2]) const {
    const AttentionJob& job = plan_.job;
    float unit = plan_.score_unit;
    if constexpr (Kernel::kForm == ForwardForm::balanced) unit *= kMxint8Unit * kMxint8Unit;
    if constexpr (Kernel::kForm != ForwardForm::bf16) {
      if constexpr (!Kernel::kKeyScales)
        unit *= *plan_.k_scales.at(work.batch, work.head / plan_.heads_per_kv);
      const float* const scales = plan_.q_scales.at(work.batch, work.head);
#pragma unroll
      for (int r = 0; r < 2; ++r)
        units[r] =
            unit * scales[min(rows[r], static_cast<int>(job.queries) - 1) * plan_.q_scales.step];
    } else {
      units[0] = units[1] = unit;
    }
  }

  __device__ __forceinline__ void multiply_keys(Scores (&scores)[kScores]) const {
    const std::uint64_t q = panel_descriptor<Kernel>(pipeline_.q() + group_ * 64 * Kernel::kLine),
                        k = panel_descriptor<Kernel>(pipeline_.k(rings_.k.stage));
    wgmma_fence_operand(scores);
    wgmma_fence();
#pragma unroll
    for (int panel = 0; panel < Kernel::kPanels; ++panel)
#pragma unroll
      for (int step = 0; step < Kernel::kLine / kMmaBytes; ++step) {
        const std::uint64_t of_q = q + panel * (Kernel::kQPanel / 16) + step * kDescriptorStep,
                            of_k = k + panel * (Kernel::kKPanel / 16) + step * kDescriptorStep;
        const bool more = panel + step > 0;
        if constexpr (Kernel::kForm == ForwardForm::bf16)
          wgmma<Mma::bf16>(scores, of_q, of_k, more);
        else if constexpr (Kernel::kForm == ForwardForm::strict)
          wgmma<Mma::e4m3_e4m3>(scores, of_q, of_k, more);
        else
          wgmma_s8(scores, of_q, of_k, more);
      }
    wgmma_commit();
  }

  __device__ __forceinline__ void multiply_values(float (&sums)[kAllSums],
                                                  const std::uint32_t (&p)[kWords][4]) const {
    const std::uint64_t v = smem_descriptor_along_n(pipeline_.v(rings_.v.stage), Kernel::kVPanel);
    wgmma_fence_operand(sums);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kWords; ++step)
      wgmma_rs_along_n(sums, p[step], v + step * kDescriptorRows, true);
    wgmma_commit();
  }

  // Products to scores in f32: scales of keys, and -inf where a row does not see the key.
  __device__ __forceinline__ void finish_scores(const Scores (&scores)[kScores],
                                                float (&numbers)[kScores], const KeyTiles& tiles,
                                                int tile,
                                                const AttentionJob::Keys (&keys)[2]) const {
#pragma unroll
    for (int i = 0; i < kScores; ++i) numbers[i] = static_cast<float>(scores[i]);
    const int quad = lane_ % 4;
    if constexpr (Kernel::kKeyScales) {
      const SharedAddress scales = pipeline_.key_scales(rings_.k.stage) + quad * 16;
#pragma unroll
      for (int j = 0; j < kScores / 4; j += 2) {
        const float4 four = load_shared_four(scales + j / 2 * 64);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          numbers[4 * j + 2 * r] *= four.x;
          numbers[4 * j + 2 * r + 1] *= four.y;
          numbers[4 * j + 4 + 2 * r] *= four.z;
          numbers[4 * j + 4 + 2 * r + 1] *= four.w;
        }
      }
    }
    if (!tiles.is_partial(tile, Kernel::kKeys)) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const LaneKeys seen = lane_keys(keys[r], tile * Kernel::kKeys + 2 * quad);
#pragma unroll
      for (int j = 0; j < kScores / 4; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (8 * j + e < seen.low || 8 * j + e >= seen.high)
            numbers[4 * j + 2 * r + e] = -HUGE_VALF;
    }
  }

  // Scores to p. A NaN makes the maximum NaN, and with it the row.
  __device__ __forceinline__ void weigh(float (&numbers)[kScores], const float (&units)[2],
                                        RowTops& tops) const {
    float bases[2];
    bool far = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most[2] = {numbers[2 * r], numbers[2 * r + 1]};
#pragma unroll
      for (int j = 1; j < kScores / 4; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) most[e] = max_or_nan(most[e], numbers[4 * j + 2 * r + e]);
      tops.raise(r, most_of_quad(max_or_nan(most[0], most[1])), units[r]);
      bases[r] = tops.base(r);
      far |= fabsf(bases[r]) > kMostExactTop;
    }
    if (__any_sync(0xFFFFFFFFu, far)) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float raw = tops.raw[r] == -HUGE_VALF ? 0.0F : tops.raw[r];
        bases[r] = fmaxf(fminf(__fmaf_rn(-raw, units[r], bases[r]), 1.0F), 0.0F);
#pragma unroll
        for (int j = 0; j < kScores / 4; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) numbers[4 * j + 2 * r + e] -= raw;
      }
    }
#pragma unroll
    for (int i = 0; i < kScores; ++i)
      numbers[i] = fast_exp2(__fmaf_rn(numbers[i], units[i / 2 % 2], -bases[i / 2 % 2]));
  }

  __device__ __forceinline__ void shrink(float (&sums)[kAllSums], float (&weight_sums)[2],
                                         const RowTops& tops) const {
    if (!__any_sync(0xFFFFFFFFu, tops.shrink[0] != 1.0F || tops.shrink[1] != 1.0F)) return;
#pragma unroll
    for (int i = 0; i < kAllSums; ++i) sums[i] *= tops.shrink[i / 2 % 2];
    if constexpr (!Kernel::kSumsByOnes) {
#pragma unroll
      for (int r = 0; r < 2; ++r) weight_sums[r] *= tops.shrink[r];
    }
  }

  // P in bf16, as operands of wgmma; and its sums as rounded, where ones beside V do not sum it.
  __device__ __forceinline__ void pack(const float (&numbers)[kScores],
                                       std::uint32_t (&p)[kWords][4],
                                       float (&weight_sums)[2]) const {
    float parts[2][2] = {};
#pragma unroll
    for (int step = 0; step < kWords; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 8 * step + 2 * i;
        std::uint32_t word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(numbers[at + 1]), "f"(numbers[at]));
        p[step][i] = word;
        if constexpr (Kernel::kSumsByOnes) continue;
        parts[i % 2][0] += __uint_as_float(word << 16);
        parts[i % 2][1] += __uint_as_float(word & 0xFFFF0000u);
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) weight_sums[r] += parts[r][0] + parts[r][1];
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
                                         float (&sums)[kAllSums]) const {
    const AttentionJob& job = plan_.job;
    float factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      factors[r] =
          finish_row(plan_, work, rows[r], tops, r, units[r],
                     Kernel::kSumsByOnes ? sums[kAllSums - 4 + 2 * r] : sum_of_quad(weight_sums[r]),
                     1.0F, kScoreError, lane_ % 4 == 0)
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
