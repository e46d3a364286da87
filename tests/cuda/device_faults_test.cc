// Device faults: each is an Error that names the cause, and the context is as usable afterwards as
// CUDA allows.
#include <cstdio>
#include <cstdlib>

#include "octavo/base/error.h"
#include "tests/cuda/device_quantizer.h"
#include "tests/cuda/fault.h"

namespace octavo::support {
namespace {

// The message of the Error that `work` throws; empty if it throws none.
template <typename Work>
std::string refusal(ErrorCode code, Work work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void expect_usable(const DeviceApi& api) {
  DeviceQuantizer quantizer(33, 64, DType::bf16, preset("mxfp8"));
  quantizer.set(11);
  const Stream stream;
  quantizer.queue(api, stream.exec());
  stream.wait();
  EXPECT_EQ(quantizer.difference(), "");
}

// Runs anywhere: a program built with CUDA starts without a driver, and reports what is missing.
TEST(WithoutADevice, ItSaysWhy) {
  const std::string problem = cuda::device_problem(0);
  if (problem.empty()) GTEST_SKIP() << "there is a device: " << cuda::summary();
  EXPECT_TRUE(has(problem, "CUDA")) << problem;
  EXPECT_FALSE(cuda::summary().empty());
  EXPECT_EQ(refusal(ErrorCode::unsupported,
                    [] {
                      (void)device_api({DeviceKind::cuda, 0});
                    })
                .empty(),
            false);
}

TEST(WithoutADevice, NoSuchIndex) {
  for (const int index : {99, -1}) {
    EXPECT_FALSE(cuda::device_problem(index).empty()) << index;
    EXPECT_NE(refusal(ErrorCode::unsupported,
                      [&] {
                        (void)device_api({DeviceKind::cuda, index});
                      }),
              "")
        << index;
  }
}

using DeviceFaults = CudaTest;

TEST_F(DeviceFaults, NoSuchIndexIsNamed) {
  EXPECT_TRUE(has(cuda::device_problem(99), "99")) << cuda::device_problem(99);
  expect_usable(api());
}

TEST_F(DeviceFaults, OutOfMemory) {
  const Stream stream;
  constexpr std::size_t kTooMuch = std::size_t{1} << 48;
  const std::string lasting =
      refusal(ErrorCode::device, [&] { (void)api().allocate_lasting(stream.exec(), kTooMuch); });
  EXPECT_TRUE(has(lasting, "memory")) << lasting;
  const std::string ordered =
      refusal(ErrorCode::device, [&] { (void)api().allocate(stream.exec(), kTooMuch); });
  EXPECT_TRUE(has(ordered, "memory")) << ordered;
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);  // it was reported, so it must be cleared
  expect_usable(api());
}

// An error that the program has not fetched yet is the program's: octavo reports it and leaves it
// pending.
TEST_F(DeviceFaults, AnotherCallsErrorIsReportedAndKept) {
  const DeviceMemory values(64 * 4), codes(64);
  const Matrix from = dense_matrix(values.data(), value_view(nullptr, DType::f32, {0}), 1, 64);
  const Matrix to = dense_matrix(codes.data(), code_view(nullptr, e4m3fn, {0}), 1, 64);
  const Stream stream;
  EXPECT_NE(cudaSetDevice(4096), cudaSuccess);
  const std::string message = refusal(
      ErrorCode::device, [&] { api().kernels->encode(stream.exec(), from, to, {}, nullptr); });
  EXPECT_TRUE(has(message, "earlier")) << message;
  EXPECT_TRUE(has(message, "cudaErrorInvalidDevice")) << message;
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);  // still pending
  EXPECT_EQ(codes.read(0, 64), std::vector<std::byte>(64, std::byte{0xA5}));
  expect_usable(api());
}

TEST_F(DeviceFaults, PointersOfElsewhere) {
  const Stream stream;
  const DeviceMemory memory(16);
  int on_the_stack = 0;
  EXPECT_EQ(api().pointer_problem(stream.exec(), memory.data()), "");
  EXPECT_NE(api().pointer_problem(stream.exec(), &on_the_stack), "");
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// After a kernel with an illegal address, nothing on the device works until the process ends;
// octavo must still answer with an Error. Runs in a child process, because the context is lost.
void use_a_broken_context() {
  const DeviceMemory values(64 * 4), codes(64);
  const Matrix from = dense_matrix(values.data(), value_view(nullptr, DType::f32, {0}), 1, 64);
  const Matrix to = dense_matrix(codes.data(), code_view(nullptr, e4m3fn, {0}), 1, 64);
  const Stream stream;
  write_to_nowhere(stream.get());
  const cudaError_t broken = cudaStreamSynchronize(stream.get());
  std::string message;
  try {
    device_api({DeviceKind::cuda, 0}).kernels->encode(stream.exec(), from, to, {}, nullptr);
  } catch (const Error& error) {
    message = error.what();
  }
  std::fprintf(stderr, "%s\n", message.c_str());
  std::_Exit(broken != cudaSuccess && has(message, "cuda") ? 0 : 1);
}

TEST_F(DeviceFaults, ABrokenContextIsAnErrorDeathTest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(use_a_broken_context(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace octavo::support
