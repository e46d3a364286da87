// Tensors of a checkpoint as inspect shows them, and the tree of modules they are in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/tensor_statistics.h"

namespace octavo::cli {

struct InspectedTensor {
  std::string name;  // untrusted
  std::vector<std::int64_t> shape;
  std::string type;  // as stored, or how it is quantized
  std::uint64_t bytes = 0;
  const FoundWeight* found = nullptr;  // where it is quantized
  std::optional<Statistics> statistics{};

  [[nodiscard]] std::string shape_text() const;
  [[nodiscard]] std::string short_type() const;  // up to the first comma or colon
};

// Layers that are alike are one branch, "layers.0..31".
std::string tree_text(const std::vector<InspectedTensor>& tensors);

}  // namespace octavo::cli
