#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

#include "octavo/base/error.h"
#include "octavo/tensor/dlpack.h"
#include "octavo/tensor/dlpack_internal.h"

namespace octavo {

using namespace dlpack;

namespace {

// The ABI itself: these sizes are what every other library was compiled with.
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, ndim) == 16 &&
              offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80 &&
              offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

constexpr std::string_view kFrom = "from_dlpack";

// How DLPack's elements relate to ours. A unit is what its shape and strides count; a unit of
// several codes (two lanes of FP4, a byte of packed codes) makes our last dimension longer than
// DLPack's.
struct Meaning {
  DType dtype = DType::code;
  Format format{};
  bool packed = false;
  int unit_bits = 0;
  int lanes = 1;
};

template <typename... Parts>
void require(bool holds, const Parts&... parts) {
  check(holds, ErrorCode::invalid_argument, kFrom, parts...);
}

Meaning meaning_of(const DLDataType& type, bool padded, const DlpackImport& import) {
  const int bits = type.bits;
  const auto is = [&](DLDataTypeCode code, int width) {
    return type.code == code && bits == width && type.lanes == 1;
  };
  const bool is_value_type =
      is(kDLFloat, 64) || is(kDLFloat, 32) || is(kDLFloat, 16) || is(kDLBfloat, 16);
  if (is_value_type) {
    check(!import.format && !import.packed_cols, ErrorCode::wrong_type, kFrom,
          "got an array of floating-point values and a format, which is for codes; leave the "
          "format out");
    const DType half = type.code == kDLBfloat ? DType::bf16 : DType::f16;
    return {.dtype = bits == 64 ? DType::f64 : bits == 32 ? DType::f32 : half, .unit_bits = bits};
  }

  const bool is_bytes =
      (type.code == kDLUInt || type.code == kDLInt) && (bits == 8 || bits == 16) && type.lanes == 1;
  if (is_bytes) {
    check(import.format.has_value(), ErrorCode::wrong_type, kFrom, "got integers of ", bits,
          " bits, which may be codes of any format; say which format");
    const Format& format = *import.format;
    if (import.packed_cols) {
      check(bits == 8 && format.bits() < 8, ErrorCode::wrong_type, kFrom, "got integers of ", bits,
            " bits as packed codes of ", format.bits(),
            " bits; expected bytes, and codes of fewer than 8 bits");
      return {.format = format, .packed = true, .unit_bits = 8};
    }
    check(8 * format.code_bytes() == bits, ErrorCode::wrong_type, kFrom, "got integers of ", bits,
          " bits, but codes of ", format.bits(), " bits are stored in ", 8 * format.code_bytes());
    return {.format = format, .unit_bits = bits};
  }

  for (const CodeType& known : kCodeTypes) {
    const bool pairs = known.code == kDLFloat4_e2m1fn && type.lanes == 2;
    if (type.code != known.code || bits != known.format.bits() || (type.lanes != 1 && !pairs))
      continue;
    check(!import.format || *import.format == known.format, ErrorCode::wrong_type, kFrom,
          "got an array that has a format of its own and another one beside it; leave the format "
          "out");
    check(!import.packed_cols, ErrorCode::wrong_type, kFrom,
          "packed_cols is for arrays of bytes, and this one has a type; leave it out");
    const bool packed = bits < 8 && (pairs || !padded);
    return {.format = known.format,
            .packed = packed,
            .unit_bits = pairs || !packed ? 8 : bits,
            .lanes = type.lanes};
  }
  fail(ErrorCode::wrong_type, kFrom, "got DLPack type code ", int{type.code}, " with ", bits,
       " bits and ", type.lanes,
       " lanes; expected float64, float32, float16, bfloat16, a float8, float6 or float4 type, or "
       "integers of 8 or 16 "
       "bits");
}

Device device_of(const DLDevice& device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
    case kDLROCMHost:
      return {};
    case kDLCUDA:
    case kDLCUDAManaged:
      return {.kind = DeviceKind::cuda, .index = device.device_id};
    default:
      break;
  }
  fail(ErrorCode::unsupported, kFrom, "got memory on DLPack device type ", device.device_type,
       "; expected CPU (1) or CUDA (2), so copy it there first");
}

// Our shape from DLPack's: the same but for the last dimension where a unit holds several codes.
Shape shape_of(const Shape& units, const Meaning& meaning, const DlpackImport& import) {
  if (meaning.lanes == 1 && !import.packed_cols) return units;
  Shape shape = units.rank() > 0 ? units : Shape{1};
  std::int64_t& last = shape[shape.rank() - 1];
  if (meaning.lanes > 1) {
    require(!__builtin_mul_overflow(last, meaning.lanes, &last), "the last size of ",
            to_string(units), " does not fit in 64 bits in single elements");
    return shape;
  }
  const std::int64_t cols = *import.packed_cols;
  require(cols >= 0 && cols <= INT64_MAX / 8 && packed_row_bytes(cols, meaning.format) == last,
          "got rows of ", last, " bytes and packed_cols = ", cols, "; expected as many codes of ",
          meaning.format.bits(), " bits as fill those bytes");
  last = cols;
  return shape;
}

