// Max all-reduce callback: the interface to MPI, NCCL or torch.distributed. The library has no
// transport of its own. Where several processes share a tensor, the program that starts them passes
// in a function that reduces their numbers.
#pragma once

#include <functional>
#include <span>

namespace octavo {

// All-reduce with max over the processes of a group; NaN may be ignored or kept. The numbers are in
// host memory. Every process of the group calls with the same count of numbers in the same order,
// so the condition for a call must be the same in all processes. May throw: then nothing that
// depends on the numbers is changed.
using Reducer = std::function<void(std::span<float> numbers)>;

}  // namespace octavo
