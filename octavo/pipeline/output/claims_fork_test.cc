#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "octavo/checkpoint/checkpoint_testing_internal.h"
#include "octavo/pipeline/output/claims_internal.h"

namespace octavo {
namespace {

using std::chrono::milliseconds;

class ClaimsForkTest : public CheckpointTest {
 protected:
  [[nodiscard]] Claims claims(const std::string& owner, int stale_after = 60'000) const {
    return {root.string(), owner, milliseconds(stale_after)};
  }
  static int tries_of(const std::filesystem::path& folder, int round) {
    int count = 0;
    for (int i = 0; i < 8; ++i)
      count += std::filesystem::exists(folder / text(round, "-", i)) ? 1 : 0;
    return count;
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& file : std::filesystem::directory_iterator(root))
      out.push_back(file.path().filename());
    return out;
  }
};

TEST_F(ClaimsForkTest, OneOfManyGetsIt) {
  const std::filesystem::path tried = root.string() + "-tried";
  std::filesystem::create_directory(tried);
  for (int round = 0; round < 10; ++round) {
    const std::string job = text("job", round);
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        Claims mine = claims(text("p", i));
        const bool looked = mine.look();
        auto claim = mine.take(job);
        const int code = !looked ? 2 : claim ? 1 : 0;
        std::ofstream(tried / text(round, "-", i)) << "?";
        while (claim && tries_of(tried, round) < 8) usleep(1000);  // held until all have tried
        claim.reset();
        _exit(code);
      }
      children.push_back(child);
    }
    int winners = 0;
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      ASSERT_TRUE(WIFEXITED(status));
      winners += WEXITSTATUS(status);
    }
    EXPECT_EQ(winners, 1);
  }
  EXPECT_TRUE(names().empty());  // all are given back
  std::filesystem::remove_all(tried);
}

TEST_F(ClaimsForkTest, ALiveOneIsNotTakenOver) {
  Claims first = claims("first", 200), second = claims("second", 200);
  const auto claim = first.take("job");
  ASSERT_NE(claim, nullptr);
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(second.look());
    EXPECT_TRUE(second.is_claimed("job"));
    EXPECT_EQ(second.take("job"), nullptr);
    usleep(20'000);
  }
  EXPECT_FALSE(claim->is_lost());
  EXPECT_EQ(second.taken_over(), 0);
}

TEST_F(ClaimsForkTest, ADeadOneIsTakenOverOnceAndAStoppedOneSeesIt) {
  const pid_t child = fork();
  if (child == 0) {
    Claims mine = claims("dead", 100);
    const auto claim = mine.take("job");
    raise(SIGSTOP);
    usleep(200'000);
    _exit(claim->is_lost() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  Claims a = claims("a", 100), b = claims("b", 100);
  ASSERT_TRUE(a.look() && b.look());
  EXPECT_EQ(a.take("job"), nullptr);  // seen for the first time
  EXPECT_EQ(b.take("job"), nullptr);
  EXPECT_EQ(a.observe("job"), "dead");
  usleep(150'000);
  const auto taken = a.take("job");
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(a.taken_over(), 1);
  EXPECT_EQ(b.take("job"), nullptr);  // the number that it would take exists
  ASSERT_TRUE(b.look());
  EXPECT_EQ(b.take("job"), nullptr);  // and that claim is new to it
  kill(child, SIGCONT);
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(taken->is_lost());
}

TEST_F(ClaimsForkTest, OtherFilesAreNoClaims) {
  for (const char* const name : {"x.claim", ".claim", "x.-1.claim", "x.1x.claim", "x.done.json"})
    std::ofstream(root / name) << "?";
  Claims mine = claims("me");
  ASSERT_TRUE(mine.look());
  EXPECT_FALSE(mine.is_claimed("x"));
  EXPECT_TRUE(mine.is_done("x"));
  EXPECT_NE(mine.take("y"), nullptr);
  std::filesystem::remove_all(root);
  EXPECT_FALSE(mine.look());
  EXPECT_TRUE(has(message_of([&] { (void)mine.take("z"); }, ErrorCode::io), "could not claim"));
}

}  // namespace
}  // namespace octavo
