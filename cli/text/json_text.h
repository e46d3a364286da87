// JSON as it is printed. File names need not be UTF-8, which JSON has to be: bytes that are not
// become the replacement character.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace octavo::cli {

template <typename Json>
std::string json_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace octavo::cli
