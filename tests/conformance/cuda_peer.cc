// C interface to cuda_peer.h, for generate.py (which builds it; it is no part of any test).
#include "cuda_peer.h"

namespace {

template <typename Bits>
void run(cuda_peer::CodeOf encode, cuda_peer::Source source, const void* in, std::uint8_t* out,
         std::int64_t count) {
  const Bits* bits = static_cast<const Bits*>(in);
  for (std::int64_t i = 0; i < count; ++i) out[i] = encode(source, bits[i]);
}

}  // namespace

extern "C" int cuda_codes(const char* format, int source, const void* in, std::uint8_t* out,
                          std::int64_t count) {
  const cuda_peer::CodeOf encode = cuda_peer::encoder(format);
  if (encode == nullptr) return 1;
  const auto kind = static_cast<cuda_peer::Source>(source);
  switch (kind) {
    case cuda_peer::Source::f64:
      run<std::uint64_t>(encode, kind, in, out, count);
      break;
    case cuda_peer::Source::f32:
      run<std::uint32_t>(encode, kind, in, out, count);
      break;
    case cuda_peer::Source::f16:
    case cuda_peer::Source::bf16:
      run<std::uint16_t>(encode, kind, in, out, count);
      break;
  }
  return 0;
}
