#include "scaling_arguments.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/quant/scaling.h"

namespace octavo::python {
namespace {

constexpr std::string_view kOp = "scaling";
// In the order of the signature; the first two need no name.
constexpr std::array<const char*, 22> kNames{
    "format",   "tile",           "scale",           "rule",       "policy",   "margin",
    "min_amax", "arith",          "non_finite",      "rounding",   "overflow", "nan",
    "nan_code", "seed",           "stochastic_bits", "axis",       "rowwise",  "columnwise",
    "hadamard", "hadamard_signs", "packed",          "scale_order"};
constexpr std::size_t kWithoutName = 2;

// Bounded: what was got may be an array.
std::string repr_of(nb::handle value) { return shown(nb::repr(value).c_str()); }

[[noreturn]] void wrong_type(std::string_view name, nb::handle value, std::string_view wanted) {
  fail(ErrorCode::wrong_type, kOp, "got ", name, "=", repr_of(value), " of type ",
       nb::str(value.type().attr("__name__")).c_str(), "; expected ", wanted);
}

std::string all_names() {
  std::string out;
  for (const char* name : kNames) out += text(out.empty() ? "" : ", ", name);
  return out;
}

std::string text_of(const char* name, const nb::object& value) {
  std::string read;
  if (!nb::isinstance<nb::str>(value) || !nb::try_cast<std::string>(value, read))
    wrong_type(name, value, "a name in quotes");
  return read;
}

}  // namespace

ScalingArguments::ScalingArguments(const nb::args& positional, const nb::kwargs& named) {
  if (positional.size() > kWithoutName)
    fail(ErrorCode::wrong_type, kOp, "got ", positional.size(),
         " arguments without a name; expected at most ", kWithoutName,
         ", format and tile; name the others, as in scale='e8m0'");
  for (std::size_t i = 0; i < positional.size(); ++i) given_[kNames[i]] = positional[i];
  for (const auto& [key, value] : named) {
    const std::string name = nb::str(key).c_str();
    if (std::find(kNames.begin(), kNames.end(), name) == kNames.end())
      fail(ErrorCode::wrong_type, kOp, "got '", shown(name),
           "', which is no argument of Scaling; expected one of ", all_names());
    if (given_.contains(key))
      fail(ErrorCode::wrong_type, kOp, "got ", name,
           " twice, first without its name; give it once");
    given_[key] = value;
  }
}

std::optional<nb::object> ScalingArguments::find(const char* name) const {
  if (!given_.contains(name)) return std::nullopt;
  return nb::object(given_[name]);
}

std::string ScalingArguments::word(const char* name, const char* otherwise) const {
  const auto value = find(name);
  return value ? text_of(name, *value) : otherwise;
}

std::optional<std::string> ScalingArguments::word_or_none(const char* name) const {
  const auto value = find(name);
  if (!value || value->is_none()) return std::nullopt;
  return text_of(name, *value);
}

bool ScalingArguments::flag(const char* name, bool otherwise) const {
  const auto value = find(name);
  if (!value) return otherwise;
  if (value->is(nb::bool_(true)) || value->is(nb::bool_(false))) return value->is(nb::bool_(true));
  const std::string_view type = nb::str(value->type().attr("__name__")).c_str();
  if (type != "bool" && type != "bool_") wrong_type(name, *value, "True or False");
  return nb::cast<bool>(nb::bool_(*value));  // NumPy's
}

float ScalingArguments::number(const char* name, float otherwise) const {
  const auto value = find(name);
  if (!value) return otherwise;
  double read = 0;
  if (nb::isinstance<nb::bool_>(*value) || !nb::try_cast<double>(*value, read))
    wrong_type(name, *value, "a number");
  return static_cast<float>(read);
}

Tile ScalingArguments::tile(Tile otherwise) const {
  const auto value = find("tile");
  if (!value) return otherwise;
  if (nb::isinstance<nb::str>(*value)) return parse_tile(text_of("tile", *value));
  if (!(nb::isinstance<nb::tuple>(*value) || nb::isinstance<nb::list>(*value)) ||
      nb::len(*value) != 2)
    wrong_type("tile", *value, "two sizes such as (1, 32), or 'tensor', 'row', 'column' or '1x32'");
  std::array<std::int64_t, 2> sizes{};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const nb::object size = (*value)[i];
    if (!nb::try_cast<std::int64_t>(whole("tile", size), sizes[i]))
      out_of_range("tile", size, "0", "2^63 - 1");
  }
  return {sizes[0], sizes[1]};
}

nb::object ScalingArguments::whole(const char* name, const nb::object& value) {
  if (nb::isinstance<nb::bool_>(value) || !nb::hasattr(value, "__index__"))
    wrong_type(name, value, "a whole number");
  try {
    return value.attr("__index__")();
  } catch (const nb::python_error&) {  // an array of several numbers has the method, too
    wrong_type(name, value, "a whole number");
  }
}

void ScalingArguments::out_of_range(const char* name, const nb::object& value,
                                    const std::string& least, const std::string& most) {
  fail(ErrorCode::invalid_argument, kOp, "got ", name, "=", repr_of(value), "; expected ", least,
       " to ", most);
}

}  // namespace octavo::python
