// Kernel arguments of norms and activations along rows: input, producer, and sink of the result.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/quantize/fast_scale.h"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

inline constexpr int kRowValues = 16;    // neighbouring values per thread
inline constexpr int kRowThreads = 512;  // maximum, with twice as many values each

// Sink: values of a type, or e4m3 codes with a scale per row, per block, or given.
enum class Sink : std::uint8_t { f32, bf16, f16, row, block32, block128, given };
constexpr bool is_values(Sink sink) { return sink <= Sink::f16; }

struct RowPlan {
  const unsigned char* from;
  unsigned char* to;
  unsigned char* scales;
  std::int64_t from_pitch, to_pitch, scale_pitch, scale_stride;
  std::int64_t rows, cols;    // of the result
  std::int64_t gate_vectors;  // from the first half to the second (gated)
  Producer producer;
  FastScale scale;
  const float* inv_scale;
  float* amax;
  bool words_of_scales;  // four scale bytes can be stored as an aligned word
};

void norm_rows(const Exec&, const RowPlan&, DType source, Sink);      // norm_rows.cu
void activate_rows(const Exec&, const RowPlan&, DType source, Sink);  // activate_rows.cu

// Calls `launch` with source and sink as template arguments; bf16 alone in builds with one
// configuration per kernel.
template <typename Launch>
void with_source_and_sink(DType source, Sink sink, Launch&& launch) {
  const auto with_sink = [&]<DType kSource>() {
    switch (sink) {
      case Sink::f32:
        return launch.template operator()<kSource, Sink::f32>();
      case Sink::bf16:
        return launch.template operator()<kSource, Sink::bf16>();
      case Sink::f16:
        return launch.template operator()<kSource, Sink::f16>();
      case Sink::row:
        return launch.template operator()<kSource, Sink::row>();
      case Sink::block32:
        return launch.template operator()<kSource, Sink::block32>();
      case Sink::block128:
        return launch.template operator()<kSource, Sink::block128>();
      case Sink::given:
        return launch.template operator()<kSource, Sink::given>();
    }
  };
  switch (source) {
#ifndef OCTAVO_CUDA_ONE_CONFIG
    case DType::f32:
      return with_sink.template operator()<DType::f32>();
    case DType::f16:
      return with_sink.template operator()<DType::f16>();
#endif
    default:
      return with_sink.template operator()<DType::bf16>();
  }
}

}  // namespace octavo::cuda
