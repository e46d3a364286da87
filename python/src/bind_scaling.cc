// Scaling as Python sees it: names and numbers, immutable, and a repr that evaluates back. One list
// of fields (state_of) serves repr, pickling and replace.
#include "octavo/quant/scaling.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/policy_names.h"
#include "scaling_arguments.h"

namespace octavo::python {
namespace {

constexpr std::string_view kOp = "scaling";
// Power-of-two f32 scales: not a scale format of its own, but a common request.
constexpr std::string_view kPow2 = "pow2";
// In the order of NanCode.
constexpr std::array<std::string_view, 3> kNanCodes{"signed_ones", "positive_ones", "signed_quiet"};
constexpr std::array<std::string_view, 4> kHadamards{"none", "rowwise", "columnwise", "both"};

// The shortest decimal that reads back as the same number.
template <typename Number>
std::string shortest(Number number) {
  std::array<char, 64> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), number).ptr;
  return {digits.begin(), end};
}

std::string policy_text(const Scaling& scaling) {
  std::string name(name_of(scaling.policy));
  return scaling.policy == AmaxPolicy::percentile ? name + ":" + shortest(scaling.percentile)
                                                  : name;
}

std::string hadamard_text(const Hadamard& hadamard) {
  return std::string(kHadamards[(hadamard.rowwise ? 1u : 0u) + (hadamard.columnwise ? 2u : 0u)]);
}

Hadamard parse_hadamard(std::string_view name, std::uint16_t signs) {
  for (std::size_t i = 0; i < kHadamards.size(); ++i) {
    if (kHadamards[i] != name) continue;
    check(i != 0 || signs == 0, ErrorCode::invalid_argument, kOp,
          "got hadamard_signs without a Hadamard transform; say hadamard='rowwise', 'columnwise' "
          "or 'both', or leave the signs out");
    return {.rowwise = (i & 1) != 0, .columnwise = (i & 2) != 0, .signs = signs};
  }
  fail(ErrorCode::invalid_argument, "hadamard", "got '", shown(name),
       "'; expected none, rowwise, columnwise or both");
}

NanCode parse_nan_code(std::string_view name) {
  for (std::size_t i = 0; i < kNanCodes.size(); ++i)
    if (kNanCodes[i] == name) return static_cast<NanCode>(i);
  fail(ErrorCode::invalid_argument, "nan_code", "got '", shown(name),
       "'; expected signed_ones, positive_ones or signed_quiet");
}

std::string_view nan_code_text(const Scaling& scaling) {
  return kNanCodes[static_cast<std::size_t>(scaling.encode.nan_code)];
}

ScaleSpec parse_scale(std::string_view name, const std::optional<std::string>& rule) {
  ScaleSpec spec;
  const bool pow2 = name == kPow2;
  spec.format = pow2 ? ScaleFormat::f32 : parse_scale_format(name);
  if (rule) {
    spec.rule = parse_scale_rule(*rule);
    check(!pow2 || is_power_of_two_rule(spec.rule), ErrorCode::invalid_argument, kOp,
          "scale pow2 is a power of two; expected rule rceil, floor, ceil or even");
  } else if (pow2 || spec.format == ScaleFormat::e8m0) {
    spec.rule = ScaleRule::rceil;
  }
  return spec;
}

Scaling make_scaling(const ScalingArguments& given) {
  Scaling made;
  // Only Python code can map a dtype of another library to a Format.
  if (const auto format = given.find("format"))
    made.format =
        nb::cast<Format>(nb::module_::import_("octavo._dtypes").attr("as_format")(*format, kOp));
  made.tile = given.tile({1, 32});
  made.scale = parse_scale(given.word("scale", "e8m0"), given.word_or_none("rule"));
  made.scale.margin = given.integer<int>("margin", 0);
  made.scale.min_amax = given.number("min_amax", 0.0F);
  made.scale.arith = parse_arith(given.word("arith", "octavo"));
  made.scale.non_finite = parse_non_finite(given.word("non_finite", "poison"));
  parse_amax_policy(given.word("policy", "max"), made);
  EncodePolicy& encode = made.encode;
  encode.rounding = parse_rounding(given.word("rounding", "nearest_even"));
  encode.overflow = parse_overflow(given.word("overflow", "saturate"));
  encode.nan_input = parse_nan_input(given.word("nan", "error"));
  encode.nan_code = parse_nan_code(given.word("nan_code", "signed_ones"));
  encode.seed = given.integer<std::uint64_t>("seed", 0);
  encode.stochastic_bits = given.integer<int>("stochastic_bits", encode.stochastic_bits);
  check(encode.rounding == Rounding::stochastic ||
            (encode.seed == 0 && encode.stochastic_bits == EncodePolicy{}.stochastic_bits),
        ErrorCode::invalid_argument, kOp,
        "got seed or stochastic_bits, which are for stochastic rounding; leave them out or say "
        "rounding='stochastic'");
  made.axis = given.integer<int>("axis", -1);
  made.rowwise = given.flag("rowwise", true);
  made.columnwise = given.flag("columnwise", false);
  made.hadamard = parse_hadamard(given.word("hadamard", "none"),
                                 given.integer<std::uint16_t>("hadamard_signs", 0));
  made.packed = given.flag("packed", true);
  made.scale_order = parse_scale_order(given.word("scale_order", "row_major"));
  check_scaling(made);
  return made;
}

