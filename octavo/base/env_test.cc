#include "octavo/base/env.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "octavo/base/error.h"

namespace octavo {
namespace {

// The caller's own settings come back after each test: the whole suite may run under
// OCTAVO_BACKEND.
class Env : public testing::Test {
 protected:
  void SetUp() override {
    backend_ = env_backend();
    threads_ = now("OCTAVO_THREADS");
    library_ = now("OCTAVO_CUDA_LIBRARY_GEMM");
  }
  void TearDown() override {
    restore("OCTAVO_BACKEND", backend_);
    restore("OCTAVO_THREADS", threads_);
    restore("OCTAVO_CUDA_LIBRARY_GEMM", library_);
  }
  static std::optional<std::string> now(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  }
  static void restore(const char* name, const std::optional<std::string>& value) {
    value ? setenv(name, value->c_str(), 1) : unsetenv(name);
  }

 private:
  std::optional<std::string> backend_, threads_, library_;
};

std::string message_for(const std::string& value) {
  setenv("OCTAVO_THREADS", value.c_str(), 1);
  try {
    (void)env_threads();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST_F(Env, UnsetAndEmptyAreNotGiven) {
  unsetenv("OCTAVO_BACKEND");
  unsetenv("OCTAVO_THREADS");
  EXPECT_EQ(env_backend(), std::nullopt);
  EXPECT_EQ(env_threads(), std::nullopt);
  setenv("OCTAVO_BACKEND", "", 1);
  setenv("OCTAVO_THREADS", "", 1);
  EXPECT_EQ(env_backend(), std::nullopt);
  EXPECT_EQ(env_threads(), std::nullopt);
}

TEST_F(Env, ValuesAreReadAnew) {
  setenv("OCTAVO_BACKEND", "portable", 1);
  EXPECT_EQ(env_backend(), "portable");
  setenv("OCTAVO_BACKEND", "reference", 1);
  EXPECT_EQ(env_backend(), "reference");
  for (const int threads : {1, 2, 1024}) {
    setenv("OCTAVO_THREADS", std::to_string(threads).c_str(), 1);
    EXPECT_EQ(env_threads(), threads);
  }
}

TEST_F(Env, ThreadsRefusesWhatIsNotACount) {
  for (const char* bad :
       {"0", "-1", "1025", "two", "2x", " 2", "2 ", "+2", "0x2", "1.5", "99999999999999999999"}) {
    EXPECT_EQ(message_for(bad),
              text("[OCTAVO_THREADS] got '", bad,
                   "'; expected a number from 1 to 1024; unset it to use every core"));
  }
}

TEST_F(Env, TheCudaLibraryIs0Or1) {
  constexpr const char* kName = "OCTAVO_CUDA_LIBRARY_GEMM";
  unsetenv(kName);
  EXPECT_EQ(env_cuda_library_gemm(), std::nullopt);
  setenv(kName, "0", 1);
  EXPECT_EQ(env_cuda_library_gemm(), false);
  setenv(kName, "1", 1);
  EXPECT_EQ(env_cuda_library_gemm(), true);
  for (const char* bad : {"yes", "2", "01", " 1", "-1"}) {
    setenv(kName, bad, 1);
    try {
      (void)env_cuda_library_gemm();
      ADD_FAILURE() << bad << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(std::string(error.what()).find(text("[OCTAVO_CUDA_LIBRARY_GEMM] got '", bad)), 0u)
          << error.what();
    }
  }
}

TEST_F(Env, AMessageIsBoundedAndPrintable) {
  const std::string message = message_for("\x1b[31m" + std::string(10000, 'x'));
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_LT(message.size(), 200u);
}

}  // namespace
}  // namespace octavo
