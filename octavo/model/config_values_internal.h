// Reads the members of a config.json, an untrusted file: every number is checked, and an error
// names the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "octavo/base/json/json.h"

namespace octavo {

inline constexpr std::string_view kConfigOp = "config.json";

class ConfigValues {
 public:
  explicit ConfigValues(const Json& json) : json_(json) {}

  [[nodiscard]] const Json& operator[](std::string_view key) const { return json_[key]; }
  [[nodiscard]] bool has(std::string_view key) const { return !json_[key].is_null(); }
  [[nodiscard]] bool is_given(std::string_view key) const { return json_.has(key); }  // also null
  // A size, from 1 to 2^31 - 1; `otherwise` where there is none, and an error where that is 0.
  [[nodiscard]] std::int64_t size(std::string_view key, std::int64_t otherwise = 0) const;
  [[nodiscard]] std::int64_t size_or_zero(std::string_view key, std::int64_t otherwise = 0) const;
  // A finite number above zero; where there is none, `otherwise`.
  [[nodiscard]] double positive(std::string_view key, double otherwise) const;
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key, bool otherwise = false) const;
  [[nodiscard]] std::string_view word(std::string_view key, std::string_view otherwise) const;

 private:
  const Json& json_;
};

// parse_model_config of a document that was parsed already.
struct ModelConfig;
[[nodiscard]] ModelConfig parse_model_config(const Json& config);

}  // namespace octavo