// Every argument of the constructor, by name, in its order.
nb::dict state_of(const Scaling& self) {
  const auto word = [](std::string_view name) { return nb::str(name.data(), name.size()); };
  nb::dict state;
  state["format"] = format_name(self.format);
  state["tile"] = nb::make_tuple(self.tile.rows, self.tile.cols);
  state["scale"] = word(name_of(self.scale.format));
  state["rule"] = word(name_of(self.scale.rule));
  state["policy"] = policy_text(self);
  state["margin"] = self.scale.margin;
  state["min_amax"] = self.scale.min_amax;
  state["arith"] = word(name_of(self.scale.arith));
  state["non_finite"] = word(name_of(self.scale.non_finite));
  state["rounding"] = word(name_of(self.encode.rounding));
  state["overflow"] = word(name_of(self.encode.overflow));
  state["nan"] = word(name_of(self.encode.nan_input));
  state["nan_code"] = word(nan_code_text(self));
  state["seed"] = self.encode.seed;
  state["stochastic_bits"] = self.encode.stochastic_bits;
  state["axis"] = self.axis;
  state["rowwise"] = self.rowwise;
  state["columnwise"] = self.columnwise;
  state["hadamard"] = hadamard_text(self.hadamard);
  state["hadamard_signs"] = self.hadamard.signs;
  state["packed"] = self.packed;
  state["scale_order"] = word(name_of(self.scale_order));
  return state;
}

nb::object from_state(const nb::dict& state) { return nb::type<Scaling>()(**state); }

// The main fields are always printed; the others where they are not the default.
std::string repr(const Scaling& self) {
  constexpr std::size_t kAlwaysSaid = 4;
  const nb::dict plain = state_of(Scaling{});
  std::string out;
  std::size_t position = 0;
  for (const auto& [name, value] : state_of(self)) {
    if (position++ >= kAlwaysSaid && value.equal(plain[name])) continue;
    const bool is_float = nb::isinstance<nb::float_>(value);
    out += text(out.empty() ? "" : ", ", nb::str(name).c_str(), "=",
                is_float ? shortest(self.scale.min_amax) : nb::repr(value).c_str());
  }
  return "octavo.Scaling(" + out + ")";
}

nb::object replace(const Scaling& self, const nb::kwargs& changes) {
  nb::dict state = state_of(self);
  for (const auto& [name, value] : changes) state[name] = value;
  // What belongs to a choice goes with it.
  const auto drop = [&](const char* name) {
    if (!changes.contains(name)) nb::del(state[name]);
  };
  if (changes.contains("scale")) drop("rule");
  if (changes.contains("rounding") && !state["rounding"].equal(nb::str("stochastic"))) {
    drop("seed");
    drop("stochastic_bits");
  }
  if (changes.contains("hadamard") && state["hadamard"].equal(nb::str("none")))
    drop("hadamard_signs");
  return from_state(state);
}

}  // namespace

