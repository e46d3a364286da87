// Kernel arguments of norms and activations along rows: input, producer, and output of the result.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/quantize/fast_scale.h"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

inline constexpr int kRowValues = 16;    // neighbouring values per thread
inline constexpr int kRowThreads = 512;  // maximum, with twice as many values each

// Where the results of a row go: values of a type, or e4m3 codes with a scale per row, per block,
// or given.
enum class RowOutput : std::uint8_t { f32, bf16, f16, row, block32, block128, given };
constexpr bool is_values(RowOutput output) { return output <= RowOutput::f16; }

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

void norm_rows(const Exec&, const RowPlan&, DType source, RowOutput);      // norm_rows.cu
void activate_rows(const Exec&, const RowPlan&, DType source, RowOutput);  // activate_rows.cu

// Calls `launch` with source and output as template arguments; bf16 alone in builds with one
// configuration per kernel.
template <typename Launch>
void with_source_and_output(DType source, RowOutput output, Launch&& launch) {
  const auto with_output = [&]<DType kSource>() {
    switch (output) {
      case RowOutput::f32:
        return launch.template operator()<kSource, RowOutput::f32>();
      case RowOutput::bf16:
        return launch.template operator()<kSource, RowOutput::bf16>();
      case RowOutput::f16:
        return launch.template operator()<kSource, RowOutput::f16>();
      case RowOutput::row:
        return launch.template operator()<kSource, RowOutput::row>();
      case RowOutput::block32:
        return launch.template operator()<kSource, RowOutput::block32>();
      case RowOutput::block128:
        return launch.template operator()<kSource, RowOutput::block128>();
      case RowOutput::given:
        return launch.template operator()<kSource, RowOutput::given>();
    }
  };
  switch (source) {
#ifndef OCTAVO_CUDA_ONE_CONFIG
    case DType::f32:
      return with_output.template operator()<DType::f32>();
    case DType::f16:
      return with_output.template operator()<DType::f16>();
#endif
    default:
      return with_output.template operator()<DType::bf16>();
  }
}

}  // namespace octavo::cuda
