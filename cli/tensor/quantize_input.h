// Reads the input tensor of octavo quantize; the only code that distinguishes kinds of input.
#pragma once

#include <optional>
#include <string>

#include "octavo/tensor/tensor.h"

namespace octavo::cli {

struct QuantizeInput {
  Tensor memory;
  View values{};  // view of `memory`: Fortran order is expressed by strides
};

// Reads the whole input, for the command `op`. `more_bytes_each` is the additional memory per
// element that the command will need, so that insufficient memory is known before the work. Throws
// UsageError for input that is no array of values, Error(io) for input that cannot be read.
QuantizeInput read_quantize_input(const char* op, const std::string& path,
                                  const std::optional<std::string>& from, double more_bytes_each);

}  // namespace octavo::cli
