// MXFP8 along rows, and along rows and columns at once: every backend is a step of the ladder, from
// the obvious loop through f32 lanes to 16-bit lanes (bf16 only).
#include <benchmark/benchmark.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/format/named_formats.h"

namespace {

constexpr std::int64_t kRows = 256, kCols = 1024;  // stays in L2
constexpr std::int64_t kBlock = 32;

// A copy: codes, then scales.
struct Copy {
  std::vector<std::uint8_t> bytes =
      std::vector<std::uint8_t>(kRows * kCols * (kBlock + 1) / kBlock);

  octavo::QuantizedMatrix matrix(std::int64_t rows, std::int64_t cols) {
    const auto plain = [](const octavo::Format& format, void* data, std::int64_t r,
                          std::int64_t c) {
      octavo::Matrix matrix;
      matrix.data = data;
      matrix.dtype = octavo::DType::code;
      matrix.format = format;
      matrix.rows = r;
      matrix.cols = c;
      matrix.row_pitch = c;
      matrix.col_stride = 1;
      return matrix;
    };
    octavo::QuantizedMatrix quantized;
    quantized.codes = plain(octavo::e4m3fn, bytes.data(), rows, cols);
    quantized.scales =
        plain(octavo::e8m0fnu, bytes.data() + rows * cols, rows, (cols + kBlock - 1) / kBlock);
    quantized.tile = {1, kBlock};
    return quantized;
  }
};

void run(benchmark::State& state, const octavo::Kernels* kernels, octavo::DType dtype, bool both) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  const int bytes = octavo::element_bytes(dtype);
  std::vector<std::byte> memory(static_cast<std::size_t>(kRows * kCols * bytes));
  for (std::int64_t i = 0; i < kRows * kCols; ++i) {
    // The upper bytes of an f32 are a bf16.
    const auto word = std::bit_cast<std::uint32_t>(normal(generator)) >> (32 - 8 * bytes);
    std::memcpy(memory.data() + i * bytes, &word, static_cast<std::size_t>(bytes));
  }
  octavo::QuantizeJob job;
  job.source.values = {.data = memory.data(), .dtype = dtype, .rows = kRows, .cols = kCols};
  job.source.values.row_pitch = kCols * bytes;
  job.source.values.col_stride = bytes;
  job.scale = {.format = octavo::ScaleFormat::e8m0, .rule = octavo::ScaleRule::rceil};
  const auto quantize = [&](const octavo::Kernels& by, Copy& rows, Copy& columns) {
    job.rowwise = rows.matrix(kRows, kCols);
    if (both) job.columnwise = columns.matrix(kCols, kRows);
    by.quantize({}, job);
  };
  Copy rows, columns, wanted_rows, wanted_columns;
  quantize(octavo::reference_backend(), wanted_rows, wanted_columns);
  quantize(*kernels, rows, columns);
  if (rows.bytes != wanted_rows.bytes || columns.bytes != wanted_columns.bytes)
    state.SkipWithError("wrong bits");
  for (auto _ : state) {
    kernels->quantize({}, job);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kRows * kCols);
}

const int kRegistered = [] {
  const auto backends = octavo::backends();
  for (const octavo::DType dtype : {octavo::DType::f32, octavo::DType::bf16}) {
    for (auto step = backends.rbegin(); step != backends.rend(); ++step) {
      if (!step->usable) continue;
      for (const bool both : {false, true}) {
        const std::string name = std::string("quantize_mxfp8_") +
                                 (dtype == octavo::DType::f32 ? "f32" : "bf16") +
                                 (both ? "_both/" : "/") + step->name;
        benchmark::RegisterBenchmark(
            name.c_str(), [kernels = step->kernels, dtype, both](benchmark::State& state) {
              run(state, kernels, dtype, both);
            });
      }
    }
  }
  return 0;
}();

}  // namespace
