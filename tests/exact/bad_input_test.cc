// Invalid input: each mistake throws one Error with its code and message, and changes nothing.
#include <functional>
#include <limits>

#include "octavo/base/error_testing_internal.h"
#include "octavo/base/thread_pool.h"
#include "tests/exact/exact_harness.h"
#include "tests/support/sanitizer.h"

namespace exact {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

class BadInput : public testing::Test {
 protected:
  // Also expects memory to be unchanged.
  void refused(ErrorCode code, const std::string& words, const std::function<void()>& call) {
    const std::vector<std::uint8_t> before = memory;
    counts = {7, 8, 9};
    error_testing::expect_refused(code, words, call);
    EXPECT_EQ(memory, before) << "after '" << words << "'";
    EXPECT_EQ(counts, (Counts{7, 8, 9})) << "after '" << words << "'";
  }

  [[nodiscard]] View values(const Shape& shape) {
    return as_read_only(value_view(input.data(), DType::f32, shape));
  }
  [[nodiscard]] View codes(const Shape& shape, const Format& format = e4m3fn) {
    return code_view(memory.data(), format, shape);
  }
  [[nodiscard]] ConvertOptions options() { return {.counts = &counts}; }

  std::vector<float> input = std::vector<float>(64, 1.5f);
  std::vector<std::uint8_t> memory = std::vector<std::uint8_t>(1024, 0xC3);
  Counts counts;
};

constexpr ErrorCode kInvalid = ErrorCode::invalid_argument, kType = ErrorCode::wrong_type;

TEST_F(BadInput, Shapes) {
  refused(kInvalid, "shape", [&] { encode(values({8}), codes({9}), {}, options()); });
  refused(kInvalid, "shape", [&] { encode(values({8}), codes({2, 4}), {}, options()); });
  refused(kInvalid, "shape", [&] { encode(values({8, 1}), codes({8}), {}, options()); });
  refused(kInvalid, "shape",
          [&] { decode(codes({8}), value_view(input.data(), DType::f32, {7})); });
  refused(kInvalid, "negative", [&] { encode(values({-1}), codes({-1}), {}, options()); });
  refused(kInvalid, "", [&] {
    encode(std::span<const float>(input).first(3), std::span(memory).first(4), e4m3fn, {},
           options());
  });
  View strideless = values({4, 2});
  strideless.strides = Shape{8};
  refused(kInvalid, "strides", [&] { encode(strideless, codes({4, 2}), {}, options()); });
}

TEST_F(BadInput, SizesThatOverflow) {
  refused(kInvalid, "64 bits", [&] { (void)value_view(input.data(), DType::f32, {kMax, 2}); });
  refused(kInvalid, "64 bits", [&] { (void)value_view(input.data(), DType::f64, {kMax / 4}); });
  refused(kInvalid, "64 bits", [&] {
    (void)code_view(memory.data(), e2m1fn, {kMax / 2, 3}, true);
  });
  refused(kInvalid, "64 bits", [&] {
    (void)Tensor::values({std::int64_t{1} << 40, std::int64_t{1} << 40}, DType::f32);
  });
  // A view filled in by hand is checked by the operation itself.
  View huge = values({8});
  huge.shape = Shape{kMax, kMax};
  huge.strides = Shape{0, 0};
  View out = codes({8});
  out.shape = huge.shape;
  out.strides = Shape{kMax, 1};
  refused(kInvalid, "64 bits", [&] { encode(huge, out, {}, options()); });
  if (!support::under_sanitizer())  // which ends the program when memory runs out
    refused(ErrorCode::unsupported, "allocate",
            [&] { (void)Tensor::values({std::int64_t{1} << 58}, DType::bf16); });
}

TEST_F(BadInput, StridesOfArraysWithoutElements) {
  // Garbage strides are accepted where there is nothing to stride over.
  View empty = values({0});
  empty.shape = Shape{0, 4, 5};
  empty.strides = Shape{kMax, kMax, -kMax};
  counts = {7, 8, 9};
  encode(empty, codes({0, 4, 5}), {}, options());
  EXPECT_EQ(counts, Counts{});
}

TEST_F(BadInput, NullData) {
  refused(kInvalid, "null",
          [&] { encode(value_view(nullptr, DType::f32, {4}), codes({4}), {}, options()); });
  refused(kInvalid, "null",
          [&] { encode(values({4}), code_view(nullptr, e4m3fn, {4}), {}, options()); });
  refused(kInvalid, "null", [&] { decode(codes({4}), value_view(nullptr, DType::f32, {4})); });
  refused(kInvalid, "null",
          [&] { (void)encode(value_view(nullptr, DType::f32, {}), e4m3fn, {}, options()); });
}

TEST_F(BadInput, Types) {
  refused(kType, "codes",
          [&] { encode(values({4}), value_view(memory.data(), DType::bf16, {4}), {}, options()); });
  refused(kType, "codes", [&] { decode(values({4}), value_view(memory.data(), DType::f32, {4})); });
  refused(kType, "float32", [&] { decode(code_view(input.data(), e5m2, {4}), codes({4})); });
  refused(kType, "uint8_t", [&] {
    std::vector<std::uint16_t> wide(4);
    encode(std::span<const float>(input).first(4), std::span(wide), e4m3fn, {}, options());
  });
  refused(kType, "uint16_t", [&] {
    encode(std::span<const float>(input).first(4), std::span(memory).first(4),
           parse_format("e5m10"), {}, options());
  });
  refused(kType, "code_view", [&] { (void)value_view(memory.data(), DType::code, {4}); });
}

TEST_F(BadInput, Outputs) {
  refused(kInvalid, "read-only",
          [&] { encode(values({4}), as_read_only(codes({4})), {}, options()); });
  const View read_only_values = values({4});
  refused(kInvalid, "read-only", [&] { decode(codes({4}), read_only_values); });
  View gaps = codes({4});
  gaps.strides[0] = 2;
  refused(kInvalid, "contiguous", [&] { encode(values({4}), gaps, {}, options()); });
  gaps.strides[0] = 0;
  refused(kInvalid, "contiguous", [&] { encode(values({4}), gaps, {}, options()); });
  View backwards = code_view(memory.data() + 8, e4m3fn, {4});
  backwards.strides[0] = -1;
  refused(kInvalid, "contiguous", [&] { encode(values({4}), backwards, {}, options()); });
  View pitched = codes({2, 4});
  pitched.strides[0] = 5;
  refused(kInvalid, "contiguous", [&] { encode(values({2, 4}), pitched, {}, options()); });
  View transposed = value_view(memory.data(), DType::f32, {4, 4});
  std::swap(transposed.strides[0], transposed.strides[1]);
  refused(kInvalid, "contiguous", [&] {
    decode(code_view(input.data(), e4m3fn, {4, 4}), transposed);
  });
}

TEST_F(BadInput, Packing) {
  refused(kInvalid, "packed", [&] { (void)code_view(memory.data(), e4m3fn, {4}, true); });
  refused(kInvalid, "packed", [&] { (void)encode(values({4}), e5m2, {}, options(), true); });
  View packed_values = values({4});
  packed_values.packed = true;
  refused(kInvalid, "packed", [&] { encode(packed_values, codes({4}), {}, options()); });
  View packed = code_view(memory.data(), e2m1fn, {2, 4}, true);
  packed.strides[0] = 3;  // room between rows
  refused(kInvalid, "contiguous", [&] { encode(values({2, 4}), packed, {}, options()); });
  packed = code_view(memory.data(), e2m1fn, {2, 4}, true);
  packed.strides[1] = 1;  // an element stride inside a bit stream means nothing
  refused(kInvalid, "", [&] { encode(values({2, 4}), packed, {}, options()); });
  refused(kInvalid, "packed", [&] {
    decode(packed, value_view(input.data(), DType::f32, {2, 4}));
  });
}

TEST_F(BadInput, Overlap) {
  auto* floats = reinterpret_cast<float*>(memory.data());
  const auto from = [&](std::int64_t count) { return value_view(floats, DType::f32, {count}); };
  std::fill_n(floats, 64, 1.0f);
  refused(kInvalid, "overlap",
          [&] { encode(from(8), code_view(memory.data() + 1, e4m3fn, {8}), {}, options()); });
  refused(kInvalid, "overlap",
          [&] { encode(from(8), code_view(memory.data() + 31, e4m3fn, {8}), {}, options()); });
  refused(kInvalid, "overlap",
          [&] { decode(code_view(memory.data(), e4m3fn, {8}), from(8)); });  // grows
  refused(kInvalid, "overlap", [&] { decode(code_view(memory.data() + 4, e4m3fn, {8}), from(8)); });
  View reversed = value_view(floats + 7, DType::f32, {8});
  reversed.strides[0] = -4;
  refused(kInvalid, "overlap",
          [&] { encode(reversed, code_view(memory.data(), e4m3fn, {8}), {}, options()); });
  View spread = from(8);
  spread.strides[0] = 16;  // the same start, but not contiguous
  refused(kInvalid, "overlap",
          [&] { encode(spread, code_view(memory.data(), e4m3fn, {8}), {}, options()); });
  refused(kInvalid, "overlap",
          [&] { encode(from(8), code_view(memory.data(), e2m1fn, {8}, true), {}, options()); });
  // Adjacent memory is fine.
  encode(from(8), code_view(memory.data() + 32, e4m3fn, {8}), {}, options());
  EXPECT_EQ(memory[32], 0x38);
}

TEST_F(BadInput, NanIntoFormatsWithoutNan) {
  input[37] = std::numeric_limits<float>::quiet_NaN();
  input[41] = -std::numeric_limits<float>::signaling_NaN();
  for (const BackendInfo& backend : every_backend()) {
    for (const char* name : {"e2m1fn", "e3m2fn", "e2m3fn", "mxint8", "e4m2fnu"}) {
      const Format format = parse_format(name);
      ConvertOptions chosen = options();
      chosen.backend = backend.kernels;
      refused(kInvalid, "2 NaN", [&] {
        encode(values({8, 8}), codes({8, 8}, format), {}, chosen);
      });
      refused(kInvalid, name, [&] { encode(values({64}), codes({64}, format), {}, chosen); });
      View strided = values({32});
      strided.strides[0] = -8;
      strided.data = input.data() + 63;  // the odd elements, 37 and 41 among them
      refused(kInvalid, "2 NaN", [&] { encode(strided, codes({32}, format), {}, chosen); });
    }
    // Elements without NaN convert, and formats with NaN take it.
    encode(values({37}), codes({37}, e2m1fn), {}, {.backend = backend.kernels});
    encode(values({64}), codes({64}, e4m3fn), {}, {.backend = backend.kernels});
    memory.assign(memory.size(), 0xC3);
    std::vector<std::uint8_t> nan_codes{0x38, 0x7F, 0xFF};
    refused(kInvalid, "2 NaN", [&] {
      encode(code_view(nan_codes.data(), e4m3fn, {3}), codes({3}, e3m2fn), {},
             {.counts = &counts, .backend = backend.kernels});
    });
  }
}

TEST_F(BadInput, Policies) {
  for (const int bits : {0, -1, 17, 1000}) {
    EncodePolicy policy{.rounding = Rounding::stochastic};
    policy.stochastic_bits = bits;
    refused(kInvalid, "stochastic_bits",
            [&] { encode(values({4}), codes({4}), policy, options()); });
  }
  refused(kInvalid, "threads",
          [&] { encode(values({4}), codes({4}), {}, {.threads = -1, .counts = &counts}); });
  refused(kInvalid, "expected 0 (all) to 1024", [&] {
    encode(values({4}), codes({4}), {}, {.threads = kMaxThreads + 1, .counts = &counts});
  });
  View elsewhere = values({4});
  elsewhere.device = {DeviceKind::cuda, 0};
  refused(kInvalid, "on cuda:0 and the output on cpu",
          [&] { encode(elsewhere, codes({4}), {}, options()); });
}

// Formats built by hand: each breaks one rule of format_problem.
TEST_F(BadInput, Formats) {
  const auto broken = [](auto change) {
    Format format = e4m3fn;
    change(format);
    return format;
  };
  const std::vector<Format> formats{
      broken([](Format& f) { f.exponent_bits = 0; }),
      broken([](Format& f) { f.exponent_bits = 13; }),
      broken([](Format& f) { f.mantissa_bits = 14; }),
      broken([](Format& f) { f.exponent_bits = 255, f.mantissa_bits = 255; }),
      broken([](Format& f) { f.has_inf = true; }),
      broken([](Format& f) { f.nan = Nan::none; }),
      broken([](Format& f) { f.has_zero = false; }),
      broken([](Format& f) { f.has_subnormals = false; }),
      broken([](Format& f) { f.bias = 2000; }),
      broken([](Format& f) { f.bias = -2000; }),
      broken([](Format& f) { f.bias = 32767; }),
      broken([](Format& f) { f.bias = -32768; }),
      broken([](Format& f) { f.twos_complement = true; }),
      broken([](Format& f) { f.is_signed = false, f.nan = Nan::negative_zero; }),
      broken([](Format& f) { f.nan = static_cast<Nan>(9); }),
      Format{},
  };
  for (const Format& format : formats) {
    View out = codes({4});
    out.format = format;
    refused(kInvalid, "format", [&] { encode(values({4}), out, {}, options()); });
    refused(kInvalid, "format", [&] { (void)encode(values({4}), format, {}, options()); });
    refused(kInvalid, "format", [&] { decode(out, value_view(input.data(), DType::f32, {4})); });
  }
}

TEST_F(BadInput, BackendsByName) {
  refused(ErrorCode::unsupported, "reference", [&] { (void)backend_named("quantum"); });
  refused(ErrorCode::unsupported, "", [&] { (void)backend_named(""); });
}

}  // namespace
}  // namespace exact
