// What a plan and the folder it makes know their source by.
#pragma once

#include <string>

#include "octavo/checkpoint/checkpoint_reader.h"

namespace octavo {

// Of the headers: names and places of all tensors, the names of the files, and config.json. No
// times, which copies of a model on several machines have of their own.
[[nodiscard]] std::string source_fingerprint(const CheckpointReader& source);

// Of a few KiB of each file's largest tensor: the same model after more training has the same
// headers.
[[nodiscard]] std::string source_sample(const CheckpointReader& source);

}  // namespace octavo
