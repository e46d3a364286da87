// open_values: a model on disk, open for reading its values. A quantized one reads as the model
// that it was made from would: weights have their names and shapes, and row blocks are decoded as
// they are read, rounded to the type that config.json says (bf16). So that a quantized model is
// quantized again without a copy of its values on disk.
#pragma once

#include <string>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/checkpoint_reader.h"

namespace octavo {

// Throws what CheckpointReader and recognize() throw. A note says what was quantized.
[[nodiscard]] OCTAVO_API CheckpointReader open_values(const std::string& path,
                                                      OtherFiles others = OtherFiles::unused,
                                                      const std::string& deleted_shards = {});

}  // namespace octavo
