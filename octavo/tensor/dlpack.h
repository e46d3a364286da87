// Arrays from and to other libraries without copying: DLPack, in its versioned form (1.x) and the
// older one that some libraries still speak.
//
// octavo declares the ABI itself, so it needs no third-party header, and in its own namespace, so
// it does not clash with one. A program that includes dlpack.h passes its pointers through
// reinterpret_cast: the layouts are the same.
#pragma once

#include <cstdint>
#include <optional>

#include "octavo/base/macros.h"
#include "octavo/format/format.h"
#include "octavo/tensor/tensor.h"

namespace octavo {
// NOLINTBEGIN(readability-identifier-naming): the names are DLPack's.
namespace dlpack {

inline constexpr std::uint32_t kMajorVersion = 1, kMinorVersion = 1;

enum DLDeviceType : std::int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLROCMHost = 11,
  kDLCUDAManaged = 13,  // others exist and are refused
};

enum DLDataTypeCode : std::uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLOpaqueHandle = 3,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
  kDLFloat8_e3m4 = 7,
  kDLFloat8_e4m3 = 8,
  kDLFloat8_e4m3b11fnuz = 9,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e4m3fnuz = 11,
  kDLFloat8_e5m2 = 12,
  kDLFloat8_e5m2fnuz = 13,
  kDLFloat8_e8m0fnu = 14,
  kDLFloat6_e2m3fn = 15,
  kDLFloat6_e3m2fn = 16,
  kDLFloat4_e2m1fn = 17,
};

inline constexpr std::uint64_t kFlagReadOnly = 1u << 0;
inline constexpr std::uint64_t kFlagCopied = 1u << 1;
inline constexpr std::uint64_t kFlagSubBytePadded =
    1u << 2;  // one code per byte; without it codes are packed

struct DLPackVersion {
  std::uint32_t major, minor;
};
struct DLDevice {
  std::int32_t device_type, device_id;
};
struct DLDataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; before version 1.2 null means dense
  std::uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

}  // namespace dlpack
// NOLINTEND(readability-identifier-naming)

// What a DLPack array does not declare.
struct DlpackImport {
  // Integers of 8 and 16 bits are codes of this format. Arrays of a float8, float6 or float4 type
  // know their own; declaring another one is an error.
  std::optional<Format> format{};
  // For bytes that hold packed codes: the number of codes in a row, which the byte count does not
  // determine.
  std::optional<std::int64_t> packed_cols{};
};

// Adopts the array: its deleter is called when the last tensor that shares it is destroyed. On an
// exception nothing was adopted and the caller still owns the array.
[[nodiscard]] OCTAVO_API Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed,
                                            const DlpackImport& import = {});
[[nodiscard]] OCTAVO_API Tensor from_dlpack(dlpack::DLManagedTensor* managed,
                                            const DlpackImport& import = {});

enum class DlpackCodes : std::uint8_t {
  // The type DLPack has for the format, and bytes where it has none. Packed FP4 with an even number
  // of
  // columns goes out in pairs (two lanes), the only way in which torch reads and writes it.
  typed,
  bytes,  // uint8, or uint16 beyond eight bits: for libraries that know no such types (numpy)
};

// The array shares the tensor's memory and keeps it alive until the receiver calls its deleter.
[[nodiscard]] OCTAVO_API dlpack::DLManagedTensorVersioned* to_dlpack(
    const Tensor& tensor, DlpackCodes codes = DlpackCodes::typed);
// The legacy form cannot express "read only" (an error) nor "not packed" (codes below a byte go as
// uint8).
[[nodiscard]] OCTAVO_API dlpack::DLManagedTensor* to_dlpack_legacy(
    const Tensor& tensor, DlpackCodes codes = DlpackCodes::typed);

}  // namespace octavo
