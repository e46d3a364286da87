// Memory layout must not matter: packed bits, strides of any sign, sizes that fit no vector, bytes
// that are not aligned, the same memory for input and output. Values are checked elsewhere; here a
// dense conversion of the same elements is the truth, and canaries show that nothing beside the
// output is touched.
#include <numeric>
#include <random>

#include "tests/exact/exact_harness.h"

namespace exact {
namespace {

constexpr std::uint8_t kCanary = 0x5A;

std::vector<float> some_values(std::int64_t count) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> exponent(-12, 12);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = std::exp2(exponent(random)) * (random() % 2 ? 1.0f : -1.0f);
  return values;
}

// The oracle's code of each value: the truth for every layout.
std::vector<std::uint8_t> codes_of(const std::vector<float>& values, const oracle::Oracle& oracle) {
  std::vector<std::uint8_t> codes;
  for (const float value : values)
    codes.push_back(static_cast<std::uint8_t>(oracle.encode(double{value}, {}).code));
  return codes;
}

// Packing as the documentation says it: a little-endian bit stream, each row on a byte, zeros after
// its end.
std::vector<std::uint8_t> packed_by_hand(const std::vector<std::uint8_t>& codes, std::int64_t rows,
                                         std::int64_t cols, int bits) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<bool> stream;
    for (std::int64_t col = 0; col < cols; ++col) {
      for (int bit = 0; bit < bits; ++bit)
        stream.push_back(codes[static_cast<std::size_t>(row * cols + col)] >> bit & 1);
    }
    while (stream.size() % 8 != 0) stream.push_back(false);
    for (std::size_t at = 0; at < stream.size(); at += 8) {
      unsigned byte = 0;
      for (std::size_t bit = 0; bit < 8; ++bit)
        byte |= static_cast<unsigned>(stream[at + bit]) << bit;
      bytes.push_back(static_cast<std::uint8_t>(byte));
    }
  }
  return bytes;
}

TEST(PackedLayout, IsALittleEndianBitStreamPerRow) {
  for (const char* name : {"e2m1fn", "e3m2fn", "e2m3fn", "e3m3", "e2m2", "e1m0fn", "e4m2fnu"}) {
    const Format format = parse_format(name);
    const oracle::Oracle oracle(oracle::row_named(name));
    for (const BackendInfo& backend : every_backend()) {
      for (const std::int64_t rows : {1, 2, 3}) {
        for (const std::int64_t cols :
             {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 2047, 2049, 5000}) {
          std::vector<float> values = some_values(rows * cols);
          const std::vector<std::uint8_t> codes = codes_of(values, oracle);
          const std::vector<std::uint8_t> want = packed_by_hand(codes, rows, cols, format.bits());
          ASSERT_EQ(static_cast<std::int64_t>(want.size()),
                    dense_bytes({rows, cols}, DType::code, format, true));
          std::vector<std::uint8_t> packed(want.size() + 2, kCanary);
          const View source = value_view(values.data(), DType::f32, {rows, cols});
          const View packed_view = code_view(packed.data() + 1, format, {rows, cols}, true);
          encode(source, packed_view, {}, {.backend = backend.kernels});
          ASSERT_EQ(packed.front(), kCanary);
          ASSERT_EQ(packed.back(), kCanary)
              << backend.name << " " << name << " " << rows << "x" << cols;
          ASSERT_EQ(std::vector(packed.begin() + 1, packed.end() - 1), want)
              << backend.name << " " << name << " " << rows << "x" << cols;

          // Packed to values, packed to unpacked, unpacked to packed.
          std::vector<float> decoded(values.size()), decoded_unpacked(values.size());
          decode(packed_view, value_view(decoded.data(), DType::f32, {rows, cols}),
                 {.backend = backend.kernels});
          std::vector<std::uint8_t> unpacked(codes.size());
          encode(packed_view, code_view(unpacked.data(), format, {rows, cols}), {},
                 {.backend = backend.kernels});
          ASSERT_EQ(unpacked, codes) << backend.name << " " << name;
          decode(code_view(unpacked.data(), format, {rows, cols}),
                 value_view(decoded_unpacked.data(), DType::f32, {rows, cols}));
          ASSERT_EQ(decoded, decoded_unpacked)
              << backend.name << " " << name << " " << rows << "x" << cols;
          std::vector<std::uint8_t> again(want.size());
          encode(code_view(unpacked.data(), format, {rows, cols}),
                 code_view(again.data(), format, {rows, cols}, true), {},
                 {.backend = backend.kernels});
          ASSERT_EQ(again, want) << backend.name << " " << name;
        }
      }
    }
  }
}

