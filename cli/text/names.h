// Parses names given on the command line; a mistake becomes a UsageError that suggests the nearest
// name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/text/suggest.h"
#include "cli/usage.h"
#include "octavo/base/error.h"
#include "octavo/format/format.h"
#include "octavo/tensor/dtype.h"

namespace octavo::cli {

// The element type of a file: one of four value types, or codes of a format.
struct Element {
  DType dtype = DType::f32;
  Format format{};  // of codes

  // bfloat16 and float16 are formats too (e8m7, e5m10), so values can be rounded to them like to
  // any other.
  [[nodiscard]] bool is_code() const { return dtype == DType::code; }
  [[nodiscard]] bool has_16_bits_or_fewer() const {
    return dtype != DType::f32 && dtype != DType::f64;
  }
  [[nodiscard]] Format as_format() const;
  [[nodiscard]] std::string name() const;
};

// `where` begins the message: "[formats]" or "[cast] --to:".
Format format_argument(std::string_view where, std::string_view typed);
Element element_argument(std::string_view where, std::string_view typed);

// One of several names, as a parser of the library reads it.
template <typename Parse>
auto named_argument(std::string_view where, const std::string& typed,
                    const std::vector<std::string>& names, Parse&& parse) {
  try {
    return parse(typed);
  } catch (const Error& error) {
    throw UsageError(text(where, ' ', reason_of(error), '.', did_you_mean(typed, names)));
  }
}

// The error in a seed, or "": the parser would wrap a negative number, and truncate one that is too
// large.
std::string seed_problem(const std::string& typed);

std::string listed(const std::vector<std::string>& names);  // "a, b, c"

std::vector<std::string> format_names();   // the named ones
std::vector<std::string> element_names();  // those and the value types

}  // namespace octavo::cli
