// One number that tells a model from another: of names, types and shapes of its tensors, its
// config, and the bytes at some places of every tensor: the same model after more training has the
// same names and shapes.
#pragma once

#include <cstdint>

namespace octavo {

class CheckpointReader;

// Files that hold fingerprints hold this, too. 1 had no bytes of tensors.
inline constexpr std::int64_t kFingerprintVersion = 2;

// Reads up to 4 KiB of a tensor, of all of them about 8 MiB, or 512 bytes of each where they are
// more than 16384. A change between these places alone is not seen.
[[nodiscard]] std::uint64_t model_fingerprint(const CheckpointReader& reader);

}  // namespace octavo
