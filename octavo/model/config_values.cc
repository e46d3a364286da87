#include <cmath>

#include "octavo/base/error.h"
#include "octavo/model/config_values_internal.h"

namespace octavo {
namespace {

constexpr std::int64_t kMaxSize = (std::int64_t{1} << 31) - 1;

[[noreturn]] void fail_value(std::string_view key, const Json& value, std::string_view expected) {
  fail(ErrorCode::invalid_argument, kConfigOp, "got ", key, " ", shown(value.dump(0)),
       "; expected ", expected);
}

}  // namespace

std::int64_t ConfigValues::size_or_zero(std::string_view key, std::int64_t otherwise) const {
  const Json& value = json_[key];
  if (value.is_null()) return otherwise;
  const std::int64_t size = value.integer_or(-1);
  if (size < 0 || size > kMaxSize) fail_value(key, value, text("a number up to ", kMaxSize));
  return size;
}

std::int64_t ConfigValues::size(std::string_view key, std::int64_t otherwise) const {
  const std::int64_t size = size_or_zero(key, otherwise);
  check(size > 0 || has(key), ErrorCode::invalid_argument, kConfigOp, "there is no ", key,
        ", which this model needs; get the model's own config.json");
  if (size <= 0) fail_value(key, json_[key], text("a number from 1 to ", kMaxSize));
  return size;
}

std::optional<double> ConfigValues::number(std::string_view key) const {
  const Json& value = json_[key];
  if (value.is_null()) return std::nullopt;
  const double number = value.number_or(std::nan(""));
  if (!std::isfinite(number)) fail_value(key, value, "a finite number");
  return number;
}

double ConfigValues::positive(std::string_view key, double otherwise) const {
  const double value = number(key).value_or(otherwise);
  if (!(value > 0.0)) fail_value(key, json_[key], "a number above zero");
  return value;
}

bool ConfigValues::flag(std::string_view key, bool otherwise) const {
  const Json& value = json_[key];
  if (value.is_null()) return otherwise;
  if (value.kind() != Json::Kind::boolean) fail_value(key, value, "true or false");
  return value.boolean_or(otherwise);
}

std::string_view ConfigValues::word(std::string_view key, std::string_view otherwise) const {
  const Json& value = json_[key];
  if (value.is_null()) return otherwise;
  if (!value.is_string()) fail_value(key, value, "a text");
  return value.string_or(otherwise);
}

}  // namespace octavo