// The two common layouts: FP4 first in the low nibble, FP6 four in three bytes.
TEST(PackedLayout, MatchesTheWordsOfTheDocumentation) {
  const std::vector<float> values{0.5f, 1, 1.5f,
                                  -6};  // e2m1fn codes 1 2 3 F; e3m2fn codes 08 0C 0E 36
  for (const BackendInfo& backend : every_backend()) {
    const Tensor fp4 =
        encode(view_of(std::span(values)), e2m1fn, {}, {.backend = backend.kernels}, true);
    ASSERT_EQ(fp4.nbytes(), 2);
    EXPECT_EQ(fp4.bytes()[0], std::byte{0x21});
    EXPECT_EQ(fp4.bytes()[1], std::byte{0xF3});
    const Tensor fp6 =
        encode(view_of(std::span(values)), e3m2fn, {}, {.backend = backend.kernels}, true);
    ASSERT_EQ(fp6.nbytes(), 3);
    const std::uint32_t word = 0x08u | 0x0Cu << 6 | 0x0Eu << 12 | 0x36u << 18;
    for (unsigned i = 0; i < 3; ++i)
      EXPECT_EQ(static_cast<std::uint32_t>(fp6.bytes()[i]), word >> (8 * i) & 0xFF) << i;
  }
}

// A view over `memory` with strides in elements.
View strided(std::vector<float>& memory, std::int64_t first, const Shape& shape,
             std::vector<std::int64_t> strides) {
  View view = value_view(memory.data() + first, DType::f32, shape);
  for (int i = 0; i < shape.rank(); ++i) view.strides[i] = strides[static_cast<std::size_t>(i)] * 4;
  return as_read_only(view);
}

TEST(StridedLayout, AnyStrideOfTheInput) {
  std::vector<float> memory = some_values(4000);
  struct Case {
    const char* what;
    std::int64_t first;
    Shape shape;
    std::vector<std::int64_t> strides;
  };
  const std::vector<Case> cases{
      {"every third", 0, {700}, {3}},
      {"backwards", 999, {1000}, {-1}},
      {"every second backwards", 1999, {999}, {-2}},
      {"one element again and again", 17, {333}, {0}},
      {"a row again and again", 5, {7, 64}, {0, 1}},
      {"a column again and again", 5, {64, 7}, {1, 0}},
      {"a window", 130, {13, 21}, {40, 1}},
      {"transposed", 0, {37, 53}, {1, 37}},
      {"transposed and backwards", 37 * 53 - 1, {37, 53}, {-1, -37}},
      {"permuted", 0, {5, 7, 11}, {1, 5, 35}},
      {"four dimensions", 0, {3, 4, 5, 6}, {400, 90, 7, 1}},
      {"four dimensions, mixed signs", 2000, {3, 4, 5, 6}, {400, -90, 7, -1}},
      {"sizes of one", 3, {1, 9, 1, 1, 8, 1}, {5, 100, -7, 0, 2, 9}},
      {"eight dimensions", 0, {2, 2, 2, 2, 2, 2, 2, 3}, {1000, 501, 250, 99, 50, 20, 7, 3}},
      {"a scalar", 42, {}, {}},
  };
  const oracle::Oracle oracle(oracle::row_named("e4m3fn"));
  for (const Case& test : cases) {
    // Gather in row-major order by odometer.
    std::vector<float> dense;
    const std::int64_t count = element_count(test.shape);
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i, at = test.first;
      for (int axis = test.shape.rank() - 1; axis >= 0; --axis) {
        at += rest % test.shape[axis] * test.strides[static_cast<std::size_t>(axis)];
        rest /= test.shape[axis];
      }
      dense.push_back(memory[static_cast<std::size_t>(at)]);
    }
    const std::vector<std::uint8_t> want = codes_of(dense, oracle);
    // Stochastic draws follow the row-major index, wherever the element lies.
    EncodePolicy stochastic = policy_of(Rounding::stochastic, Overflow::saturate);
    std::vector<std::uint8_t> want_stochastic;
    for (std::size_t i = 0; i < dense.size(); ++i) {
      const std::uint32_t random =
          oracle::draw(stochastic.seed, stochastic.first_index + i, stochastic.stochastic_bits);
      want_stochastic.push_back(
          static_cast<std::uint8_t>(oracle.encode(double{dense[i]}, stochastic, random).code));
    }
    const View view = strided(memory, test.first, test.shape, test.strides);
    for (const BackendInfo& backend : every_backend()) {
      std::vector<std::uint8_t> codes(static_cast<std::size_t>(count) + 2, kCanary);
      const View out = code_view(codes.data() + 1, e4m3fn, test.shape);
      encode(view, out, {}, {.backend = backend.kernels});
      EXPECT_EQ(std::vector(codes.begin() + 1, codes.end() - 1), want)
          << backend.name << ": " << test.what;
      encode(view, out, stochastic, {.backend = backend.kernels});
      EXPECT_EQ(std::vector(codes.begin() + 1, codes.end() - 1), want_stochastic)
          << backend.name << ": " << test.what;
      EXPECT_TRUE(codes.front() == kCanary && codes.back() == kCanary)
          << backend.name << ": " << test.what;
    }
  }
}

