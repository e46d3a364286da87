// e4m3fn to bf16, four ways to handle subnormals and NaN in byte planes (see
// docs/design/cpu-kernels.md).
#if defined(__aarch64__)
#include <arm_neon.h>
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/convert/convert.h"
#include "octavo/format/decode.h"

namespace {

constexpr std::int64_t kElements = 65536;  // stays in L2: this measures instructions

// bf16 bits of a field, and of NaN for the last one.
std::uint16_t bfloat_of(std::uint32_t field) {
  if (field == 0x7F) return 0x7FC0;
  return static_cast<std::uint16_t>(
      __builtin_bit_cast(std::uint32_t,
                         static_cast<float>(octavo::decode(octavo::e4m3fn, field))) >>
      16);
}

void store(uint8x16_t low, uint8x16_t high, std::uint16_t* to) {
  vst1q_u8(reinterpret_cast<std::uint8_t*>(to), vzip1q_u8(low, high));
  vst1q_u8(reinterpret_cast<std::uint8_t*>(to + 8), vzip2q_u8(low, high));
}

struct Table {
  std::array<std::uint8_t, 32> low{}, high{};
};

// Version 1: shifts, a 16-entry TBX for fields below 16, a compare for NaN. 12 operations for 16
// codes.
void compares(const std::uint8_t* codes, std::uint16_t* values) {
  Table table;
  for (std::uint32_t f = 0; f < 16; ++f) {
    table.low[f] = static_cast<std::uint8_t>(bfloat_of(f));
    table.high[f] = static_cast<std::uint8_t>(bfloat_of(f) >> 8);
  }
  const uint8x16_t low_table = vld1q_u8(table.low.data()), high_table = vld1q_u8(table.high.data());
  for (std::int64_t i = 0; i < kElements; i += 16) {
    const uint8x16_t code = vld1q_u8(codes + i), field = vandq_u8(code, vdupq_n_u8(0x7F));
    uint8x16_t low = vqtbx1q_u8(vshlq_n_u8(field, 4), low_table, field);
    uint8x16_t high = vqtbx1q_u8(vsraq_n_u8(vdupq_n_u8(0x3C), field, 4), high_table, field);
    const uint8x16_t nan = vceqq_u8(field, vdupq_n_u8(0x7F));
    low = vbslq_u8(nan, vdupq_n_u8(0xC0), low);
    high = vbslq_u8(vdupq_n_u8(0x80), code, vorrq_u8(high, nan));
    store(low, high, values + i);
  }
}

// Twice the code plus 2 counts NaN as 0 and the subnormals from 2 on: one table replaces both.
template <typename Entry>
Table indexed_by_twice(Entry&& entry) {
  Table table;
  for (std::uint32_t i = 0; i < 32; ++i) {
    const std::uint16_t bits = entry((0x7F + i / 2) & 0x7F);
    table.low[i] = static_cast<std::uint8_t>(bits);
    table.high[i] = static_cast<std::uint8_t>(bits >> 8);
  }
  return table;
}

// Version 2: replaced by TBX over two registers. 10 operations, and the slowest of all.
void replaced(const std::uint8_t* codes, std::uint16_t* values) {
  const Table table = indexed_by_twice(bfloat_of);
  const uint8x16x2_t low_table = {{vld1q_u8(table.low.data()), vld1q_u8(table.low.data() + 16)}};
  const uint8x16x2_t high_table = {{vld1q_u8(table.high.data()), vld1q_u8(table.high.data() + 16)}};
  for (std::int64_t i = 0; i < kElements; i += 16) {
    const uint8x16_t code = vld1q_u8(codes + i), twice = vaddq_u8(code, code),
                     index = vaddq_u8(twice, vdupq_n_u8(2));
    const uint8x16_t low = vqtbx2q_u8(vshlq_n_u8(code, 4), low_table, index);
    const uint8x16_t high = vqtbx2q_u8(vsraq_n_u8(vdupq_n_u8(0x3C), twice, 5), high_table, index);
    store(low, vbslq_u8(vdupq_n_u8(0x80), code, high), values + i);
  }
}

// Version 3: the table holds what must be added to the plain shifts. 11 operations.
void corrected(const std::uint8_t* codes, std::uint16_t* values) {
  const Table table = indexed_by_twice([](std::uint32_t field) {
    const std::uint32_t right = bfloat_of(field), plain = field << 4;
    return static_cast<std::uint16_t>((((right >> 8) - (plain >> 8) - 0x3C) & 0xFF) << 8 |
                                      ((right - plain) & 0xFF));
  });
  const uint8x16x2_t low_table = {{vld1q_u8(table.low.data()), vld1q_u8(table.low.data() + 16)}};
  const uint8x16x2_t high_table = {{vld1q_u8(table.high.data()), vld1q_u8(table.high.data() + 16)}};
  for (std::int64_t i = 0; i < kElements; i += 16) {
    const uint8x16_t code = vld1q_u8(codes + i), twice = vaddq_u8(code, code),
                     index = vaddq_u8(twice, vdupq_n_u8(2));
    const uint8x16_t low = vaddq_u8(vshlq_n_u8(code, 4), vqtbl2q_u8(low_table, index));
    const uint8x16_t high =
        vsraq_n_u8(vaddq_u8(vqtbl2q_u8(high_table, index), vdupq_n_u8(0x3C)), twice, 5);
    store(low, vbslq_u8(vdupq_n_u8(0x80), code, high), values + i);
  }
}

// Version 4, the library's: the field plus 1 modulo 128 counts NaN as 0 and the subnormals from 1
// on, which fits a table of one register. 11 operations.
void one_register(const std::uint8_t* codes, std::uint16_t* values) {
  Table table;
  for (std::uint32_t i = 0; i < 16; ++i) {
    table.low[i] = static_cast<std::uint8_t>(bfloat_of((i + 0x7F) & 0x7F));
    table.high[i] = static_cast<std::uint8_t>(bfloat_of((i + 0x7F) & 0x7F) >> 8);
  }
  const uint8x16_t low_table = vld1q_u8(table.low.data()), high_table = vld1q_u8(table.high.data());
  const uint8x16_t mask = vdupq_n_u8(0x7F);
  for (std::int64_t i = 0; i < kElements; i += 16) {
    const uint8x16_t code = vld1q_u8(codes + i), field = vandq_u8(code, mask);
    const uint8x16_t index = vandq_u8(vaddq_u8(code, vdupq_n_u8(1)), mask);
    const uint8x16_t low = vqtbx1q_u8(vshlq_n_u8(code, 4), low_table, index);
    const uint8x16_t high =
        vqtbx1q_u8(vaddq_u8(vshrq_n_u8(field, 4), vdupq_n_u8(0x3C)), high_table, index);
    store(low, vbslq_u8(vdupq_n_u8(0x80), code, high), values + i);
  }
}

template <void (*kVersion)(const std::uint8_t*, std::uint16_t*)>
void run(benchmark::State& state) {
  std::vector<std::uint8_t> codes(kElements);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(i * 167);
  std::vector<std::uint16_t> values(kElements), wanted(kElements);
  octavo::decode(octavo::code_view(codes.data(), octavo::e4m3fn, {kElements}),
                 octavo::value_view(wanted.data(), octavo::DType::bf16, {kElements}),
                 {.backend = &octavo::reference_backend()});
  kVersion(codes.data(), values.data());
  if (values != wanted) state.SkipWithError("wrong bits");
  for (auto _ : state) {
    kVersion(codes.data(), values.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kElements);
}

BENCHMARK(run<compares>)->Name("decode_e4m3fn_bf16/1_compares");
BENCHMARK(run<replaced>)->Name("decode_e4m3fn_bf16/2_replaced_by_tbx");
BENCHMARK(run<corrected>)->Name("decode_e4m3fn_bf16/3_corrected_by_tbl");
BENCHMARK(run<one_register>)->Name("decode_e4m3fn_bf16/4_one_register");

}  // namespace
#endif
