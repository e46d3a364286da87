// octavo quantize of a whole checkpoint: a folder, or a .safetensors file.
#pragma once

#include <string>

#include "cli/checkpoint/quantize_checkpoint_options.h"
#include "cli/globals.h"

namespace octavo::cli {

// True if the input is a checkpoint and not an array.
bool is_checkpoint(const std::string& input);

int run_quantize_checkpoint(const QuantizeArguments& common, const CheckpointArguments& arguments,
                            const Globals& globals);

}  // namespace octavo::cli
