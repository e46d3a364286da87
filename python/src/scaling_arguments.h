// The arguments of octavo.Scaling(...), as Python gives them, one by one: a wrong one is refused by
// its name, with the value that was got and the values that are expected.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>

#include "bind.h"
#include "octavo/tensor/quantized_view.h"

namespace octavo::python {

class ScalingArguments {
 public:
  // Throws Error(wrong_type) for names that Scaling does not have and for too many without a name.
  ScalingArguments(const nb::args& positional, const nb::kwargs& named);

  // Nothing where it was not given.
  [[nodiscard]] std::optional<nb::object> find(const char* name) const;

  [[nodiscard]] std::string word(const char* name, const char* otherwise) const;
  [[nodiscard]] std::optional<std::string> word_or_none(const char* name) const;
  [[nodiscard]] bool flag(const char* name, bool otherwise) const;
  [[nodiscard]] float number(const char* name, float otherwise) const;
  [[nodiscard]] Tile tile(Tile otherwise) const;

  template <typename Integer>
  [[nodiscard]] Integer integer(const char* name, Integer otherwise) const {
    const auto value = find(name);
    if (!value) return otherwise;
    Integer read{};
    if (!nb::try_cast<Integer>(whole(name, *value), read))
      out_of_range(name, *value, std::to_string(std::numeric_limits<Integer>::min()),
                   std::to_string(std::numeric_limits<Integer>::max()));
    return read;
  }

 private:
  // A Python int of anything that is one by nature (NumPy's too); never of True or 1.5.
  [[nodiscard]] static nb::object whole(const char* name, const nb::object& value);
  [[noreturn]] static void out_of_range(const char* name, const nb::object& value,
                                        const std::string& least, const std::string& most);

  nb::dict given_;
};

}  // namespace octavo::python
