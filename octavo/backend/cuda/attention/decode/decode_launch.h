// Which decode kernel a job takes, and what the host must know of it.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/attention/decode/decode_plan.h"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

struct DecodeKind {
  int dims = 0;  // the larger head size
  int rows = 0;  // query rows that read a KV head
  bool token_scales = false;
};

struct DecodeLaunch {
  int row_tiles = 0, keys_of_block = 0, blocks_of_multiprocessor = 0;
  std::int64_t partial_floats = 0;
  void (*run)(const Exec& exec, const DecodePlan& plan) = nullptr;
};

DecodeLaunch decode_e4m3(const DecodeKind& kind);  // decode_e4m3.cu, and so on
DecodeLaunch decode_e5m2(const DecodeKind& kind);
DecodeLaunch decode_bf16(const DecodeKind& kind);
DecodeLaunch decode_f16(const DecodeKind& kind);
DecodeLaunch decode_f32(const DecodeKind& kind);

}  // namespace octavo::cuda
