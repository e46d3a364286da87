// LinearSaved: taking out and putting back the tensors saved for backward.
#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/nn/linear/linear_pass.h"

namespace octavo {
namespace {

constexpr std::array<std::string_view, LinearSaved::kMaxParts> kNames{
    "x",
    "weight",
    "x.codes",
    "x.scales",
    "x.tensor_scale",
    "x.columnwise_codes",
    "x.columnwise_scales",
    "x.columnwise_tensor_scale",
    "weight.codes",
    "weight.scales",
    "weight.tensor_scale",
    "weight.columnwise_codes",
    "weight.columnwise_scales",
    "weight.columnwise_tensor_scale",
};

// In the order of their names.
std::array<Tensor*, LinearSaved::kMaxParts> places(LinearSaved& saved, QuantizedTensor& weight) {
  QuantizedTensor& x = saved.x_codes;
  return {&saved.x,
          &saved.weight.values,
          &x.rowwise.codes,
          &x.rowwise.scales,
          &x.rowwise.tensor_scale,
          &x.columnwise.codes,
          &x.columnwise.scales,
          &x.columnwise.tensor_scale,
          &weight.rowwise.codes,
          &weight.rowwise.scales,
          &weight.rowwise.tensor_scale,
          &weight.columnwise.codes,
          &weight.columnwise.scales,
          &weight.columnwise.tensor_scale};
}

bool has_memory(const Tensor& tensor) {
  return tensor.view().data != nullptr || tensor.owner() != nullptr;
}

// Codes of a weight are shared with other owners, so a change is made to a copy, which shares their
// memory.
template <typename Change>
void change(LinearSaved& saved, const Change& apply) {
  const bool has_codes = saved.weight.codes != nullptr;
  QuantizedTensor weight = has_codes ? *saved.weight.codes : QuantizedTensor{};
  apply(places(saved, weight));
  if (has_codes) saved.weight.codes = std::make_shared<const QuantizedTensor>(std::move(weight));
}

}  // namespace

std::int64_t LinearSaved::x_nbytes() const {
  return x_codes.nbytes() + (x.view().data != nullptr ? x.nbytes() : 0);
}

std::vector<LinearSaved::Part> LinearSaved::take_parts() {
  std::vector<Part> parts;
  change(*this, [&](const auto& slots) {
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      if (!has_memory(*slots[slot])) continue;
      parts.push_back({kNames[slot], std::exchange(*slots[slot], {})});
      taken[slot] = parts.back().tensor.view();
      taken[slot]->data = nullptr;
    }
  });
  return parts;
}

LinearSaved LinearSaved::with_parts(std::span<const Tensor> parts) const {
  LinearSaved filled = *this;
  const auto wanted = static_cast<std::size_t>(
      std::ranges::count_if(taken, [](const auto& layout) { return layout.has_value(); }));
  check(parts.size() == wanted, ErrorCode::invalid_argument, "Linear", "got ", parts.size(),
        " parts of what forward kept; expected ", wanted);
  change(filled, [&](const auto& slots) {
    std::size_t next = 0;
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      if (!taken[slot]) continue;
      const Tensor& part = parts[next++];
      const View &got = part.view(), &layout = *taken[slot];
      const bool fits = got.dtype == layout.dtype && got.format == layout.format &&
                        got.shape == layout.shape && got.packed == layout.packed &&
                        got.device == layout.device;
      check(fits, ErrorCode::invalid_argument, "Linear", "got another ", kNames[slot],
            " than forward kept: shape ", to_string(got.shape), " on ", to_string(got.device),
            "; expected ", to_string(layout.shape), " on ", to_string(layout.device),
            " and the same type");
      *slots[slot] = part;
      filled.taken[slot].reset();
    }
  });
  return filled;
}

}  // namespace octavo
