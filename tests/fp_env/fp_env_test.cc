// The caller may have set anything: flush-to-zero (audio code and some libraries do, for the whole
// process), a rounding direction, half-precision modes. Conversions give the same bits regardless,
// on every thread, and leave the setting as they found it.
#include "octavo/base/fp_env.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/base/philox.h"
#include "octavo/convert/convert.h"
#include "octavo/format/decode.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/policy_names.h"
#include "tests/support/every_backend.h"

namespace octavo {
namespace {

struct Setting {
  const char* name;
  std::uint64_t bits;
};

#if defined(__aarch64__)
std::uint64_t control() {
  std::uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value)::"memory");
  return value;
}
void set_control(std::uint64_t value) { asm volatile("msr fpcr, %0" ::"r"(value) : "memory"); }
constexpr std::uint64_t kFz16 = 1u << 19, kFz = 1u << 24, kDefaultNan = 1u << 25,
                        kAlternativeHalf = 1u << 26;
constexpr std::uint64_t kUp = 1u << 22, kDown = 2u << 22, kZero = 3u << 22;
constexpr Setting kSettings[] = {
    {"FZ", kFz},         {"FZ16", kFz16},
    {"DN", kDefaultNan}, {"AHP", kAlternativeHalf},
    {"up", kUp},         {"down", kDown},
    {"zero", kZero},     {"everything", kFz | kFz16 | kDefaultNan | kAlternativeHalf | kUp}};
#elif defined(__x86_64__)
std::uint64_t control() { return _mm_getcsr(); }
void set_control(std::uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
constexpr std::uint64_t kMasked = 0x1F80, kDaz = 1u << 6, kFtz = 1u << 15;
constexpr std::uint64_t kUp = 2u << 13, kDown = 1u << 13, kZero = 3u << 13;
constexpr Setting kSettings[] = {
    {"FTZ", kMasked | kFtz},   {"DAZ", kMasked | kDaz},
    {"up", kMasked | kUp},     {"down", kMasked | kDown},
    {"zero", kMasked | kZero}, {"everything", kMasked | kFtz | kDaz | kUp}};
#endif

// Runs `work` under a setting and says whether it was left alone. Nothing else runs under it, least
// of all the test framework.
template <typename Work>
bool run_under(std::uint64_t bits, Work work) {
  const std::uint64_t before = control();
  set_control(bits);
  const std::uint64_t set = control();
  work();
  const std::uint64_t after = control();
  set_control(before);
  return set == after;
}

constexpr DType kValueTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
constexpr Rounding kRoundings[] = {
    Rounding::nearest_even, Rounding::nearest_away, Rounding::toward_zero, Rounding::up,
    Rounding::down,         Rounding::to_odd,       Rounding::stochastic};

std::vector<Format> formats() {
  std::vector<Format> all;
  for (const NamedFormat& named : kNamedFormats) all.push_back(named.format);
  // Grids that reach down to where f16, f32 and f64 have subnormals, which is what flushing
  // destroys.
  for (const char* name : {"e3m3", "e5m10", "e8m7", "e8m3b140", "e11m4", "e6m9fn", "e4m3fnu"})
    all.push_back(parse_format(name));
  return all;
}

std::vector<const Kernels*> usable_backends() {
  std::vector<const Kernels*> usable;
  for (const BackendInfo& backend : support::every_backend()) usable.push_back(backend.kernels);
  return usable;
}

// One third random bits, one third subnormals of the type, one third near the format's own numbers.
std::vector<std::uint8_t> make_values(DType dtype, const Format& format, std::int64_t count) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count * element_bytes(dtype)));
  const auto size = static_cast<std::size_t>(element_bytes(dtype));
  const int fraction_bits = dtype == DType::f64   ? 52
                            : dtype == DType::f32 ? 23
                            : dtype == DType::f16 ? 10
                                                  : 7;
  for (std::int64_t i = 0; i < count; ++i) {
    const PhiloxBlock block = philox4x32(5, static_cast<std::uint64_t>(i));
    std::uint64_t bits = block[0] | std::uint64_t{block[1]} << 32;
    if (i % 3 == 1)
      bits &= ((std::uint64_t{1} << fraction_bits) - 1) | (std::uint64_t{1} << (8 * size - 1));
    if (i % 3 == 2 && size >= 4) {
      const double value = decode(format, block[2]) * (1 + block[3] * 0x1p-36);
      const auto narrow = static_cast<float>(value);
      size == 8 ? std::memcpy(&bits, &value, 8) : std::memcpy(&bits, &narrow, 4);
    }
    std::memcpy(&bytes[static_cast<std::size_t>(i) * size], &bits, size);
  }
  return bytes;
}

