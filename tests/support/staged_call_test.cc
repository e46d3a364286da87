// Staging itself, on a device that is host memory and runs the reference: the same results as
// without it, whatever the layout, and a kernel that writes where it must not is detected.
#include "tests/support/staged_call.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "octavo/octavo.h"
#include "tests/support/staged_kernels.h"

namespace octavo::support {
namespace {

int live_buffers = 0;

void* allocate(const Exec&, std::size_t bytes) {
  ++live_buffers;
  return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
}
void release(const Exec&, void* memory) noexcept {
  --live_buffers;
  std::free(memory);
}
void free_lasting(int, void* memory) noexcept {
  --live_buffers;
  std::free(memory);
}
void copy(const Exec&, void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void wait(const Exec&) {}

DeviceApi host_device(const Kernels& kernels) {
  return {.kernels = &kernels,
          .allocate = &allocate,
          .release = &release,
          .allocate_lasting = &allocate,
          .free_lasting = &free_lasting,
          .copy = &copy,
          .wait = &wait};
}

const DeviceApi& good_device() {
  static const DeviceApi kApi = host_device(reference_backend());
  return kApi;
}

// The reference, and then one byte too many: beside the output, in front of it, or of its input.
enum class Fault { after, before, input, gap };
Fault fault = Fault::after;

void faulty_encode(const Exec& exec, const Matrix& values, const Matrix& codes,
                   const EncodePolicy& policy, Counts* counts) {
  reference_backend().encode(exec, values, codes, policy, counts);
  auto* const out = static_cast<std::uint8_t*>(codes.data);
  switch (fault) {
    case Fault::after:
      out[(codes.rows - 1) * codes.row_pitch + codes.cols] ^= 1;
      break;
    case Fault::before:
      out[-1] ^= 1;
      break;
    case Fault::gap:
      out[codes.cols] ^= 1;
      break;
    case Fault::input:
      static_cast<std::uint8_t*>(values.data)[5] ^= 1;
  }
}
// Leaves its output alone.
void idle_encode(const Exec&, const Matrix&, const Matrix&, const EncodePolicy&, Counts*) {}

const DeviceApi& faulty_device() {
  static const Kernels kKernels{.name = "faulty", .encode = &faulty_encode};
  static const DeviceApi kApi = host_device(kKernels);
  return kApi;
}
const DeviceApi& idle_device() {
  static const Kernels kKernels{.name = "idle", .encode = &idle_encode};
  static const DeviceApi kApi = host_device(kKernels);
  return kApi;
}

const Kernels kGood = StagedKernels<&good_device>::table("reference (staged)");
const Kernels kFaulty = StagedKernels<&faulty_device>::table("faulty (staged)");
const Kernels kIdle = StagedKernels<&idle_device>::table("idle (staged)");

std::vector<float> ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = 0.37F * static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
  return values;
}

TEST(StagedCall, QuantizersGiveTheSameBytes) {
  std::vector<float> values = ramp(40 * 96);
  View transposed = value_view(values.data(), DType::f32, {96, 40});
  transposed.strides = {4, 96 * 4};
  const View plain = value_view(values.data(), DType::f32, {40, 96});
  const View stack = value_view(values.data(), DType::f32, {4, 10, 96});
  for (const std::string& name : preset_names()) {
    for (const View& view : {plain, transposed, stack}) {
      Scaling scaling = preset(name);
      scaling.columnwise = view.shape.rank() == 2;
      Counts wanted_counts, counts;
      float wanted_amax = 0, amax = 0;
      const auto run = [&](const Kernels& kernels, Counts& met, float& largest) {
        return quantize(view, scaling, {.counts = &met, .amax = &largest, .backend = &kernels});
      };
      const QuantizedTensor wanted = run(reference_backend(), wanted_counts, wanted_amax);
      const QuantizedTensor got = run(kGood, counts, amax);
      const auto same = [](const Tensor& a, const Tensor& b) {
        return std::ranges::equal(a.bytes(), b.bytes());
      };
      EXPECT_TRUE(same(got.rowwise.codes, wanted.rowwise.codes)) << name;
      EXPECT_TRUE(same(got.rowwise.scales, wanted.rowwise.scales)) << name;
      if (scaling.columnwise) {
        EXPECT_TRUE(same(got.columnwise.codes, wanted.columnwise.codes)) << name;
        EXPECT_TRUE(same(got.columnwise.scales, wanted.columnwise.scales)) << name;
      }
      EXPECT_EQ(counts, wanted_counts) << name;
      EXPECT_EQ(amax, wanted_amax) << name;
      EXPECT_TRUE(same(dequantize(got, DType::f32, {.backend = &kGood}), dequantize(wanted)));
      const Scaling fp8 = preset("fp8");
      if (view.shape.rank() == 2) {
        EXPECT_TRUE(same(requantize(got, fp8, {.backend = &kGood}).rowwise.codes,
                         requantize(wanted, fp8).rowwise.codes));
      }
    }
  }
  EXPECT_EQ(live_buffers, 0);
}

TEST(StagedCall, AnyStrideAndInPlace) {
  std::vector<float> values = ramp(1000);
  for (const std::int64_t stride : {-3, -1, 0, 1, 2}) {
    View view = value_view(values.data() + 500, DType::f32, {100});
    view.strides[0] = stride * 4;
    EXPECT_TRUE(std::ranges::equal(encode(view, e4m3fn, {}, {.backend = &kGood}).bytes(),
                                   encode(view, e4m3fn).bytes()))
        << stride;
  }
  std::vector<float> memory = values;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(memory.data());
  encode(value_view(memory.data(), DType::f32, {1000}), code_view(bytes, e4m3fn, {1000}), {},
         {.backend = &kGood});
  const Tensor wanted = encode(view_of(std::span<const float>(values)), e4m3fn);
  EXPECT_EQ(std::memcmp(bytes, wanted.bytes().data(), 1000), 0);
  encode(value_view(nullptr, DType::f32, {0}), code_view(nullptr, e4m3fn, {0}), {},
         {.backend = &kGood});
  EXPECT_EQ(live_buffers, 0);
}

TEST(StagedCall, FindsWritesWhereNoneMayBe) {
  std::vector<float> values = ramp(64);
  std::vector<std::uint8_t> codes(200);
  const Matrix from{.data = values.data(), .rows = 8, .cols = 8, .row_pitch = 32, .col_stride = 4};
  const Matrix to{.data = codes.data() + 3,
                  .dtype = DType::code,
                  .format = e4m3fn,
                  .rows = 8,
                  .cols = 8,
                  .row_pitch = 11,
                  .col_stride = 1};
  for (const Fault now : {Fault::after, Fault::before, Fault::gap, Fault::input}) {
    fault = now;
    EXPECT_NONFATAL_FAILURE(kFaulty.encode({}, from, to, {}, nullptr), "not its to write");
  }
  EXPECT_EQ(live_buffers, 0);
}

// An element that a kernel forgot to write must not pass because it was right before.
TEST(StagedCall, PoisonsWhatIsToBeWritten) {
  const float value = 1;
  std::uint8_t code = 0x38;
  encode(std::span(&value, 1), std::span(&code, 1), e4m3fn, {}, {.backend = &kIdle});
  EXPECT_NE(code, 0x38);
}

}  // namespace
}  // namespace octavo::support
