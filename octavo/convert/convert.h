// encode / decode: arrays of values to codes and back (cast). Never a scale: [1, 2, 3] encoded and
// decoded is [1, 2, 3].
//
// Views may have any shape and strides (last dimension dense where packed). Results do not depend
// on the backend or the number of threads. Every call checks all it is given before it writes a
// byte.
//
// All views of a call are on one device. On a GPU a call returns when its work is queued on
// options.stream, and may be captured into a graph; it synchronizes only where NaN is an error in a
// format without NaN: the data has to be checked on the host, which cannot be captured.
#pragma once

#include <cstdint>
#include <span>

#include "octavo/base/log.h"
#include "octavo/base/macros.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/policy.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct Kernels;

struct ConvertOptions {
  int threads = 0;  // maximum number of threads, up to kMaxThreads; 0: all cores of the thread pool
  // If given, receives the counts (encode only). Memory of the device that the views are on.
  Counts* counts = nullptr;
  const Kernels* backend = nullptr;  // null: the one the registry chooses
  Log* log =
      nullptr;  // if given, receives a message once where a backend falls back to `reference`
  // On a device: the stream (a cudaStream_t; null is the default stream) and a device workspace for
  // small scratch, which comes from the device's memory pool where the workspace is too small.
  void* stream = nullptr;
  std::span<std::byte> workspace{};
};

// Values, or codes of another format, to codes. The target format is that of `codes`. In place when
// both views start at the same address, are dense and unpacked, and a code is no larger than a
// value.
OCTAVO_API void encode(const View& values, const View& codes, const EncodePolicy& policy = {},
                       const ConvertOptions& options = {});

// Codes to f64, f32, f16 or bf16: exact where the type can hold the value, else rounded to nearest
// even (beyond its range: Inf).
OCTAVO_API void decode(const View& codes, const View& values, const ConvertOptions& options = {});

// The same, allocating the result.
[[nodiscard]] OCTAVO_API Tensor encode(const View& values, const Format& format,
                                       const EncodePolicy& policy = {},
                                       const ConvertOptions& options = {}, bool packed = false);
[[nodiscard]] OCTAVO_API Tensor decode(const View& codes, DType dtype,
                                       const ConvertOptions& options = {});

// For plain arrays of one size. Codes of more than eight bits are uint16_t.
OCTAVO_API void encode(std::span<const float> values, std::span<std::uint8_t> codes,
                       const Format& format, const EncodePolicy& policy = {},
                       const ConvertOptions& options = {});
OCTAVO_API void encode(std::span<const float> values, std::span<std::uint16_t> codes,
                       const Format& format, const EncodePolicy& policy = {},
                       const ConvertOptions& options = {});
OCTAVO_API void decode(std::span<const std::uint8_t> codes, const Format& format,
                       std::span<float> values, const ConvertOptions& options = {});
OCTAVO_API void decode(std::span<const std::uint16_t> codes, const Format& format,
                       std::span<float> values, const ConvertOptions& options = {});

// The E4M3 case under the names it is often asked for.
OCTAVO_API void fp8_encode(std::span<const float> values, std::span<std::uint8_t> codes);
OCTAVO_API void fp8_decode(std::span<const std::uint8_t> codes, std::span<float> values);

}  // namespace octavo