std::vector<std::uint8_t> all_codes(const Format& format) {
  const auto count = std::size_t{1} << format.bits(),
             size = static_cast<std::size_t>(format.code_bytes());
  std::vector<std::uint8_t> bytes(count * size);
  for (std::size_t code = 0; code < count; ++code) std::memcpy(&bytes[code * size], &code, size);
  return bytes;
}

std::string label(const Kernels& kernels, const Format& format, DType dtype,
                  const std::string& note) {
  return text(kernels.name, ": ", format_name(format), ", ", dtype_name(dtype), ", ", note);
}

// Compares a conversion under every setting with the same under the default one.
template <typename Convert>
void expect_same_bits(const std::string& what, std::vector<std::uint8_t>& output, Convert convert) {
  convert();
  const std::vector<std::uint8_t> expected = output;
  for (const Setting& setting : kSettings) {
    std::fill(output.begin(), output.end(), std::uint8_t{0xA5});
    const bool left_alone = run_under(setting.bits, convert);
    EXPECT_TRUE(left_alone) << what << " changed the environment " << setting.name;
    std::size_t different = 0;
    for (std::size_t i = 0; i < output.size(); ++i) different += output[i] != expected[i];
    EXPECT_EQ(different, 0u) << what << " gives other bytes under " << setting.name;
  }
}

TEST(FpEnv, EncodeIgnoresTheCallersSetting) {
  constexpr std::int64_t kCount = 999;
  for (const Kernels* kernels : usable_backends()) {
    for (const Format& format : formats()) {
      for (const DType dtype : kValueTypes) {
        std::vector<std::uint8_t> input = make_values(dtype, format, kCount);
        std::vector<std::uint8_t> output(static_cast<std::size_t>(kCount * format.code_bytes()));
        const View values = value_view(input.data(), dtype, {kCount}),
                   codes = code_view(output.data(), format, {kCount});
        for (const Rounding rounding : kRoundings) {
          for (const bool via_f32 : {false, true}) {
            if (via_f32 && dtype != DType::f64) continue;
            const EncodePolicy policy{.rounding = rounding,
                                      .overflow = via_f32 ? Overflow::saturate : Overflow::ieee,
                                      .nan_input = NanInput::zero,
                                      .via_f32 = via_f32};
            const std::string what =
                label(*kernels, format, dtype, text(name_of(rounding), via_f32 ? " via f32" : ""));
            expect_same_bits(what, output, [&] {
              encode(values, codes, policy, {.threads = 1, .backend = kernels});
            });
          }
        }
      }
    }
  }
}

TEST(FpEnv, CountsIgnoreTheCallersSetting) {
  constexpr std::int64_t kCount = 999;
  for (const Kernels* kernels : usable_backends()) {
    for (const Format& format : formats()) {
      for (const DType dtype : kValueTypes) {
        std::vector<std::uint8_t> input = make_values(dtype, format, kCount);
        const View values = value_view(input.data(), dtype, {kCount});
        std::vector<std::uint8_t> codes(static_cast<std::size_t>(kCount * format.code_bytes()));
        std::vector<std::uint8_t> output(sizeof(Counts));
        expect_same_bits(label(*kernels, format, dtype, "counts"), output, [&] {
          Counts counts;
          encode(values, code_view(codes.data(), format, {kCount}), {.nan_input = NanInput::zero},
                 {.threads = 1, .counts = &counts, .backend = kernels});
          std::memcpy(output.data(), &counts, sizeof(counts));
        });
      }
    }
  }
}

