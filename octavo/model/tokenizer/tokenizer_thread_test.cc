#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "octavo/model/tokenizer/tokenizer.h"

namespace octavo {
namespace {

TEST(TokenizerThreads, ShareOneTokenizer) {
  if (const std::string why = Tokenizer::why_unavailable(); !why.empty()) GTEST_SKIP() << why;
  const Tokenizer tokenizer = Tokenizer::from_json(
      R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},)"
      R"("model":{"type":"BPE","vocab":{"a":0,"b":1,"Ġ":2,"ab":3},"merges":["a b"]}})");
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 200; ++i) {
        const std::string text = std::string(static_cast<std::size_t>(thread + i), 'a') + " ab";
        const std::vector<std::int32_t> ids = tokenizer.encode(text);
        EXPECT_EQ(ids.size(), static_cast<std::size_t>(thread + i) + 2);
        EXPECT_EQ(tokenizer.decode(ids), text);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace octavo
