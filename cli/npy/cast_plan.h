// The plan of octavo cast, made and checked before a byte of output is written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/npy/npy.h"
#include "cli/text/names.h"
#include "octavo/round/policy.h"

namespace octavo::cli {

// As typed; an option not given is empty.
struct CastOptions {
  std::string input, output, to;
  std::optional<std::string> from, rounding, overflow, nan, profile;
  std::optional<std::uint64_t> seed;
  std::optional<int> stochastic_bits, threads;
  std::optional<std::int64_t> columns;
  bool packed = false, from_packed = false, error = false;
};

// One side of the conversion: `rows` x `cols` elements in the order of the file. Only packed codes,
// whose rows begin on a byte, need rows at all.
struct CastSide {
  Element element;
  bool packed = false;

  [[nodiscard]] std::int64_t bytes(std::int64_t rows, std::int64_t cols) const;
};

struct CastPlan {
  CastSide source, target;
  std::int64_t rows = 1, cols = 0;
  NpyHeader output_header;
  std::vector<std::int64_t> shape;  // of the elements, whatever the packing
  // Codes and 16-bit floats are encoded with this policy; wider floats are decoded, and it is
  // unused. Decoding is exact, known in advance, unless a format's range exceeds float32.
  bool encodes = true, exact = false;
  EncodePolicy policy;
  int threads = 0;
};

// Throws UsageError when the options do not fit each other or the file.
CastPlan plan_cast(const CastOptions& options, const NpyHeader& header);

}  // namespace octavo::cli
