#include "octavo/checkpoint/gguf/gguf_type.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace octavo::gguf {
namespace {

using safetensors::StoredType;

constexpr bool kSizeOnly = false;

constexpr std::array<TensorType, 32> kTypes{{
    {0, "F32", 1, 4, StoredType::f32},
    {1, "F16", 1, 2, StoredType::f16},
    {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},
    {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},
    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},
    {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},
    {16, "IQ2_XXS", 256, 66, StoredType::f32, kSizeOnly},
    {17, "IQ2_XS", 256, 74, StoredType::f32, kSizeOnly},
    {18, "IQ3_XXS", 256, 98, StoredType::f32, kSizeOnly},
    {19, "IQ1_S", 256, 50, StoredType::f32, kSizeOnly},
    {20, "IQ4_NL", 32, 18, StoredType::f32, kSizeOnly},
    {21, "IQ3_S", 256, 110, StoredType::f32, kSizeOnly},
    {22, "IQ2_S", 256, 82, StoredType::f32, kSizeOnly},
    {23, "IQ4_XS", 256, 136, StoredType::f32, kSizeOnly},
    {24, "I8", 1, 1, StoredType::i8},
    {25, "I16", 1, 2, StoredType::i16},
    {26, "I32", 1, 4, StoredType::i32},
    {27, "I64", 1, 8, StoredType::i64},
    {28, "F64", 1, 8, StoredType::f64},
    {29, "IQ1_M", 256, 56, StoredType::f32, kSizeOnly},
    {30, "BF16", 1, 2, StoredType::bf16},
    {34, "TQ1_0", 256, 54, StoredType::f32, kSizeOnly},
    {35, "TQ2_0", 256, 66, StoredType::f32, kSizeOnly},
    {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36, StoredType::f32, kSizeOnly},
    {41, "Q1_0", 128, 18, StoredType::f32, kSizeOnly},
}};

}  // namespace

const TensorType* find_type(std::uint32_t number) {
  const auto at = std::find_if(kTypes.begin(), kTypes.end(),
                               [&](const TensorType& type) { return type.number == number; });
  return at == kTypes.end() ? nullptr : &*at;
}

const TensorType& type_named(std::string_view name) {
  const auto at = std::find_if(kTypes.begin(), kTypes.end(),
                               [&](const TensorType& type) { return type.name == name; });
  assert(at != kTypes.end());
  return *at;
}

std::span<const TensorType> all_types() { return kTypes; }

}  // namespace octavo::gguf
