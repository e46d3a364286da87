// Decode attention of K and V in e4m3.
#include "octavo/backend/cuda/attention/decode/decode_launch.cuh"

namespace octavo::cuda {

DecodeLaunch decode_e4m3(const DecodeKind& kind) {
  if (kind.token_scales) return decode_launch_for<Fp8Element<false>, true, true>(kind);
  return decode_launch_for<Fp8Element<false>, true, false>(kind);
}

}  // namespace octavo::cuda
