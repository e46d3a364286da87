// Tensors whose names differ only in numbers, as one line of a table.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::cli {

// The same name with numbers as "*": "model.layers.*.mlp.up_proj.weight".
std::string without_numbers(std::string_view name);

// The numbers of such a group: which layers, which experts.
class NumbersOf {
 public:
  void add(std::string_view name);
  // The name with its numbers: "model.layers.0,2-5.mlp.up_proj.weight".
  [[nodiscard]] std::string in(std::string_view pattern) const;

 private:
  std::vector<std::map<std::uint64_t, std::uint64_t>> runs_;  // for each "*": first to last
};

}  // namespace octavo::cli
