// Tensors of a checkpoint as inspect shows them, and the tree of modules they are in.
#pragma once

#include <string>
#include <vector>

#include "octavo/pipeline/inspect_checkpoint.h"

namespace octavo::cli {

std::string shape_text(const InspectedTensor& tensor);  // "2 x 3"
std::string short_type(const InspectedTensor& tensor);  // up to the first comma or colon

// Layers that are alike are one branch, "layers.0..31".
std::string tree_text(const std::vector<InspectedTensor>& tensors);

}  // namespace octavo::cli
