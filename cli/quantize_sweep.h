// octavo quantize --sweep: every combination of some options, measured; nothing but a page written.
#pragma once

#include "cli/checkpoint/quantize_checkpoint_options.h"
#include "cli/globals.h"
#include "cli/tensor/quantize_plan.h"
#include "octavo/pipeline/sweep.h"

namespace octavo::cli {

int run_sweep(const QuantizeArguments& common, const CheckpointArguments& arguments,
              bool checkpoint, const Globals& globals);

}  // namespace octavo::cli
