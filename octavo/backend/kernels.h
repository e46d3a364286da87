// THE door between what is asked (convert, quant, ops) and who does it (a backend). Everything that
// crosses it is plain data that has been checked already: kernels throw nothing, print nothing,
// allocate nothing and keep nothing from one call to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "octavo/base/log.h"
#include "octavo/format/format.h"
#include "octavo/round/policy.h"
#include "octavo/tensor/view.h"

namespace octavo {

// Where and how to run. On a device, `stream` is its queue and views point into its memory.
struct Exec {
  Device device{};
  void* stream = nullptr;
  std::span<std::byte> workspace{};
  int threads = 1;  // on a CPU: at most this many
  Log* log = nullptr;
};

// A null entry is not offered; the caller falls back to `reference`.
struct Kernels {
  const char* name = "";
  const char* description = "";

  // Values (or codes of another format) to codes; element i of row r draws stochastic bits with
  // index policy.first_index + r * cols + i. When `codes` and `values` start at the same address
  // the conversion is in place. `counts`, if given, is added to.
  void (*encode)(const Exec&, const Matrix& values, const Matrix& codes, const EncodePolicy&,
                 Counts* counts) = nullptr;

  // Codes to values, rounded to nearest even where the value type is narrower than the format.
  void (*decode)(const Exec&, const Matrix& codes, const Matrix& values) = nullptr;

  // How many elements are NaN.
  std::int64_t (*count_nan)(const Exec&, const Matrix& values) = nullptr;
};

}  // namespace octavo
