// Fuzz target of parse_plan_file. A plan file is untrusted: any input gives a plan whose files have
// plain names and whose sums stay in range, or one clean error.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/file/plan_file.h"

namespace {

// Not assert: release builds are fuzzed too.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const octavo::PlanFile file = octavo::parse_plan_file(text, "plan.json");
    require(!file.shards.empty(), "a plan has no file");
    require(file.work == octavo::kPlanOfQuantize || file.work == octavo::kPlanOfConvert,
            "the work is not known");
    std::uint64_t bytes = 0;
    for (const octavo::ShardWork& shard : file.shards) {
      require(shard.file.find('/') == std::string::npos, "a file has a folder");
      require(shard.file != "..", "a file is a folder");
      require(!__builtin_add_overflow(bytes, shard.bytes(), &bytes), "the bytes overflow");
    }
    for (const int world : {1, 3, 64}) {
      const octavo::WorldBalance balance = octavo::balance_of(file.shards, world);
      require(balance.bytes == bytes, "a file is on no rank, or on two");
      require(balance.most_bytes <= bytes, "a rank has more than there is");
    }
  } catch (const octavo::Error& error) {
    const std::string_view message = error.what();
    require(message.size() < 800, "the message grows with the input");
    for (const char c : message) require(c >= ' ' && c <= '~', "the message is not printable");
  }
  return 0;
}
