// For the DLPack tests: an array of another library, and what happens when it is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/tensor/dlpack.h"

namespace octavo::dlpack_testing {

using dlpack::DLDataType;
using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;
using dlpack::DLTensor;

// An array of another library, with a deleter that counts.
template <typename Managed>
struct Foreign {
  std::vector<std::int64_t> shape, strides;
  alignas(64) std::array<std::byte, 256> memory{};
  int deleted = 0;
  Managed managed{};

  Foreign(DLDataType type, std::vector<std::int64_t> sizes, std::vector<std::int64_t> steps = {})
      : shape(std::move(sizes)), strides(std::move(steps)) {
    DLTensor& array = managed.dl_tensor;
    array.data = memory.data();
    array.device = {dlpack::kDLCPU, 0};
    array.ndim = static_cast<std::int32_t>(shape.size());
    array.dtype = type;
    array.shape = shape.data();
    array.strides = strides.empty() ? nullptr : strides.data();
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
    if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) managed.version = {1, 0};
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
  DLTensor& array() { return managed.dl_tensor; }
};
using Versioned = Foreign<DLManagedTensorVersioned>;
using Legacy = Foreign<DLManagedTensor>;

inline constexpr DLDataType kF32{dlpack::kDLFloat, 32, 1}, kU8{dlpack::kDLUInt, 8, 1},
    kU16{dlpack::kDLUInt, 16, 1};
inline constexpr DLDataType kF4{dlpack::kDLFloat4_e2m1fn, 4, 1},
    kF4x2{dlpack::kDLFloat4_e2m1fn, 4, 2};
inline constexpr DLDataType kF6{dlpack::kDLFloat6_e2m3fn, 6, 1};

// The error of an import that must fail, after which the array must still be the caller's.
template <typename ForeignArray>
Error refusal(ForeignArray& foreign, const DlpackImport& import = {}) {
  try {
    (void)from_dlpack(&foreign.managed, import);
  } catch (const Error& error) {
    EXPECT_EQ(foreign.deleted, 0) << "an array that was refused is not ours to delete";
    EXPECT_EQ(std::string(error.what()).rfind('[', 0), 0u);
    return error;
  }
  ADD_FAILURE() << "the array was accepted";
  return {ErrorCode::internal, ""};
}

}  // namespace octavo::dlpack_testing
