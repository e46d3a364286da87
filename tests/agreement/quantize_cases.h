// Test cases of quantizers: blocks of every kind of values, and scalings of every kind.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/octavo.h"

namespace octavo::testing {

struct NamedScaling {
  std::string name;
  Scaling scaling;
};
inline void PrintTo(const NamedScaling& scaling, std::ostream* out) { *out << scaling.name; }

inline bool same_bytes(const Tensor& a, const Tensor& b) {
  if (a.owner() == nullptr && b.owner() == nullptr) return true;
  if (a.view().packed) return std::ranges::equal(a.bytes(), b.bytes());
  // Scales may lie column by column.
  return a.view().strides == b.view().strides &&
         std::ranges::equal(in_order(a, ScaleOrder::row_major).bytes(),
                            in_order(b, ScaleOrder::row_major).bytes());
}

// Values in runs of 32 that are normal, log-normal over many binades, with outliers, zero,
// subnormal, near the largest f32, NaN, Inf, and at ties of the common formats.
inline std::vector<float> all_kinds_of_values(std::int64_t n, unsigned seed, bool finite = false) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<std::uint32_t> bits;
  std::vector<float> values(static_cast<std::size_t>(n));
  const auto sign = [&] { return bits(random) & 1 ? -1.0F : 1.0F; };
  for (std::size_t i = 0; i < values.size(); ++i) {
    float& x = values[i];
    const unsigned kind = static_cast<unsigned>(i / 32 * 7 + seed) % 11;
    switch (kind) {
      case 0:
      case 1:
        x = normal(random);
        break;
      case 2:
        x = sign() * std::exp2(8.0F * normal(random));
        break;
      case 3:
        x = normal(random) * (bits(random) % 29 == 0 ? 1000.0F : 1.0F);
        break;
      case 4:
        x = bits(random) & 1 ? 0.0F : -0.0F;
        break;
      case 5:  // subnormal, or just above
        x = sign() * std::bit_cast<float>(bits(random) % 0x01000000u);
        break;
      case 6:  // near the largest
        x = sign() * std::bit_cast<float>(0x7F7FFFFFu - bits(random) % 0x01800000u);
        break;
      case 7:
        x = normal(random);
        if (!finite && bits(random) % 40 == 0) x = std::bit_cast<float>(0x7FC00000u | bits(random));
        break;
      case 8:
        x = normal(random);
        if (!finite && bits(random) % 40 == 0) x = sign() * HUGE_VALF;
        break;
      case 9:  // few mantissa bits: ties and exact maxima
        x = sign() * static_cast<float>(bits(random) % 64) *
            std::exp2(static_cast<float>(static_cast<int>(bits(random) % 24) - 12));
        break;
      default:  // any bits
        x = std::bit_cast<float>(bits(random));
        if (!(std::fabs(x) < 1e38F)) x = 1.0F;
        break;
    }
  }
  return values;
}

// Values of a dtype, rounded from f32.
inline Tensor values_as(const std::vector<float>& values, const Shape& shape, DType dtype) {
  Tensor tensor = Tensor::values(shape, dtype);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = static_cast<double>(values[i]);
    const EncodePolicy policy{.overflow = Overflow::propagate};
    switch (dtype) {
      case DType::f64:
        tensor.span<double>()[i] = x * (1.0 + 0x1p-40);
        break;
      case DType::f32:
        tensor.span<float>()[i] = values[i];
        break;
      case DType::f16:
        tensor.span<std::uint16_t>()[i] =
            static_cast<std::uint16_t>(encode_value(f16_format, x, policy).code);
        break;
      default:
        tensor.span<std::uint16_t>()[i] =
            static_cast<std::uint16_t>(encode_value(bf16_format, x, policy).code);
    }
  }
  return tensor;
}

