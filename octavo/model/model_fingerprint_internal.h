// One number that tells a model from another: of names, types and shapes of its tensors, and its
// config.
#pragma once

#include <cstdint>

namespace octavo {

class CheckpointReader;

[[nodiscard]] std::uint64_t model_fingerprint(const CheckpointReader& reader);

}  // namespace octavo
