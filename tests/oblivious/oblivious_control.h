// Controls: functions that branch or index on data, which the check must report.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace octavo::oblivious {

// Each reads the input and writes one byte per element.
void branch_on_value(std::span<const std::uint32_t> input, std::uint8_t* output);
void look_up_value(std::span<const std::uint32_t> input, std::uint8_t* output);
void stop_at_value(std::span<const std::uint32_t> input, std::uint8_t* output);
// The negative control: what a kernel may do.
void select_by_mask(std::span<const std::uint32_t> input, std::uint8_t* output);

}  // namespace octavo::oblivious
