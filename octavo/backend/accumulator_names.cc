#include "octavo/backend/accumulator_names.h"

#include "octavo/base/error.h"

namespace octavo {

std::string_view name_of(Accumulator accumulator) {
  switch (accumulator) {
    case Accumulator::f32:
      return "float32";
    case Accumulator::f16:
      return "float16";
    case Accumulator::f64:
      return "float64";
    case Accumulator::hopper_fp8:
      return "hopper_fp8";
    case Accumulator::amx_bf16:
      return "amx_bf16";
    case Accumulator::native:
      return "native";
  }
  return "";
}

Accumulator parse_accumulator(std::string_view name, std::string_view op) {
  for (const Accumulator accumulator :
       {Accumulator::f32, Accumulator::f16, Accumulator::f64, Accumulator::hopper_fp8,
        Accumulator::amx_bf16, Accumulator::native})
    if (name == name_of(accumulator)) return accumulator;
  fail(ErrorCode::invalid_argument, op, "got accumulator '", shown(name),
       "'; expected native, float32, float16, float64, hopper_fp8 or amx_bf16");
}

}  // namespace octavo
