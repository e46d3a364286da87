// The `cuda` profile against CUDA's own headers, compiled as plain C++: every bf16 and f16 input,
// every landmark in f32 and f64. Built only where CMake finds the headers; peer_*.tsv hold their
// results for all other machines.
#include "tests/conformance/cuda_peer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "octavo/format/parse_format.h"
#include "octavo/round/encode.h"
#include "octavo/round/profile.h"
#include "tests/oracle/oracle.h"

namespace octavo {
namespace {

using cuda_peer::Source;

class CudaHeaders : public testing::TestWithParam<const char*> {
 protected:
  void compare(Source source, std::uint64_t bits, double value) const {
    const Format format = parse_format(GetParam());
    const std::uint32_t got =
        encode_value(format, value, profile_policy(Profile::cuda, format)).code;
    ASSERT_EQ(got, cuda_peer::encoder(GetParam())(source, bits))
        << GetParam() << " " << std::hexfloat << value;
  }
};

TEST_P(CudaHeaders, Every16BitInput) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    compare(Source::f16, bits, oracle::value_of_f16(static_cast<std::uint16_t>(bits)));
    compare(Source::bf16, bits, oracle::value_of_bf16(static_cast<std::uint16_t>(bits)));
    if (HasFatalFailure()) return;
  }
}

TEST_P(CudaHeaders, EveryLandmark) {
  std::vector<double> marks = oracle::Oracle(oracle::row_named(GetParam())).landmarks();
  marks.insert(marks.end(), {0.0, 5e-324, 1e300, INFINITY});
  for (const double mark : marks) {
    for (const double sign : {1.0, -1.0}) {
      for (const double value :
           {std::nextafter(mark, 0.0), mark, std::nextafter(mark, double{INFINITY})}) {
        compare(Source::f64, std::bit_cast<std::uint64_t>(sign * value), sign * value);
      }
      const auto near = static_cast<float>(mark);
      for (const float value : {std::nextafter(near, 0.0f), near, std::nextafter(near, INFINITY)}) {
        const float input = static_cast<float>(sign) * value;
        compare(Source::f32, std::bit_cast<std::uint32_t>(input), double{input});
      }
      if (HasFatalFailure()) return;
    }
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000 && !HasFatalFailure(); ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    compare(Source::f32, bits, double{std::bit_cast<float>(bits)});
    const std::uint64_t wide = random();
    const double value = std::bit_cast<double>(wide);
    if (!std::isnan(value)) compare(Source::f64, wide, value);  // see profile.h
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaHeaders, testing::ValuesIn(cuda_peer::kFormats),
                         [](const auto& format) { return std::string(format.param); });

}  // namespace
}  // namespace octavo
