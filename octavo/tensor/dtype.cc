#include "octavo/tensor/dtype.h"

#include <array>
#include <utility>

#include "octavo/base/error.h"

namespace octavo {
namespace {

struct DTypeName {
  DType dtype;
  std::string_view name, short_name;
};
constexpr std::array<DTypeName, 5> kNames{{{DType::f64, "float64", "f64"},
                                           {DType::f32, "float32", "f32"},
                                           {DType::f16, "float16", "f16"},
                                           {DType::bf16, "bfloat16", "bf16"},
                                           {DType::code, "code", "code"}}};

}  // namespace

std::string_view dtype_name(DType dtype) { return kNames[static_cast<std::size_t>(dtype)].name; }

DType parse_dtype(std::string_view name) {
  constexpr std::string_view kTorchPrefix = "torch.";
  if (name.substr(0, kTorchPrefix.size()) == kTorchPrefix) name.remove_prefix(kTorchPrefix.size());
  for (const DTypeName& known : kNames) {
    if (is_value(known.dtype) && (name == known.name || name == known.short_name))
      return known.dtype;
  }
  fail(ErrorCode::wrong_type, "dtype", "got '", shown(name),
       "'; expected float64, float32, float16 or bfloat16");
}

}  // namespace octavo
