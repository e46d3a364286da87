#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "octavo/checkpoint/checkpoint_testing_internal.h"
#include "octavo/pipeline/output/claims_internal.h"

namespace octavo {
namespace {

using std::chrono::milliseconds;

class ClaimsForkTest : public CheckpointTest {
 protected:
  [[nodiscard]] Claims claims(const std::string& owner, std::int64_t stale_after = 60'000) const {
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

// Watched for longer than the time after which it would be stale. Its beats come eight times in
// that time: a machine that is too busy for all eight is too busy for a test of time.
TEST_F(ClaimsForkTest, ALiveOneIsNotTakenOver) {
  constexpr int kStaleAfter = 4000;
  Claims first = claims("first", kStaleAfter), second = claims("second", kStaleAfter);
  const auto claim = first.take("job");
  ASSERT_NE(claim, nullptr);
  const auto end = Claims::Clock::now() + milliseconds(kStaleAfter + kStaleAfter / 4);
  while (Claims::Clock::now() < end) {
    ASSERT_TRUE(second.look());
    EXPECT_TRUE(second.is_claimed("job"));
    ASSERT_EQ(second.take("job"), nullptr);
    usleep(20'000);
  }
  EXPECT_FALSE(claim->is_lost());
  EXPECT_EQ(second.taken_over(), 0);
}

// Stopped, it writes nothing: it becomes stale however slow the machine is. Nothing here has to
// happen within a time, but for those that say that something never happened.
TEST_F(ClaimsForkTest, ADeadOneIsTakenOverOnceAndAStoppedOneSeesIt) {
  constexpr milliseconds kStaleAfter{100}, kNever{60'000};
  const auto until = [&](const std::function<bool()>& happened) {
    const auto end = Claims::Clock::now() + kNever;
    while (Claims::Clock::now() < end) {
      if (happened()) return true;
      usleep(1000);
    }
    return false;
  };
  const pid_t child = fork();
  if (child == 0) {
    bool lost = false;
    {
      Claims mine = claims("dead", kStaleAfter.count());
      const auto claim = mine.take("job");
      raise(SIGSTOP);
      lost = until([&] { return claim->is_lost(); });
    }  // its thread is joined: the thread sanitizer asks for that
    _exit(lost ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  ASSERT_TRUE(WIFSTOPPED(status));
  Claims a = claims("a", kStaleAfter.count()), b = claims("b", kStaleAfter.count());
  ASSERT_TRUE(a.look() && b.look());
  EXPECT_EQ(a.take("job"), nullptr);  // seen for the first time
  EXPECT_EQ(b.take("job"), nullptr);
  EXPECT_EQ(a.observe("job"), "dead");
  std::unique_ptr<Claim> taken;
  ASSERT_TRUE(until([&] { return (taken = a.take("job")) != nullptr; }));
  EXPECT_EQ(a.taken_over(), 1);
  std::this_thread::sleep_for(2 * kStaleAfter);  // the first claim is stale for b, too
  EXPECT_EQ(b.take("job"), nullptr);             // the number that it would take exists
  ASSERT_TRUE(b.look());
  EXPECT_EQ(b.take("job"), nullptr);  // and that claim is new to it
  EXPECT_EQ(b.taken_over(), 0);
  kill(child, SIGCONT);
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(taken->is_lost());
}

// The folder was removed and made again, by a run that began since: its claim has the same name,
// and is neither written over nor given back by who had it before.
TEST_F(ClaimsForkTest, OneOfANewRunIsLeftAlone) {
  const std::filesystem::path file = root / "job.0.claim";
  const pid_t child = fork();
  if (child == 0) {
    int status = 1;
    {
      Claims mine = claims("before", 80);
      const auto claim = mine.take("job");
      std::filesystem::remove(file);
      std::ofstream(file) << "another at 1, 0 bytes\n";
      for (int i = 0; i < 30'000 && !claim->is_lost(); ++i) usleep(1000);
      status = claim->is_lost() ? 0 : 1;
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  std::string content;
  std::getline(std::ifstream(file), content);
  EXPECT_EQ(content, "another at 1, 0 bytes");
}

// Numbers that no run comes to: the next one would not be a number.
TEST_F(ClaimsForkTest, HostileNumbersAreNoClaims) {
  for (const char* const name :
       {"x.2147483647.claim", "x.2147483646.claim", "x.99999999999999999999.claim"})
    std::ofstream(root / name) << "?";
  Claims mine = claims("me", 10);
  ASSERT_TRUE(mine.look());
  EXPECT_FALSE(mine.is_claimed("x"));
  EXPECT_NE(mine.take("x"), nullptr);
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
