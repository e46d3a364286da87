// The tensor that octavo quantize is given. The one place that tells kinds of input apart.
#pragma once

#include <optional>
#include <string>

#include "octavo/tensor/tensor.h"

namespace octavo::cli {

struct QuantizeInput {
  Tensor memory;
  View values{};  // of it: Fortran order is a matter of strides
};

// Reads all of it, for the command `op`. `more_bytes_each` is what will be needed besides for every
// element, so that a machine too small is known before and not after. Throws UsageError for what is
// no array of values, Error(io) for what cannot be read.
QuantizeInput read_quantize_input(const char* op, const std::string& path,
                                  const std::optional<std::string>& from, double more_bytes_each);

}  // namespace octavo::cli