inline std::vector<NamedScaling> all_kinds_of_scalings() {
  std::vector<NamedScaling> list;
  const auto add = [&](std::string name, const Scaling& scaling) {
    list.push_back({std::move(name), scaling});
  };
  for (const std::string& name : preset_names()) add(name, preset(name));
  add("mxfp8_e5m2", preset("mxfp8:e5m2"));
  add("mxfp6_e3m2fn", preset("mxfp6:e3m2fn"));
  add("fp8_e5m2", preset("fp8:e5m2"));
  const auto change = [&](std::string_view base, std::string name, auto&& edit) {
    Scaling scaling = preset(base);
    edit(scaling);
    add(std::move(name), scaling);
  };
  for (const ScaleRule rule :
       {ScaleRule::rceil, ScaleRule::floor, ScaleRule::ceil, ScaleRule::even}) {
    for (const char* base : {"mxfp8", "mxfp4", "mxfp6", "mxint8"})
      change(base, text(base, "_", name_of(rule)), [&](Scaling& s) { s.scale.rule = rule; });
    change("fp8-1x128", text("pow2_", name_of(rule)), [&](Scaling& s) { s.scale.rule = rule; });
  }
  for (const ScaleFormat format : {ScaleFormat::bf16, ScaleFormat::f16}) {
    change("fp8-1x128", text("scale_", name_of(format)),
           [&](Scaling& s) { s.scale.format = format; });
    change("fp8-1x128", text("scale_rceil_", name_of(format)), [&](Scaling& s) {
      s.scale.format = format;
      s.scale.rule = ScaleRule::rceil;
    });
  }
  for (const Tile tile : {Tile{0, 1}, Tile{1, 16}, Tile{1, 7}, Tile{32, 1}, Tile{3, 5},
                          Tile{16, 16}, Tile{2, 64}, Tile{1000, 1000}, Tile{0, 24}, Tile{5, 0}}) {
    change("fp8", text("tile_", tile.rows, "x", tile.cols), [&](Scaling& s) { s.tile = tile; });
    change("mxfp4", text("mx_tile_", tile.rows, "x", tile.cols),
           [&](Scaling& s) { s.tile = tile; });
  }
  for (const char* base : {"mxfp8", "fp8-1x128", "nvfp4", "fp8", "mxfp4"}) {
    change(base, text(base, "_saturate"), [&](Scaling& s) {
      s.scale.non_finite = NonFinite::saturate;
      s.encode.nan_input = NanInput::zero;
    });
    change(base, text(base, "_divide"), [&](Scaling& s) { s.scale.arith = Arith::divide; });
    change(base, text(base, "_te"), [&](Scaling& s) {
      s.scale.arith = Arith::te;
      s.encode.nan_input = NanInput::zero;
    });
    for (const Arith arith :
         {Arith::torchao, Arith::modelopt, Arith::torchao_inference, Arith::modelopt_qtensor}) {
      const auto peer = [&](Scaling& s) {
        s.scale.arith = arith;
        s.encode.nan_input = NanInput::max;
      };
      change(base, text(base, "_", name_of(arith)), peer);
      change(base, text(base, "_", name_of(arith), "_mse"), [&](Scaling& s) {
        peer(s);
        s.policy = AmaxPolicy::mse;
      });
    }
    change(base, text(base, "_margin"), [&](Scaling& s) { s.scale.margin = 2; });
    change(base, text(base, "_min_amax"), [&](Scaling& s) { s.scale.min_amax = 0.25F; });
    change(base, text(base, "_mse"), [&](Scaling& s) { s.policy = AmaxPolicy::mse; });
    change(base, text(base, "_percentile"), [&](Scaling& s) {
      s.policy = AmaxPolicy::percentile;
      s.percentile = 90.0;
    });
    change(base, text(base, "_both"), [&](Scaling& s) { s.columnwise = true; });
    change(base, text(base, "_columnwise"), [&](Scaling& s) {
      s.columnwise = true;
      s.rowwise = false;
    });
    change(base, text(base, "_unpacked"), [&](Scaling& s) { s.packed = false; });
    change(base, text(base, "_stochastic"), [&](Scaling& s) {
      s.encode.rounding = Rounding::stochastic;
      s.encode.seed = 42;
      s.columnwise = true;
    });
    for (const Rounding rounding : {Rounding::toward_zero, Rounding::up, Rounding::to_odd})
      change(base, text(base, "_", name_of(rounding)),
             [&](Scaling& s) { s.encode.rounding = rounding; });
    change(base, text(base, "_ieee"), [&](Scaling& s) { s.encode.overflow = Overflow::ieee; });
    change(base, text(base, "_axis0"), [&](Scaling& s) {
      if (s.tile.rows <= 1) s.axis = 0;
    });
    change(base, text(base, "_col_major"), [&](Scaling& s) {
      s.scale_order = ScaleOrder::col_major;
      s.columnwise = true;
    });
    change(base, text(base, "_hadamard"), [&](Scaling& s) {
      s.hadamard = {.rowwise = true, .columnwise = true, .signs = 0xA53C};
      s.columnwise = true;
    });
  }
  for (const ScaleRule rule : {ScaleRule::floor, ScaleRule::ceil, ScaleRule::even}) {
    change("mxfp8", text("mxfp8_torchao_", name_of(rule)), [&](Scaling& s) {
      s.scale.arith = Arith::torchao;
      s.scale.rule = rule;
    });
  }
  for (const Arith arith : {Arith::te, Arith::torchao}) {
    change("fp8-1x128", text("pow2_", name_of(arith)), [&](Scaling& s) {
      s.scale.arith = arith;
      s.scale.rule = ScaleRule::rceil;
    });
  }
  change("nvfp4", "nvfp4_te_hadamard", [&](Scaling& s) {
    s.scale.arith = Arith::te;
    s.hadamard = {.rowwise = true, .columnwise = true, .signs = 0xD7E8};
    s.columnwise = true;
  });
  change("nvfp4", "nvfp4_16x16", [&](Scaling& s) { s.tile = {16, 16}; });
  change("fp8", "e3m4_per_row", [&](Scaling& s) {
    s.format = parse_format("e3m4");
    s.tile = {1, 0};
  });
  change("fp8-1x128", "e5m10", [&](Scaling& s) { s.format = parse_format("e5m10"); });
  change("fp8-1x128", "e4m3fnuz", [&](Scaling& s) { s.format = e4m3fnuz; });
  return list;
}

}  // namespace octavo::testing
