// Packed weights: the product of what was packed, on every backend, for any number of rows.
#include <cstring>

#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

struct Pair {
  OperandKind a, b;
};
void PrintTo(const Pair& pair, std::ostream* out) { *out << pair.a.name << " x " << pair.b.name; }

std::vector<Pair> packed_pairs() {
  std::vector<Pair> pairs;
  const auto twice = [&](const OperandKind& kind) { pairs.push_back({kind, kind}); };
  for (const char* name : {"fp8", "fp8-channel", "fp8-block", "mxfp8", "mxfp6", "mxfp6:e3m2fn",
                           "mxfp4", "mxint8", "int8-channel", "int4", "nvfp4", "mxfp8:e5m2"})
    twice(quantized_as(name));
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) twice(valued_as(dtype));
  pairs.push_back({quantized_as("fp8-1x128"), quantized_as("fp8-block")});
  pairs.push_back({valued_as(DType::bf16), quantized_as("nvfp4")});
  pairs.push_back({valued_as(DType::f32), quantized_as("mxfp4")});  // another method: by rows
  const auto with = [&](const std::string& base, const std::string& name, auto&& edit) {
    twice(changed(base, name, edit));
  };
  with("mxfp4", "unpacked", [](Scaling& s) { s.packed = false; });
  with("fp8-channel", "int8_rows", [](Scaling& s) { s.format = mxint8; });
  with("fp8-channel", "e2m3_rows", [](Scaling& s) { s.format = e2m3fn; });
  with("fp8-channel", "e2m1_rows", [](Scaling& s) { s.format = e2m1fn; });
  with("fp8", "tile_3x48", [](Scaling& s) { s.tile = {3, 48}; });
  with("fp8", "e4m3fnuz", [](Scaling& s) { s.format = e4m3fnuz; });
  return pairs;
}

// Few rows and many, ends that fit no panel, and K of several blocks.
std::vector<Sizes> packed_sizes() {
  return {{1, 33, 129}, {2, 31, 64},   {4, 12, 2100}, {5, 70, 256}, {16, 24, 300},
          {17, 1, 31},  {33, 45, 160}, {70, 129, 96}, {3, 5, 1}};
}

bool is_host(const BackendInfo& backend) { return !support::is_staged(backend); }

bool same_bits(const Tensor& one, const Tensor& other) {
  return one.bytes().size() == other.bytes().size() &&
         std::memcmp(one.bytes().data(), other.bytes().data(), one.bytes().size()) == 0;
}

class GemmPacked : public ::testing::TestWithParam<Pair> {};

