// EvalText: what a model is evaluated or calibrated on: a text, or the ids of its tokens where the
// model has no tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/macros.h"

namespace octavo {

struct EvalText {
  std::string name{};                              // of its file
  std::string content{};                           // UTF-8
  std::optional<std::vector<std::int32_t>> ids{};  // instead of the content
};

// The whole file. Throws Error(io) where it cannot be read, Error(invalid_argument) where it is
// empty or no UTF-8. `op` begins the messages, here and below.
[[nodiscard]] OCTAVO_API EvalText read_text_file(const std::string& op, const std::string& path);
// Numbers with white space or commas between them; brackets around them, as in JSON, may be there.
[[nodiscard]] OCTAVO_API EvalText read_ids_file(const std::string& op, const std::string& path);

}  // namespace octavo
