// A profile reproduces the cast of torch, ml_dtypes, CUDA, ONNX or OCP MX bit for bit. What a peer
// does depends on the format, so a profile is a function from a format to a policy.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/format/format.h"
#include "octavo/round/policy.h"

namespace octavo {

enum class Profile : std::uint8_t {
  torch,       // torch 2.12 and later: e4m3fn saturates, e5m2 overflows to Inf, fnuz to NaN
  torch_2_11,  // torch up to 2.11: e4m3fn overflows to NaN
  ml_dtypes,   // nothing saturates but FP6 and FP4
  cuda,  // cuda_fp8.h, cuda_fp6.h, cuda_fp4.h constructors: everything saturates, NaN loses its
         // sign (but for NaN from f64 to FP8, whose sign and payload CUDA copies; this profile does
         // not)
  ocp_sat,     // OFP8 and MX, saturating
  ocp_nonsat,  // OFP8, not saturating
  onnx,        // Cast with saturate=1 (its default)
};

OCTAVO_API EncodePolicy profile_policy(Profile profile, const Format& format);
OCTAVO_API std::string_view name_of(Profile profile);
OCTAVO_API Profile parse_profile(std::string_view name);
OCTAVO_API std::vector<std::string> profile_names();

}  // namespace octavo
