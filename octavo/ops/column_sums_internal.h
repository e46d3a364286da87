// Sums of the columns of a matrix, as the gradient of a bias has them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "octavo/backend/kernels.h"
#include "octavo/base/log.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct ColumnSumsOptions {
  View before{};  // [cols], added to the sums; or without memory
  int threads = 0;
  const Kernels* backend = nullptr;
  Log* log = nullptr;
  void* stream = nullptr;
  std::span<std::byte> workspace{};
};

// [rows, cols] of values into dense [cols], whose type decides. A device has a kernel for it
// (Kernels::column_sums says in which order it adds), and nothing waits; a CPU multiplies by ones.
// `op` is the operation that messages name.
void column_sums_into(const View& values, const View& sums, const ColumnSumsOptions& options,
                      std::string_view op);

}  // namespace octavo
