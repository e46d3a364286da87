#include "octavo/backend/cuda/convert/count_edges.h"

#include <bit>
#include <initializer_list>

#include "octavo/round/encode.h"

namespace octavo::cuda {
namespace {

constexpr std::uint32_t kInfinity = 0x7F800000u;

// Bisection: the first magnitude from 1 to Inf for which `is` holds; it holds for all above.
template <typename Is>
std::uint32_t first_magnitude(Is&& is) {
  std::uint32_t low = 1, high = kInfinity;  // `is` holds at Inf, or nowhere
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (is(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

}  // namespace

bool count_edges(const Format& format, const EncodePolicy& policy, CountEdges* edges) {
  if (policy.rounding == Rounding::stochastic) return false;
  for (const std::uint32_t negative : {0u, 1u}) {
    const auto encoded = [&](std::uint32_t magnitude) {
      const auto value = std::bit_cast<float>(magnitude | negative << 31);
      return encode_value(format, static_cast<double>(value), policy);
    };
    edges->saturated_from[negative] =
        first_magnitude([&](std::uint32_t magnitude) { return encoded(magnitude).saturated; });
    edges->flushed_below[negative] =
        first_magnitude([&](std::uint32_t magnitude) { return !encoded(magnitude).flushed; });
  }
  return true;
}

}  // namespace octavo::cuda