// One stride in bytes; dimensions of a single unit have none that matters and are left alone.
void set_strides(View& view, const Shape& units, const std::int64_t* strides,
                 const Meaning& meaning) {
  std::int64_t reach = 0;
  for (int i = 0; i < units.rank(); ++i) {
    if (units[i] == 1) continue;
    if (view.packed && i + 1 == units.rank()) {
      require(strides[i] == 1, "got packed codes with stride ", strides[i],
              " in the last dimension; expected 1, so copy it first");
      continue;
    }
    std::int64_t bits = 0, extent = 0;
    require(!__builtin_mul_overflow(strides[i], meaning.unit_bits, &bits) &&
                !__builtin_mul_overflow(bits, units[i] - 1, &extent) && extent != INT64_MIN &&
                !__builtin_add_overflow(reach, std::abs(extent), &reach),
            "got stride ", strides[i], " in dimension ", i, " of ", to_string(units),
            ", which reaches beyond 64 bits");
    require(bits % 8 == 0, "got packed rows that do not start on a byte (stride ", strides[i],
            " codes of ", meaning.unit_bits, " bits); pad the last dimension or do not pack");
    view.strides[i] = bits / 8;
  }
}

View view_of_dlpack(const DLTensor& array, bool padded, const DlpackImport& import) {
  const Meaning meaning = meaning_of(array.dtype, padded, import);
  const Device device = device_of(array.device);
  require(array.ndim >= 0, "got ", array.ndim, " dimensions; expected 0 to ", kMaxRank);
  if (array.ndim > kMaxRank) fail_rank(kFrom, static_cast<std::size_t>(array.ndim));
  require(array.ndim == 0 || array.shape != nullptr, "got ", array.ndim,
          " dimensions without a shape");
  const Shape units(
      std::span<const std::int64_t>(array.shape, static_cast<std::size_t>(array.ndim)));
  const bool has_elements = element_count(units) > 0;
  require(!has_elements || array.data != nullptr, "got no data for shape ", to_string(units));
  require(array.byte_offset <= PTRDIFF_MAX, "got byte offset ", array.byte_offset,
          ", which is beyond any memory");

  const Shape shape = shape_of(units, meaning, import);
  View view = is_value(meaning.dtype) ? value_view(nullptr, meaning.dtype, shape)
                                      : code_view(nullptr, meaning.format, shape, meaning.packed);
  view.device = device;
  if (array.data != nullptr) view.data = static_cast<std::byte*>(array.data) + array.byte_offset;
  if (!has_elements || units.rank() == 0) return view;

  std::array<std::int64_t, kMaxRank> dense{};
  if (array.strides == nullptr) {
    std::int64_t stride = 1;  // cannot overflow: element_count did not
    for (int i = units.rank() - 1; i >= 0; stride *= units[i--])
      dense[static_cast<std::size_t>(i)] = stride;
  }
  set_strides(view, units, array.strides != nullptr ? array.strides : dense.data(), meaning);
  return view;
}

// Armed after the last statement that can throw: neither a failed check nor a failed allocation may
// call the deleter while the caller still owns the array.
template <typename Managed>
struct Adopted {
  Managed* managed = nullptr;
  Adopted() = default;
  Adopted(const Adopted&) = delete;
  Adopted& operator=(const Adopted&) = delete;
  ~Adopted() {
    if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
  }
};

template <typename Managed>
Tensor adopt(Managed* managed, const View& view) {
  auto owner = std::make_shared<Adopted<Managed>>();
  owner->managed = managed;
  return Tensor::adopt(view, std::move(owner));
}

}  // namespace

Tensor from_dlpack(DLManagedTensorVersioned* managed, const DlpackImport& import) {
  require(managed != nullptr, "got a null array");
  // A later major version may have moved everything behind `flags`.
  check(managed->version.major == kMajorVersion, ErrorCode::unsupported, kFrom,
        "got DLPack version ", managed->version.major, '.', managed->version.minor, "; expected ",
        kMajorVersion, ".x; ask the producer for max_version=(1, 1)");
  View view =
      view_of_dlpack(managed->dl_tensor, (managed->flags & kFlagSubBytePadded) != 0, import);
  view.read_only = (managed->flags & kFlagReadOnly) != 0;
  return adopt(managed, view);
}

Tensor from_dlpack(DLManagedTensor* managed, const DlpackImport& import) {
  require(managed != nullptr, "got a null array");
  return adopt(managed, view_of_dlpack(managed->dl_tensor, false, import));
}

}  // namespace octavo