TEST(FpEnv, DecodeIgnoresTheCallersSetting) {
  for (const Kernels* kernels : usable_backends()) {
    for (const Format& format : formats()) {
      const std::int64_t count = std::int64_t{1} << format.bits();
      std::vector<std::uint8_t> input = all_codes(format);
      for (const DType dtype : kValueTypes) {
        std::vector<std::uint8_t> output(static_cast<std::size_t>(count * element_bytes(dtype)));
        const View codes = code_view(input.data(), format, {count}),
                   values = value_view(output.data(), dtype, {count});
        expect_same_bits(label(*kernels, format, dtype, "decode"), output,
                         [&] { decode(codes, values, {.threads = 1, .backend = kernels}); });
      }
    }
  }
}

TEST(FpEnv, CodesToCodesIgnoreTheCallersSetting) {
  const Format wide = parse_format("e8m3b140"), widest = parse_format("e11m4");
  for (const Kernels* kernels : usable_backends()) {
    for (const Format& from : {e4m3fn, e5m2, e8m0fnu, mxint8, wide, widest}) {
      const std::int64_t count = std::int64_t{1} << from.bits();
      std::vector<std::uint8_t> input = all_codes(from);
      for (const Format& to : {e4m3fn, e5m2, e8m0fnu, mxint8, e2m1fn, wide, widest}) {
        std::vector<std::uint8_t> output(static_cast<std::size_t>(count * to.code_bytes()));
        const View values = code_view(input.data(), from, {count}),
                   codes = code_view(output.data(), to, {count});
        expect_same_bits(label(*kernels, from, DType::code, format_name(to)), output, [&] {
          encode(values, codes, {.nan_input = NanInput::zero}, {.threads = 1, .backend = kernels});
        });
      }
    }
  }
}

// Threads inherit the setting of the thread that started them, and the caller's own thread works
// too.
TEST(FpEnv, HoldsOnEveryThread) {
  constexpr std::int64_t kRows = 64, kCols = 8192;
  const Format format = parse_format("e8m3b140");
  for (const Kernels* kernels : usable_backends()) {
    for (const DType dtype : {DType::f64, DType::f32, DType::f16}) {
      std::vector<std::uint8_t> input = make_values(dtype, format, kRows * kCols);
      std::vector<std::uint8_t> output(
          static_cast<std::size_t>(kRows * kCols * format.code_bytes()));
      const View values = value_view(input.data(), dtype, {kRows, kCols});
      const View codes = code_view(output.data(), format, {kRows, kCols});
      expect_same_bits(label(*kernels, format, dtype, "three threads"), output, [&] {
        encode(values, codes, {.nan_input = NanInput::zero, .via_f32 = true},
               {.threads = 3, .backend = kernels});
      });
    }
  }
}

// The guard that kernels use, by itself.
TEST(FpEnv, GuardSetsAndRestores) {
  for (const Setting& setting : kSettings) {
    std::uint64_t inside = ~std::uint64_t{0}, inside_up = inside;
    const bool left_alone = run_under(setting.bits, [&] {
      {
        const FpEnvGuard guard;
        inside = control();
      }
      const FpEnvGuard guard(FpRounding::up);
      inside_up = control();
    });
    EXPECT_TRUE(left_alone) << setting.name;
#if defined(__aarch64__)
    EXPECT_EQ(inside, 0u) << setting.name;
    EXPECT_EQ(inside_up, kUp) << setting.name;
#else
    EXPECT_EQ(inside, kMasked) << setting.name;
    EXPECT_EQ(inside_up, kMasked | kUp) << setting.name;
#endif
  }
}

// The settings do what their names say: without this the tests above could pass for nothing.
TEST(FpEnv, SettingsAreReal) {
  volatile float tiny = 0x1p-149f, one = 1, little = 0x1p-30f;
  float flushed = 1, up = 0;
  run_under(kSettings[0].bits, [&] { flushed = tiny * one; });
  run_under(kSettings[std::size(kSettings) - 1].bits, [&] { up = one + little; });
  EXPECT_EQ(flushed, 0);
  EXPECT_GT(up, 1);
  EXPECT_GT(tiny * one, 0);
  EXPECT_EQ(one + little, 1);
}

}  // namespace
}  // namespace octavo
