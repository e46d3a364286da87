// Decode attention of K and V in values: bf16, or rounded to it.
#include "octavo/backend/cuda/attention/decode/decode_launch.cuh"

namespace octavo::cuda {

DecodeLaunch decode_bf16(const DecodeKind& kind) {
  return decode_launch_for<HalfElement<false>, true, false>(kind);
}
DecodeLaunch decode_f16(const DecodeKind& kind) {
  return decode_launch_for<HalfElement<true>, false, false>(kind);
}
DecodeLaunch decode_f32(const DecodeKind& kind) {
  return decode_launch_for<FloatElement, false, false>(kind);
}

}  // namespace octavo::cuda
