// The seam to MPI, NCCL or torch.distributed: the library has no transport of its own. Where
// several processes share a tensor, whoever starts them hands in a function that makes the numbers
// of all of them one.
#pragma once

#include <functional>
#include <span>

namespace octavo {

// Each number becomes the maximum of it over all processes of a group; NaN may be ignored or kept.
// They lie on the host. Every process of the group calls with as many numbers, in the same order,
// so what decides whether a call is made must be the same in all of them. May throw: then nothing
// that depends on the numbers is changed.
using Reducer = std::function<void(std::span<float> numbers)>;

}  // namespace octavo
