// The order of sums around AMX's tiles: the driver that cpu/amx runs, with the microkernel of
// octavo/backend/cpu/isa/amx/gemm_bf16_amx.cc written in plain code over the oracle's instruction,
// so that any CPU holds blocking, packing and scales to amx_bf16. Only the instruction itself is
// left to a CPU that has it (gemm_amx_test.cc).
#include <atomic>
#include <bit>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/portable/portable.h"
#include "octavo/backend/cpu/isa/portable/portable_internal.h"
#include "tests/gemm/gemm_cases.h"
#include "tests/oracle/amx_oracle.h"

namespace octavo::testing {
namespace {

using cpu::MicrokernelJob;

constexpr std::int64_t kSide = 32, kStep = 32;
std::atomic<int> tiles_done = 0;

float element_at(const std::byte* at) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Instructions over `depth` products of row i and column j, from k on, added to `sum`.
float multiply(const MicrokernelJob& job, std::int64_t i, std::int64_t j, std::int64_t k,
               std::int64_t depth, float sum) {
  for (const std::int64_t end = k + depth; k < end; k += kStep) {
    float a[kStep], b[kStep];
    const std::byte* line = job.a + (k * kSide + i * kStep) * 2;
    for (std::int64_t n = 0; n < kStep; ++n) {
      a[n] = element_at(line + n * 2);
      b[n] = element_at(job.b + (((k + n) / 2 * kSide + j) * 2 + n % 2) * 2);
    }
    sum = oracle::amx_instruction(a, b, sum);
  }
  return sum;
}

void tile(const MicrokernelJob& job) {
  ++tiles_done;
  const std::int64_t rows = job.rows != 0 ? job.rows : kSide;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < kSide; ++j) {
      float& sum = job.sums[i * job.pitch + j];
      if (job.overwrites) sum = 0.0F;
      if (job.a_scale == nullptr || job.scales_at_end) {
        sum = multiply(job, i, j, 0, job.run * job.runs, sum);
        if (job.a_scale != nullptr) sum = std::fma(sum * job.b_scale[j], job.a_scale[i], 0.0F);
        continue;
      }
      for (std::int64_t r = 0; r < job.runs; ++r) {
        const float part = multiply(job, i, j, r * job.run, job.run, 0.0F);
        sum = std::fma(part * job.b_scale[r * kSide + j], job.a_scale[r * kSide + i], sum);
      }
    }
}

void interleave_lines(const std::byte* const* rows, int count, std::int64_t words,
                      std::byte* panel) {
  for (std::int64_t w = 0; w < words; ++w)
    for (int i = 0; i < count; ++i, panel += kStep * 2)
      std::memcpy(panel, rows[i] + w * kStep * 2, kStep * 2);
}

const cpu::GemmMethod& method() {
  static const cpu::GemmMethod kMethod{
      .name = "bf16 AMX in plain code",
      .packed_type = cpu::PackedType::bf16,
      .wide = cpu::portable::gemm_method({.accumulator = Accumulator::f32}),
      .tile = {.rows = kSide, .cols = kSide, .step = 2, .run = tile, .a_step = kStep},
      .interleave_a = interleave_lines};
  return kMethod;
}

const Kernels& kernels() {
  static const Kernels kKernels = [] {
    Kernels table = cpu::kPortableKernels;
    table.gemm = [](const Exec& exec, const GemmJob& job) {
      cpu::gemm_matrix(cpu::kPortableIsa, method(), exec, job);
    };
    table.gemm_workspace = [](const Exec& exec, const GemmJob& job) {
      return cpu::gemm_workspace(method(), exec, job);
    };
    table.gemm_offered = cpu::is_bfloat_job;
    return table;
  }();
  return kKernels;
}

// Are results those of amx_bf16 in every bit, and were they made in tiles?
void expect_model(const MadeOperand& a, const MadeOperand& b, const std::string& where) {
  const int before = tiles_done;
  const Tensor got = gemm(a.operand(), b.operand(),
                          {.accumulator = Accumulator::f32, .threads = 2, .backend = &kernels()}),
               wanted = gemm(a.operand(), b.operand(), {.accumulator = Accumulator::amx_bf16});
  EXPECT_GT(tiles_done, before) << where << ": not in tiles";
  int different = 0;
  for (std::size_t i = 0; i < got.span<float>().size(); ++i) {
    const float x = got.span<float>()[i], y = wanted.span<float>()[i];
    if (std::bit_cast<std::uint32_t>(x) != std::bit_cast<std::uint32_t>(y) && ++different <= 3)
      ADD_FAILURE() << where << ", element " << i << ": got " << x << "; expected " << y;
  }
  EXPECT_EQ(different, 0) << where;
}

TEST(GemmAmxDriver, SumsAndScalesHaveTheOrderOfTheModel) {
  const auto tiled = [](const char* name, Tile tile) {
    return changed(name, text(name, " ", tile.rows, "x", tile.cols),
                   [&](Scaling& scaling) { scaling.tile = tile; });
  };
  const std::pair<OperandKind, OperandKind> pairs[] = {
      {valued_as(DType::bf16), valued_as(DType::bf16)},
      {valued_as(DType::bf16), quantized_as("mxfp4")},
      {quantized_as("fp8"), quantized_as("fp8-channel")},
      {quantized_as("fp8:e5m2"), valued_as(DType::bf16)},
      {quantized_as("mxfp8"), quantized_as("mxfp8:e5m2")},
      {quantized_as("nvfp4"), quantized_as("nvfp4")},
      {quantized_as("mxfp6"), quantized_as("fp8-channel")},
      {quantized_as("fp8-1x128"), quantized_as("fp8-block")},
      {quantized_as("fp8-1x128"), quantized_as("mxfp8")},
      {tiled("fp8", {1, 96}), tiled("fp8", {3, 64})},
      {tiled("fp8", {1, 1024}), quantized_as("fp8")},
      {tiled("mxfp8", {1, 1024}), quantized_as("fp8-channel")},
  };
  unsigned seed = 900;
  for (const auto& [a_kind, b_kind] : pairs)
    for (const Sizes& sizes : {Sizes{5, 3, 1}, Sizes{7, 40, 33}, Sizes{33, 5, 200},
                               Sizes{6, 4, 1100}, Sizes{34, 33, 1060}}) {
      const auto operand = [&](const OperandKind& kind, std::int64_t rows) {
        // A row of zeros is among them: its blocks have the smallest scale there is.
        std::vector<float> values = usual_values(rows, sizes.k, ++seed);
        std::fill_n(values.begin(), sizes.k, 0.0F);
        return made(kind, values, rows, sizes.k);
      };
      const MadeOperand a = operand(a_kind, sizes.m), b = operand(b_kind, sizes.n);
      expect_model(a, b, text(a_kind.name, " x ", b_kind.name, ", ", to_text(sizes)));
      if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace octavo::testing
