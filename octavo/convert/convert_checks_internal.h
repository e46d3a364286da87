// Argument checks of casts, shared with the scaled conversions of quant.
#pragma once

#include <string_view>

#include "octavo/backend/registry_internal.h"
#include "octavo/round/policy.h"
#include "octavo/tensor/view.h"

namespace octavo {

void check_same_shape(const View& from, const View& to, std::string_view op);
void check_policy(const EncodePolicy& policy, std::string_view op);

// For a format without NaN and a policy that gives no code for it: counts NaN, and refuses them. On
// a device this waits.
void refuse_nan(const Exec& exec, const View& values, const View& codes, const Kernels* backend,
                std::string_view op);
inline bool must_refuse_nan(const Format& format, const EncodePolicy& policy) {
  return !format.has_nan() && policy.nan_input == NanInput::error;
}

}  // namespace octavo