void bind_scaling(nb::module_& module) {
  nb::class_<Scaling>(
      module, "Scaling",
      "How a tensor is quantized. Immutable, hashable; equal when all of it is equal, and its repr "
      "evaluates to it.\n\n"
      "format: of the codes: a name, an octavo.Format, or a dtype of ml_dtypes or torch.\n"
      "tile: the rectangle that shares one scale: (rows, columns) with 0 for a whole extent, or "
      "'tensor', 'row', 'column', '1x32'.\n"
      "scale: how scales are stored: 'e8m0', 'f32', 'bf16', 'f16', 'e4m3+f32' (NVFP4: e4m3 and one "
      "f32 for the tensor); 'pow2' is f32 with the rule rceil.\n"
      "rule: amax to scale: 'f32' (the quotient), 'rceil', 'floor', 'ceil', 'even'; by itself "
      "rceil "
      "for e8m0, else f32.\n"
      "policy: what scales are chosen by: 'max', 'percentile:99.9', 'mse' (least squared error), "
      "'wmse' (weighted, see quantize), and for nvfp4 '4over6' and 'modelopt_sweep'.\n"
      "margin: scales are multiplied by 2**margin. min_amax: a smaller amax counts as this.\n"
      "arith: whose order of operations: 'octavo', 'divide', 'te', 'torchao', 'modelopt', "
      "'torchao_inference', 'modelopt_qtensor'.\n"
      "non_finite: 'poison' (the tile of a NaN or Inf becomes NaN) or 'saturate'.\n"
      "rounding, overflow, nan, seed, stochastic_bits: as in octavo.encode. nan_code: which NaN is "
      "written: 'signed_ones', 'positive_ones' (CUDA), 'signed_quiet'.\n"
      "axis: the dimension that tiles run along. rowwise, columnwise: which copies are made.\n"
      "hadamard: copies that are transformed before, 16 values at a time: 'none', 'rowwise', "
      "'columnwise', 'both'; bit i of hadamard_signs flips the sign of value i.\n"
      "packed: codes of fewer than eight bits as a stream of bits, two FP4 codes to a byte.\n"
      "scale_order: how scales lie in memory: 'row_major', or 'col_major' (the last dimension "
      "slowest), as GEMMs with tiles of 1 x 128 read them.")
      .def(
          "__init__",
          [](Scaling* self, const nb::args& positional, const nb::kwargs& named) {
            new (self) Scaling(make_scaling(ScalingArguments(positional, named)));
          },
          // The arguments are parsed by hand, so that an error names the wrong one.
          nb::sig("def __init__(self, format: object = 'e4m3fn', "
                  "tile: str | tuple[int, int] = (1, 32), *, scale: str = 'e8m0', "
                  "rule: str | None = None, policy: str = 'max', margin: int = 0, "
                  "min_amax: float = 0.0, arith: str = 'octavo', non_finite: str = 'poison', "
                  "rounding: str = 'nearest_even', overflow: str = 'saturate', "
                  "nan: str = 'error', nan_code: str = 'signed_ones', seed: int = 0, "
                  "stochastic_bits: int = 16, axis: int = -1, rowwise: bool = True, "
                  "columnwise: bool = False, hadamard: str = 'none', hadamard_signs: int = 0, "
                  "packed: bool = True, scale_order: str = 'row_major') -> None"))
      .def_prop_ro(
          "format", [](const Scaling& self) { return self.format; }, nb::rv_policy::move)
      .def_prop_ro(
          "tile", [](const Scaling& self) { return std::pair(self.tile.rows, self.tile.cols); },
          "(rows, columns); 0 is the whole extent.")
      .def_prop_ro("scale", [](const Scaling& self) { return name_of(self.scale.format); })
      .def_prop_ro("rule", [](const Scaling& self) { return name_of(self.scale.rule); })
      .def_prop_ro("policy", &policy_text)
      .def_prop_ro("margin", [](const Scaling& self) { return self.scale.margin; })
      .def_prop_ro("min_amax", [](const Scaling& self) { return self.scale.min_amax; })
      .def_prop_ro("arith", [](const Scaling& self) { return name_of(self.scale.arith); })
      .def_prop_ro("non_finite", [](const Scaling& self) { return name_of(self.scale.non_finite); })
      .def_prop_ro("rounding", [](const Scaling& self) { return name_of(self.encode.rounding); })
      .def_prop_ro("overflow", [](const Scaling& self) { return name_of(self.encode.overflow); })
      .def_prop_ro("nan", [](const Scaling& self) { return name_of(self.encode.nan_input); })
      .def_prop_ro("nan_code", &nan_code_text)
      .def_prop_ro("seed", [](const Scaling& self) { return self.encode.seed; })
      .def_prop_ro("stochastic_bits",
                   [](const Scaling& self) { return self.encode.stochastic_bits; })
      .def_ro("axis", &Scaling::axis)
      .def_ro("rowwise", &Scaling::rowwise)
      .def_ro("columnwise", &Scaling::columnwise)
      .def_prop_ro("hadamard", [](const Scaling& self) { return hadamard_text(self.hadamard); })
      .def_prop_ro("hadamard_signs", [](const Scaling& self) { return self.hadamard.signs; })
      .def_ro("packed", &Scaling::packed)
      .def_prop_ro("scale_order", [](const Scaling& self) { return name_of(self.scale_order); })
      .def("replace", &replace, nb::sig("def replace(self, **changes: object) -> Scaling"),
           "The same with changes. A new scale without a rule takes its own.")
      .def("__repr__", &repr)
      .def("__str__", &describe)
      .def(
          "__eq__",
          [](const Scaling& self, nb::handle other) {
            return nb::isinstance<Scaling>(other) && self == nb::cast<const Scaling&>(other);
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Scaling& self) { return std::hash<std::string>()(repr(self)); })
      .def("__getstate__", &state_of)
      .def("__setstate__", [](Scaling& self, const nb::dict& state) {
        new (&self) Scaling(nb::cast<Scaling>(from_state(state)));
      });

  module.def("preset", &preset, nb::arg("name"),
             "A Scaling by name, with a colon and an element format where there is a choice.");
  module.def("preset_names", &preset_names, "The names that preset takes.");
}

}  // namespace octavo::python
