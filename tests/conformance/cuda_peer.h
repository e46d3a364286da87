// What the conversion constructors of CUDA's host headers make of a value. Those headers are plain
// C++ to a host compiler: no nvcc, no GPU and no CUDA library are needed, only the include folder.
//
// Used by cuda_headers_test.cc, which runs where CMake finds the headers, and by generate.py, which
// builds cuda_peer.cc into a shared library to write the `cuda` rows of the golden vectors.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cuda_peer {

enum class Source { f64, f32, f16, bf16 };

template <typename Target>
std::uint8_t code_of(Source source, std::uint64_t bits) {
  switch (source) {
    case Source::f64:
      return Target(std::bit_cast<double>(bits)).__x;
    case Source::f32:
      return Target(std::bit_cast<float>(static_cast<std::uint32_t>(bits))).__x;
    case Source::f16: {
      __half_raw raw;
      raw.x = static_cast<unsigned short>(bits);
      return Target(__half(raw)).__x;
    }
    case Source::bf16: {
      __nv_bfloat16_raw raw;
      raw.x = static_cast<unsigned short>(bits);
      return Target(__nv_bfloat16(raw)).__x;
    }
  }
  return 0;
}

using CodeOf = std::uint8_t (*)(Source source, std::uint64_t bits);

// Null where CUDA has no such format.
inline CodeOf encoder(std::string_view format) {
  if (format == "e4m3fn") return code_of<__nv_fp8_e4m3>;
  if (format == "e5m2") return code_of<__nv_fp8_e5m2>;
  if (format == "e8m0fnu") return code_of<__nv_fp8_e8m0>;
  if (format == "e3m2fn") return code_of<__nv_fp6_e3m2>;
  if (format == "e2m3fn") return code_of<__nv_fp6_e2m3>;
  if (format == "e2m1fn") return code_of<__nv_fp4_e2m1>;
  return nullptr;
}

inline constexpr const char* kFormats[] = {"e4m3fn", "e5m2",   "e8m0fnu",
                                           "e3m2fn", "e2m3fn", "e2m1fn"};

}  // namespace cuda_peer
