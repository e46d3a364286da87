// Every pair of operands x awkward sizes x every backend, against the product of the numbers that
// an oracle reads from their bytes.
#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

struct Pair {
  OperandKind a, b;
};
void PrintTo(const Pair& pair, std::ostream* out) { *out << pair.a.name << " x " << pair.b.name; }

std::vector<Pair> every_pair() {
  std::vector<Pair> pairs;
  const auto twice = [&](const OperandKind& kind) { pairs.push_back({kind, kind}); };
  for (const char* name :
       {"fp8", "fp8-channel", "fp8-1x128", "fp8-block", "mxfp8", "mxfp6", "mxfp6:e3m2fn", "mxfp4",
        "mxint8", "int8-channel", "int4", "nvfp4", "fp8:e5m2", "mxfp8:e5m2"})
    twice(quantized_as(name));
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    twice(valued_as(dtype));
  pairs.push_back({quantized_as("fp8-1x128"), quantized_as("fp8-block")});
  pairs.push_back({quantized_as("fp8-channel"), quantized_as("fp8")});
  pairs.push_back({quantized_as("fp8"), quantized_as("fp8:e5m2")});
  pairs.push_back({quantized_as("fp8:e5m2"), quantized_as("fp8-channel")});
  pairs.push_back({quantized_as("mxfp8"), quantized_as("mxfp4")});
  pairs.push_back({quantized_as("mxfp8:e5m2"), quantized_as("mxfp8")});
  pairs.push_back({quantized_as("nvfp4"), quantized_as("mxfp6")});
  pairs.push_back({quantized_as("fp8-block"), quantized_as("nvfp4")});
  pairs.push_back({valued_as(DType::bf16), quantized_as("fp8")});
  pairs.push_back({valued_as(DType::f32), quantized_as("mxfp8")});
  pairs.push_back({quantized_as("nvfp4"), valued_as(DType::f16)});
  pairs.push_back({valued_as(DType::f64), quantized_as("fp8-block")});
  pairs.push_back({valued_as(DType::f32), valued_as(DType::bf16)});
  const auto with = [&](const std::string& base, const std::string& name, auto&& edit) {
    twice(changed(base, name, edit));
  };
  with("fp8-1x128", "col_major", [](Scaling& s) { s.scale_order = ScaleOrder::col_major; });
  with("nvfp4", "hadamard", [](Scaling& s) { s.hadamard = {.rowwise = true, .signs = 0xA53C}; });
  with("mxfp4", "unpacked", [](Scaling& s) { s.packed = false; });
  with("mxfp6", "unpacked_fp6", [](Scaling& s) { s.packed = false; });
  with("fp8", "tile_3x48", [](Scaling& s) { s.tile = {3, 48}; });
  with("fp8", "tile_0x24", [](Scaling& s) { s.tile = {0, 24}; });
  with("mxfp4", "tile_2x7", [](Scaling& s) { s.tile = {2, 7}; });
  with("fp8-1x128", "bf16_scales", [](Scaling& s) { s.scale.format = ScaleFormat::bf16; });
  with("fp8", "e4m3fnuz", [](Scaling& s) { s.format = e4m3fnuz; });
  with("fp8", "e3m4", [](Scaling& s) { s.format = parse_format("e3m4"); });
  with("fp8-channel", "int8_rows", [](Scaling& s) { s.format = mxint8; });
  with("fp8-channel", "int4_rows", [](Scaling& s) { s.format = int4; });
  pairs.push_back({valued_as(DType::bf16), quantized_as("int4")});
  with("fp8-channel", "e2m3_rows", [](Scaling& s) { s.format = e2m3fn; });
  with("fp8-channel", "e2m1_rows", [](Scaling& s) { s.format = e2m1fn; });
  with("fp8-1x128", "e5m10", [](Scaling& s) { s.format = parse_format("e5m10"); });
  with("nvfp4", "nvfp4_16x16", [](Scaling& s) { s.tile = {16, 16}; });
  return pairs;
}

class GemmAccuracy : public ::testing::TestWithParam<Pair> {};

TEST_P(GemmAccuracy, EverySizeOnEveryBackend) {
  unsigned seed = 1;
  for (const Sizes& sizes : awkward_sizes()) {
    const MadeOperand a = made(GetParam().a, usual_values(sizes.m, sizes.k, ++seed), sizes.m,
                               sizes.k),
                      b = made(GetParam().b, usual_values(sizes.n, sizes.k, ++seed), sizes.n,
                               sizes.k);
    for (const BackendInfo& backend : multiplying_backends()) {
      for (const Accumulator accumulator : {Accumulator::f32, Accumulator::f16}) {
        const std::string where =
            text(to_text(sizes), ", ", backend.name, ", ", name_of(accumulator));
        expect_product(gemm(a.operand(), b.operand(),
                            {.accumulator = accumulator, .backend = backend.kernels}),
                       a.numbers, b.numbers, accumulator, where);
        if (HasFailure()) return;
      }
    }
    for (const DType out : {DType::f32, DType::f64})
      expect_product(gemm(a.operand(), b.operand(), {.out = out, .accumulator = Accumulator::f64}),
                     a.numbers, b.numbers, Accumulator::f64, text(to_text(sizes), ", float64"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, GemmAccuracy, ::testing::ValuesIn(every_pair()),
                         [](const auto& test) {
                           std::string name = test.param.a.name + "_x_" + test.param.b.name;
                           for (char& c : name)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace octavo::testing
