// Several processes make one folder: the bytes are those of one, whoever dies, stops or comes late.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <random>

#include "octavo/pipeline/shared_testing_internal.h"
#include "tests/support/sanitizer.h"

namespace octavo {
namespace {

// Times after which a claim is stale are short, so that takeovers are quick. On a machine that is
// too busy for the beats a living process is taken over, too: the work is then done twice, with the
// same bytes. Where a test is about order, it waits for what has to happen before, not for a time.
class SharedRunForkTest : public SharedTest {
 protected:
  // A sanitizer makes the work slow: what differs only in numbers is shown once under one.
  static int rounds() { return support::under_sanitizer() ? 4 : 20; }
  static std::vector<const char*> recipes() {
    if (support::under_sanitizer()) return {"nvfp4"};
    return {"nvfp4", "fp8", "fp8-block"};
  }
  // Waits until a name in the work folder ends so, or the work is done.
  void wait_for_work(std::string_view end) const {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (std::chrono::steady_clock::now() < latest) {
      if (std::filesystem::exists(path("out/config.json"))) return;
      std::error_code ignored;
      for (std::filesystem::directory_iterator at(path("out/octavo-work"), ignored), none;
           !ignored && at != none; at.increment(ignored))
        if (at->path().filename().string().ends_with(end)) return;
      usleep(1000);
    }
    FAIL() << "nothing in octavo-work ends in " << end;
  }
};

TEST_F(SharedRunForkTest, AnyNumberOfProcessesGivesTheSameBytes) {
  write_model();
  for (const char* const name : recipes()) {
    const auto whole = alone(recipe(name), std::string("alone-") + name);
    plan(recipe(name));
    for (const int world : {1, 2, 3, 8}) {
      std::filesystem::remove_all(path("out"));
      std::vector<pid_t> children;
      for (int rank = 0; rank < world; ++rank)
        children.push_back(start([&] { (void)share(sharing(rank, world)); }));
      for (const pid_t child : children) EXPECT_EQ(ended(child), 0) << name << " of " << world;
      EXPECT_EQ(contents_of(path("out")), whole) << name << " of " << world;
      EXPECT_FALSE(std::filesystem::exists(path("out/octavo-work")));
    }
  }
}

// One process in turn has everything: what it reports is what one call reports.
TEST_F(SharedRunForkTest, OneProcessReportsAll) {
  write_model();
  QuantizeCheckpointOptions options = recipe("nvfp4");
  options.plan.shard_bytes = 250'000;
  options.threads = 1;
  const CheckpointReport one = run("alone", options);
  plan(recipe("nvfp4"));
  const CheckpointReport report = share(sharing(1, 2));
  EXPECT_FALSE(report.finished_by_another);
  EXPECT_GT(report.files_written, 4);
  ASSERT_EQ(report.tensors.size(), one.tensors.size());
  for (std::size_t i = 0; i < one.tensors.size(); ++i)
    EXPECT_EQ(report.tensors[i].metrics, one.tensors[i].metrics) << one.tensors[i].name;
  EXPECT_EQ(report.provenance, one.provenance);
  EXPECT_EQ(contents_of(path("out")), contents_of(path("alone")));
  // Once more: it is complete.
  const CheckpointReport again = share(sharing(0, 2));
  EXPECT_TRUE(again.was_complete);
  EXPECT_EQ(again.files_written, 0);
}

TEST_F(SharedRunForkTest, OneOfThreeIsKilledAtARandomTime) {
  write_model();
  const auto whole = alone(recipe("nvfp4"));
  plan(recipe("nvfp4"));
  std::mt19937 random(33);
  int killed = 0;
  for (int round = 0; round < rounds(); ++round) {
    std::filesystem::remove_all(path("out"));
    std::vector<pid_t> children;
    for (int rank = 0; rank < 3; ++rank)
      children.push_back(start([&] { (void)share(sharing(rank, 3, 0.4)); }));
    wait_for_work("run.json");
    usleep(random() % 80'000);
    const auto victim = static_cast<std::size_t>(random() % 3);
    kill(children[victim], SIGKILL);
    expect_no_halves(whole);
    for (std::size_t i = 0; i < children.size(); ++i) {
      const int status = ended(children[i]);
      killed += status == -SIGKILL ? 1 : 0;
      EXPECT_TRUE(status == 0 || (i == victim && status == -SIGKILL)) << status;
    }
    EXPECT_EQ(contents_of(path("out")), whole) << "round " << round;
    EXPECT_FALSE(std::filesystem::exists(path("out/octavo-work")));
  }
  EXPECT_GE(killed, rounds() / 4);
}

// All die; one that comes later goes on where they were.
TEST_F(SharedRunForkTest, AllAreKilledAndOneGoesOn) {
  write_model();
  const auto whole = alone(recipe("fp8"));
  plan(recipe("fp8"));
  const auto dies_after = [&](int rank, int row_blocks) {
    QuantizeCheckpointOptions options = sharing(rank, 2, 0.3);
    int calls = 0;
    options.every_row_block = true;
    options.on_progress = [&](const Progress& at) {  // with a job in work
      if (!at.current.starts_with("waiting") && calls++ == row_blocks) kill(getpid(), SIGKILL);
      return true;
    };
    (void)share(options);
  };
  const pid_t first = start([&] { dies_after(0, 8); }), second = start([&] { dies_after(1, 11); });
  EXPECT_EQ(ended(first), -SIGKILL);
  EXPECT_EQ(ended(second), -SIGKILL);
  expect_no_halves(whole);
  EXPECT_FALSE(std::filesystem::exists(path("out/config.json")));
  // What they had in work is taken over, unless they died between a job's record and the next job.
  const CheckpointReport report = share(sharing(1, 2, 0.3));
  EXPECT_FALSE(report.finished_by_another);
  EXPECT_EQ(contents_of(path("out")), whole);
}

// A stopped process is taken over, and finds its job done when it goes on: no error, same bytes.
TEST_F(SharedRunForkTest, AStoppedProcessIsTakenOver) {
  write_model();
  const auto whole = alone(recipe("nvfp4"));
  plan(recipe("nvfp4"));
  const pid_t stopped = start([&] {
    QuantizeCheckpointOptions options = sharing(0, 2, 0.3);
    int calls = 0;
    options.every_row_block = true;
    options.on_progress = [&](const Progress& at) {
      if (!at.current.starts_with("waiting") && calls++ == 3) raise(SIGSTOP);
      return true;
    };
    (void)share(options);
  });
  int status = 0;
  waitpid(stopped, &status, WUNTRACED);
  ASSERT_TRUE(WIFSTOPPED(status));
  const CheckpointReport report = share(sharing(1, 2, 0.3));
  EXPECT_GE(report.files_taken_over, 1);
  EXPECT_EQ(contents_of(path("out")), whole);
  kill(stopped, SIGCONT);
  EXPECT_EQ(ended(stopped), 0);
  EXPECT_EQ(contents_of(path("out")), whole);
}

// Of two processes the other has all the work in hand; one that comes late helps.
TEST_F(SharedRunForkTest, ALateOneJoins) {
  write_model();
  const auto whole = alone(recipe("nvfp4"));
  plan(recipe("nvfp4"));
  const pid_t slow = start([&] {
    QuantizeCheckpointOptions options = sharing(0, 2);
    options.every_row_block = true;
    options.on_progress = [](const Progress&) { return usleep(40'000), true; };
    (void)share(options);
  });
  wait_for_work(".done.json");
  const CheckpointReport late = share(sharing(1, 2));
  EXPECT_GT(late.files_written, 0);
  EXPECT_EQ(ended(slow), 0);
  EXPECT_EQ(contents_of(path("out")), whole);
}

// The limit of the size of a file stands for a full disk: the process says so, and what is there
// is whole; another one finishes.
TEST_F(SharedRunForkTest, AFullDiskIsAnErrorAndNothingIsHalf) {
  write_model();
  const auto whole = alone(recipe("fp8-block"));
  plan(recipe("fp8-block"));
  const pid_t full = start([&] {
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit { 200'000, 200'000 };
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string said = refused(ErrorCode::io, sharing(0, 2));
    if (!has(said, "could not")) throw std::runtime_error("no error: " + said);
  });
  EXPECT_EQ(ended(full), 0);
  expect_no_halves(whole);
  (void)share(sharing(1, 2));
  EXPECT_EQ(contents_of(path("out")), whole);
}

}  // namespace
}  // namespace octavo
