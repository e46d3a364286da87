// Counts in messages: "1 tensor", "2 tensors".
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace octavo {

// The word for so many: "tensor" for 1, else "tensors", or `many` where an s is not enough.
[[nodiscard]] inline std::string plural(std::int64_t count, std::string_view one,
                                        std::string_view many = "") {
  if (count == 1) return std::string(one);
  return many.empty() ? std::string(one) + "s" : std::string(many);
}

[[nodiscard]] std::string counted(std::integral auto count, std::string_view one,
                                  std::string_view many = "") {
  return std::to_string(count) + " " + plural(static_cast<std::int64_t>(count), one, many);
}

}  // namespace octavo
