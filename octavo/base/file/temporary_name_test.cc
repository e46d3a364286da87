#include "octavo/base/file/temporary_name_internal.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace octavo {
namespace {

TEST(TemporaryName, NoTwoAreTheSame) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(seen.insert(temporary_name("x")).second);
}

TEST(TemporaryName, IsKnownAgainByTheNameItStandsFor) {
  const std::string wide(200, 'w');
  for (const std::string& name : {std::string("model-00001-of-00002.safetensors"), std::string("a"),
                                  std::string("a.b"), wide, wide + "x", std::string(64, 'w')}) {
    const std::string made = temporary_name(name);
    EXPECT_LE(made.size(), 255U);
    EXPECT_TRUE(is_temporary_name(made)) << made;
    for (const std::string& other :
         {std::string("model-00001-of-00002.safetensors"), std::string("a"), std::string("a.b"),
          std::string("b"), wide, wide + "x", std::string(64, 'w')})
      EXPECT_EQ(is_temporary_name_of(made, other), other == name) << made << " of " << other;
  }
}

TEST(TemporaryName, OthersAreNone) {
  for (const char* const name :
       {"", ".", "a.octavo-tmp", ".a.octavo", ".octavo-tmp.", "model.safetensors"})
    EXPECT_FALSE(is_temporary_name(name)) << name;
  for (const char* const name : {".a.octavo-tmp", ".a..octavo-tmp", "a.1.octavo-tmp", ".a.1.tmp"})
    EXPECT_FALSE(is_temporary_name_of(name, "a")) << name;
}

}  // namespace
}  // namespace octavo