TEST(StridedLayout, CodesOfAnyStrideDecode) {
  std::vector<std::uint8_t> memory(1000);
  std::iota(memory.begin(), memory.end(), std::uint8_t{0});
  const oracle::Oracle oracle(oracle::row_named("e5m2"));
  for (const BackendInfo& backend : every_backend()) {
    for (const std::int64_t stride : {-3, -1, 0, 1, 2, 3}) {
      View view = code_view(memory.data() + 500, e5m2, {150});
      view.strides[0] = stride;
      std::vector<float> values(150);
      decode(view, view_of(std::span(values)), {.backend = backend.kernels});
      for (std::int64_t i = 0; i < 150; ++i) {
        const oracle::Meaning& meaning =
            oracle.meanings()[memory[static_cast<std::size_t>(500 + i * stride)]];
        const float got = values[static_cast<std::size_t>(i)];
        if (meaning.kind == oracle::Kind::nan) {
          ASSERT_TRUE(std::isnan(got)) << backend.name << " stride " << stride;
        } else if (meaning.kind == oracle::Kind::number) {
          ASSERT_EQ(static_cast<float>(meaning.value), got)
              << backend.name << " stride " << stride << " element " << i;
        }
      }
    }
  }
}

// Vectors, blocks and thread splits all end somewhere: sizes around each, at every alignment.
TEST(RaggedLayout, EverySizeAndAlignment) {
  constexpr std::int64_t kMax = 131075;
  const std::vector<float> all = some_values(kMax + 16);
  const oracle::Oracle oracle(oracle::row_named("e4m3fn"));
  const std::vector<std::uint8_t> want = codes_of(all, oracle);
  std::vector<std::int64_t> sizes(70);
  std::iota(sizes.begin(), sizes.end(), 0);
  for (const std::int64_t edge : {128, 256, 1024, 2048, 4096, 32768, 65536, 131072}) {
    for (const std::int64_t off : {-1, 0, 1, 3}) sizes.push_back(edge + off);
  }
  for (const BackendInfo& backend : every_backend()) {
    for (const std::int64_t size : sizes) {
      const std::int64_t shift = size % 16;  // walks over every alignment of a vector
      std::vector<std::uint8_t> codes(static_cast<std::size_t>(size + shift) + 16, kCanary);
      const View source =
          as_read_only(value_view(const_cast<float*>(all.data()) + shift, DType::f32, {size}));
      encode(source, code_view(codes.data() + shift, e4m3fn, {size}), {},
             {.backend = backend.kernels});
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(codes.size()); ++i) {
        const bool inside = i >= shift && i < shift + size;
        const std::uint8_t expected = inside ? want[static_cast<std::size_t>(i)] : kCanary;
        ASSERT_EQ(codes[static_cast<std::size_t>(i)], expected)
            << backend.name << " size " << size << " at " << i;
      }
      std::vector<float> back(static_cast<std::size_t>(size + shift) + 4, -1234.5f);
      decode(code_view(codes.data() + shift, e4m3fn, {size}),
             value_view(back.data() + shift, DType::f32, {size}), {.backend = backend.kernels});
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(back.size()); ++i) {
        const bool inside = i >= shift && i < shift + size;
        const auto at = static_cast<std::size_t>(i);
        ASSERT_EQ(back[at],
                  inside ? static_cast<float>(oracle.meanings()[want[at]].value) : -1234.5f)
            << backend.name << " size " << size << " at " << i;
      }
    }
  }
}

