// Decode attention of K and V in e5m2.
#include "octavo/backend/cuda/attention/decode/decode_launch.cuh"

namespace octavo::cuda {

// The kernels for scales of tokens also take those that all tokens share.
DecodeLaunch decode_e5m2(const DecodeKind& kind) {
  return decode_launch_for<Fp8Element<true>, true, true>(kind);
}

}  // namespace octavo::cuda