TEST_P(GemmPacked, EverySizeOnEveryBackend) {
  unsigned seed = 40;
  for (const Sizes& sizes : packed_sizes()) {
    const MadeOperand a = made(GetParam().a, usual_values(sizes.m, sizes.k, ++seed), sizes.m,
                               sizes.k),
                      b = made(GetParam().b, usual_values(sizes.n, sizes.k, ++seed), sizes.n,
                               sizes.k);
    for (const BackendInfo& backend : multiplying_backends()) {
      if (!is_host(backend)) continue;
      const std::string where = text(to_text(sizes), ", ", backend.name);
      const PackedWeights packed = pack(b.operand(), {.backend = backend.kernels});
      const GemmOptions options{.accumulator = Accumulator::f32, .backend = backend.kernels};
      const Tensor result = gemm(a.operand(), packed, options);
      expect_product(result, a.numbers, b.numbers, Accumulator::f32, where);
      if (sizes.m > 32) {
        EXPECT_TRUE(same_bits(result, gemm(a.operand(), b.operand(), options))) << where;
      }
      GemmOptions three = options;
      three.threads = 3;
      EXPECT_TRUE(same_bits(result, gemm(a.operand(), packed, three))) << where << ", threads";
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, GemmPacked, ::testing::ValuesIn(packed_pairs()),
                         [](const auto& test) {
                           std::string name = test.param.a.name + "_x_" + test.param.b.name;
                           for (char& c : name)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return name;
                         });

// Matrix instructions multiply what these are made of.
bool has_matrix_instructions(const BackendInfo& backend) {
  const std::string_view name = backend.name;
  return name == "cpu/amx" || name == "cpu/neon_bf16" || name == "cpu/neon_i8mm";
}

TEST(GemmPackedForm, PanelsWhereTheCpuHasMatrixInstructions) {
  for (const char* preset_name : {"fp8", "mxfp8", "mxfp4", "nvfp4"}) {
    const MadeOperand b = made(quantized_as(preset_name), usual_values(50, 96, 3), 50, 96);
    for (const BackendInfo& backend : multiplying_backends()) {
      if (!is_host(backend)) continue;
      const PackedWeights packed = pack(b.operand(), {.backend = backend.kernels});
      // Without SMMLA, four bits are integers for SDOT, which reads rows.
      const bool by_sdot =
          backend.name == std::string_view("cpu/neon_bf16") && b.quantized.scaling.format == e2m1fn;
      EXPECT_EQ(packed.panels.exists(), has_matrix_instructions(backend) && !by_sdot)
          << preset_name << ", " << backend.name;
      EXPECT_EQ(packed.shape, (Shape{50, 96}));
      EXPECT_EQ(packed.backend, backend.name);
      EXPECT_GE(packed.nbytes(), b.quantized.nbytes());
    }
  }
}

TEST(GemmPackedForm, PackingCopies) {
  for (const BackendInfo& backend : multiplying_backends()) {
    if (!is_host(backend)) continue;
    MadeOperand a = made(quantized_as("mxfp8"), usual_values(9, 64, 4), 9, 64),
                b = made(quantized_as("mxfp8"), usual_values(20, 64, 5), 20, 64);
    const PackedWeights packed = pack(b.operand(), {.backend = backend.kernels});
    const GemmOptions options{.backend = backend.kernels};
    const Tensor before = gemm(a.operand(), packed, options);
    for (const Tensor* part : {&b.quantized.rowwise.codes, &b.quantized.rowwise.scales})
      std::memset(part->view().data, 0x55, static_cast<std::size_t>(part->nbytes()));
    EXPECT_TRUE(same_bits(before, gemm(a.operand(), packed, options))) << backend.name;
  }
}

TEST(GemmPackedForm, ValuesOfAnyStrides) {
  const std::vector<float> values = usual_values(40, 30, 6);
  const Tensor stored = values_as(values, {40, 30}, DType::bf16);
  View transposed = stored.view();  // [30, 40]
  transposed.shape = {30, 40};
  std::swap(transposed.strides[0], transposed.strides[1]);
  const MadeOperand a = made(valued_as(DType::bf16), usual_values(5, 40, 7), 5, 40);
  for (const BackendInfo& backend : multiplying_backends()) {
    if (!is_host(backend)) continue;
    const PackedWeights packed = pack(transposed, {.backend = backend.kernels});
    expect_product(gemm(a.operand(), packed, {.backend = backend.kernels}), a.numbers,
                   oracle::numbers_of(transposed), Accumulator::f32, backend.name);
  }
}

TEST(GemmPackedForm, QuantizedResults) {
  const MadeOperand a = made(quantized_as("fp8"), usual_values(40, 64, 8), 40, 64),
                    b = made(quantized_as("fp8"), usual_values(64, 64, 9), 64, 64);
  for (const BackendInfo& backend : multiplying_backends()) {
    if (!is_host(backend)) continue;
    const GemmOptions options{.backend = backend.kernels};
    const QuantizedTensor result = gemm_quantized(a.operand(),
                                                  pack(b.operand(), {.backend = backend.kernels}),
                                                  preset("mxfp8"), options),
                          wanted =
                              gemm_quantized(a.operand(), b.operand(), preset("mxfp8"), options);
    EXPECT_TRUE(same_bits(result.rowwise.codes, wanted.rowwise.codes)) << backend.name;
    EXPECT_TRUE(same_bits(result.rowwise.scales, wanted.rowwise.scales)) << backend.name;
  }
}

// What `call` throws, or nothing.
template <typename Call>
std::string thrown_by(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GemmPackedForm, Refusals) {
  const MadeOperand a = made(quantized_as("mxfp8"), usual_values(9, 64, 4), 9, 64),
                    b = made(quantized_as("mxfp8"), usual_values(20, 64, 5), 20, 64);
  for (const BackendInfo& backend : multiplying_backends()) {
    if (!is_host(backend) || !has_matrix_instructions(backend)) continue;
    const PackedWeights packed = pack(b.operand(), {.backend = backend.kernels});
    const auto refused = [&](const GemmOptions& options) {
      return thrown_by([&] { (void)gemm(a.operand(), packed, options); });
    };
    EXPECT_NE(
        refused({.backend = &reference_backend()}).find(text("B is packed for ", backend.name)),
        std::string::npos);
    for (const Accumulator accumulator :
         {Accumulator::f16, Accumulator::f64, Accumulator::hopper_fp8, Accumulator::amx_bf16})
      EXPECT_NE(
          refused({.accumulator = accumulator, .backend = backend.kernels}).find("sum in float32"),
          std::string::npos)
          << name_of(accumulator);
    const MadeOperand other = made(quantized_as("mxfp8"), usual_values(9, 96, 4), 9, 96);
    EXPECT_NE(thrown_by([&] { (void)gemm(other.operand(), packed); }).find("K is 96 in A"),
              std::string::npos);
  }
  const Tensor stack = values_as(usual_values(6, 8, 1), {2, 3, 8}, DType::bf16);
  EXPECT_NE(thrown_by([&] { (void)pack(stack); }).find("expected [N, K]"), std::string::npos);
}

TEST(GemmPackedForm, Empty) {
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{0, 64}, {5, 0}}) {
    const Tensor weights = Tensor::values({rows, cols}, DType::bf16),
                 x = Tensor::values({3, cols}, DType::bf16);
    const PackedWeights packed = pack(weights);
    const Tensor result = gemm(x, packed);
    EXPECT_EQ(result.shape(), (Shape{3, rows}));
    for (const std::byte byte : result.bytes()) EXPECT_EQ(byte, std::byte{0});
  }
}

}  // namespace
}  // namespace octavo::testing