// Values whose bytes begin anywhere: a file read into memory is not aligned. On a device they must
// be, and the operations above the kernel interface see to it.
TEST(RaggedLayout, BytesNeedNoAlignment) {
  const std::vector<float> values = some_values(300);
  const std::vector<std::uint8_t> want =
      codes_of(values, oracle::Oracle(oracle::row_named("e5m2")));
  for (const BackendInfo& backend : every_backend()) {
    if (backend.name.starts_with("cuda")) continue;
    for (std::size_t shift = 1; shift < 4; ++shift) {
      std::vector<std::byte> bytes(values.size() * 4 + shift);
      std::memcpy(bytes.data() + shift, values.data(), values.size() * 4);
      std::vector<std::uint8_t> codes(values.size());
      encode(value_view(bytes.data() + shift, DType::f32, {300}),
             code_view(codes.data(), e5m2, {300}), {}, {.backend = backend.kernels});
      EXPECT_EQ(codes, want) << backend.name << " shift " << shift;
    }
  }
}

TEST(InPlaceLayout, CodesOverwriteTheirValues) {
  for (const std::int64_t count : {1, 2, 3, 5, 64, 1000, 2048, 40000, 200000}) {
    const std::vector<float> values = some_values(count);
    const oracle::Oracle narrow(oracle::row_named("e4m3fn"));
    const std::vector<std::uint8_t> want = codes_of(values, narrow);
    for (const BackendInfo& backend : every_backend()) {
      std::vector<float> memory = values;
      auto* bytes = reinterpret_cast<std::uint8_t*>(memory.data());
      encode(value_view(memory.data(), DType::f32, {count}), code_view(bytes, e4m3fn, {count}), {},
             {.backend = backend.kernels});
      ASSERT_EQ(std::vector(bytes, bytes + count), want) << backend.name << " " << count;
      // 16-bit codes, decoded in place to a 16-bit type: nothing moves.
      std::vector<std::uint16_t> halves(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < halves.size(); ++i)
        halves[i] = static_cast<std::uint16_t>(i * 40503u % 0x7C00u);
      const std::vector<std::uint16_t> before = halves;
      const Format half = parse_format("e5m10");
      decode(code_view(halves.data(), half, {count}),
             value_view(halves.data(), DType::f16, {count}), {.backend = backend.kernels});
      ASSERT_EQ(halves, before) << backend.name << " " << count;
    }
  }
}

TEST(EmptyLayout, IsNoError) {
  for (const BackendInfo& backend : every_backend()) {
    Counts counts{1, 2, 3};
    for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 5, 7}}) {
      encode(value_view(nullptr, DType::f32, shape), code_view(nullptr, e2m1fn, shape, true), {},
             {.counts = &counts, .backend = backend.kernels});
      EXPECT_EQ(counts, Counts{}) << backend.name;
      decode(code_view(nullptr, e4m3fn, shape), value_view(nullptr, DType::bf16, shape),
             {.backend = backend.kernels});
      EXPECT_EQ(encode(value_view(nullptr, DType::f64, shape), e4m3fn).nbytes(), 0);
    }
  }
}

}  // namespace
}  // namespace exact
