// MX exponent alignment (align_exponents) on every backend: the reference's bytes and counts,
// through the kernel table, at addresses of every alignment.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "octavo/backend/align_job.h"
#include "octavo/octavo.h"
#include "tests/agreement/quantize_cases.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {
namespace {

constexpr std::size_t kSlack = 64;  // bytes around codes that must stay untouched

// An aligned matrix, whose codes begin `shift` bytes after an aligned address.
struct Result {
  Result(std::int64_t rows, std::int64_t cols, const Format& format, std::int64_t run,
         std::size_t shift)
      : codes(static_cast<std::size_t>(rows * cols) + 2 * kSlack, 0x5A),
        scales(static_cast<std::size_t>(rows * tile_count(run, cols)), -1.0F) {
    matrix = {.codes = {.data = codes.data() + kSlack + shift,
                        .dtype = DType::code,
                        .format = format,
                        .rows = rows,
                        .cols = cols,
                        .row_pitch = cols,
                        .col_stride = 1},
              .scales = {.data = scales.data(),
                         .dtype = DType::f32,
                         .rows = rows,
                         .cols = tile_count(run, cols),
                         .row_pitch = sizeof(float),
                         .col_stride = rows * static_cast<std::int64_t>(sizeof(float))},
              .tile = {1, run}};
  }
  [[nodiscard]] bool operator==(const Result& other) const {
    const auto bits = [](const std::vector<float>& floats) {
      std::vector<std::uint32_t> out;
      for (const float x : floats) out.push_back(std::bit_cast<std::uint32_t>(x));
      return out;
    };
    return codes == other.codes && bits(scales) == bits(other.scales) && changed == other.changed;
  }

  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  QuantizedMatrix matrix{};
  std::int64_t changed = 3;
};

struct Size {
  std::int64_t rows, cols;
};

TEST(AlignAgreement, EveryBackend) {
  std::mt19937 random(1);
  for (const Format& format : {e4m3fn, e5m2})
    for (const auto& [rows, cols] : {Size{1, 1},
                                     {3, 31},
                                     {2, 32},
                                     {5, 48},
                                     {4, 129},
                                     {9, 512},
                                     {3, 520},
                                     {2, 5000},
                                     {300, 96}})
      for (const unsigned spread : {1u, 12u, 250u})
        for (const std::size_t shift : {0u, 1u, 8u}) {
          std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * cols) + shift),
              exponents(static_cast<std::size_t>(rows * tile_count(kMxBlock, cols)));
          for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random());
          for (std::uint8_t& exponent : exponents)
            exponent = static_cast<std::uint8_t>(
                random() % 97 == 0 ? 255 : random() % spread + (spread > 200 ? 0 : 120));
          const QuantizedMatrix from{.codes = {.data = codes.data() + shift,
                                               .dtype = DType::code,
                                               .format = format,
                                               .rows = rows,
                                               .cols = cols,
                                               .row_pitch = cols,
                                               .col_stride = 1},
                                     .scales = {.data = exponents.data(),
                                                .dtype = DType::code,
                                                .format = e8m0fnu,
                                                .rows = rows,
                                                .cols = tile_count(kMxBlock, cols),
                                                .row_pitch = tile_count(kMxBlock, cols),
                                                .col_stride = 1},
                                     .tile = {1, kMxBlock}};
          for (const std::int64_t run : {std::int64_t{0}, kAlignRun}) {
            const auto aligned = [&](const Kernels& kernels, bool in_place) {
              Result result(rows, cols, format, run, shift);
              MxAlignJob job{.from = from, .to = result.matrix, .changed = &result.changed};
              if (in_place) {
                std::copy(codes.begin() + static_cast<std::ptrdiff_t>(shift), codes.end(),
                          static_cast<std::uint8_t*>(job.to.codes.data));
                job.from.codes.data = job.to.codes.data;
              }
              kernels.align_exponents({.threads = 3}, job);
              return result;
            };
            const Result wanted = aligned(reference_backend(), false);
            for (const BackendInfo& backend : support::every_backend()) {
              if (backend.kernels->align_exponents == nullptr) continue;
              for (const bool in_place : {false, true})
                ASSERT_TRUE(aligned(*backend.kernels, in_place) == wanted)
                    << backend.name << ", " << rows << " x " << cols << ", run " << run
                    << ", spread " << spread << ", shift " << shift << ", in place " << in_place;
            }
          }
        }
}

// quantize_aligned has the bytes of quantize followed by align_exponents.
TEST(AlignAgreement, QuantizingAtOnce) {
  unsigned seed = 0;
  bool any = false;
  for (const BackendInfo& backend : support::every_backend()) {
    if (backend.kernels->quantize_aligned == nullptr) continue;
    any = true;
    int done = 0;
    for (const char* name : {"mxfp8", "mxfp8:e5m2"})
      for (const Arith arith : {Arith::octavo, Arith::te})
        for (const DType dtype : {DType::bf16, DType::f16, DType::f32, DType::f64})
          for (const auto& [rows, cols] : {Size{1, 8},
                                           {17, 40},
                                           {3, 512},
                                           {5, 520},
                                           {2, 1000},
                                           {4, 1032},
                                           {3, 8192},
                                           {2, 16392},
                                           {2, 32768},
                                           {2, 32776},
                                           {3, 33}}) {
            ++seed;
            Scaling scaling = preset(name);
            scaling.scale.arith = arith;
            const Tensor values = values_as(all_kinds_of_values(rows * cols, seed, seed % 2 == 0),
                                            {rows, cols}, dtype);
            const QuantizedTensor mx =
                quantize(values.view(), scaling, {.backend = &reference_backend()});
            Result wanted(rows, cols, scaling.format, 0, 0), got = wanted;
            got.matrix = Result(rows, cols, scaling.format, 0, 0).matrix;
            got.matrix.codes.data = got.codes.data() + kSlack;
            got.matrix.scales.data = got.scales.data();
            const Aligned aligned =
                align_exponents(mx, AlignTo::rows, {.backend = &reference_backend()});
            std::ranges::copy(aligned.tensor.rowwise.codes.span<std::uint8_t>(),
                              wanted.codes.begin() + kSlack);
            std::ranges::copy(aligned.tensor.rowwise.scales.span<float>(), wanted.scales.begin());
            wanted.changed += aligned.changed;
            const std::int64_t bytes = element_bytes(dtype);
            QuantizeJob job{.scale = scaling.scale, .encode = scaling.encode};
            if (arith == Arith::te) job.encode.nan_code = NanCode::positive_ones;
            job.source.values = {.data = values.view().data,
                                 .dtype = dtype,
                                 .rows = rows,
                                 .cols = cols,
                                 .row_pitch = cols * bytes,
                                 .col_stride = bytes};
            job.rowwise = {.codes = got.matrix.codes, .tile = scaling.tile};
            if (!backend.kernels->quantize_aligned({}, job, got.matrix, &got.changed)) continue;
            ++done;
            ASSERT_TRUE(got == wanted) << backend.name << ", " << name << ", " << rows << " x "
                                       << cols << ", dtype " << dtype_name(dtype);
          }
    EXPECT_GT(done, 0) << backend.name << " took nothing";
  }
  if (!any) GTEST_SKIP() << "no backend here does both at once: that is CUDA's, and needs a device";
}

}  // namespace
}  // namespace octavo::testing
