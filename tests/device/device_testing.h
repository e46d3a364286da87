// Test helpers for devices: copies to the device and back, comparison of bytes.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "fake_device.h"
#include "octavo/base/error.h"
#include "octavo/octavo.h"
#include "tests/agreement/quantize_cases.h"

namespace octavo::testing {

inline std::string difference(const Tensor& got, const Tensor& wanted) {
  if (got.shape() != wanted.shape() || got.nbytes() != wanted.nbytes()) return "another shape";
  if (got.view().strides != wanted.view().strides) return "other strides";
  const auto *a = static_cast<const unsigned char*>(got.view().data),
             *b = static_cast<const unsigned char*>(wanted.view().data);
  for (std::int64_t i = 0; i < got.nbytes(); ++i)
    if (a[i] != b[i]) return text("byte ", i, ": got ", int{a[i]}, "; expected ", int{b[i]});
  return "";
}

// Both on the host.
inline std::string difference(const QuantizedTensor& got, const QuantizedTensor& wanted) {
  const auto parts = [](const QuantizedTensor& q) {
    return std::array{q.rowwise.codes,    q.rowwise.scales,    q.rowwise.tensor_scale,
                      q.columnwise.codes, q.columnwise.scales, q.columnwise.tensor_scale};
  };
  const auto a = parts(got), b = parts(wanted);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if ((a[i].owner() == nullptr) != (b[i].owner() == nullptr))
      return text("part ", i, " is not there");
    if (a[i].owner() == nullptr) continue;
    const std::string found = difference(a[i], b[i]);
    if (!found.empty()) return text("part ", i, ", ", found);
  }
  return "";
}

class OnDevice : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(device.diary().broken, "");
    EXPECT_EQ(device.diary().live_allocations, 0) << "scratch was not released";
  }

  // A scalar in device memory, and its value.
  template <typename T>
  T* number(T value = {}) {
    auto* memory = static_cast<T*>(device.memory(sizeof(T)));
    device.api().copy({.device = kFirst}, memory, &value, sizeof(T));
    return memory;
  }
  template <typename T>
  T fetched(const T* memory) {
    T value;
    device.api().copy({.device = kFirst}, &value, memory, sizeof(T));
    return value;
  }

  template <typename Work>
  static void refused(ErrorCode code, std::string_view part, Work&& work) {
    try {
      work();
      ADD_FAILURE() << "was not refused: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
    }
  }

  // Runs `work` under stream capture: nothing may synchronize.
  template <typename Work>
  void captured(Work&& work) {
    const int waits = device.diary().waits;
    device.capture(true);
    work();
    device.capture(false);
    EXPECT_EQ(device.diary().waits, waits);
  }

  FakeDevice device;
};

}  // namespace octavo::testing
