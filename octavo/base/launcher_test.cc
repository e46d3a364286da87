#include "octavo/base/launcher.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <string>

#include "octavo/base/error.h"

namespace octavo {
namespace {

class LauncherTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name : kAll) unsetenv(name);
  }
  void TearDown() override { SetUp(); }

  static RankOfWorld with(const std::map<std::string, std::string>& variables,
                          const GivenRank& given = {}) {
    for (const char* const name : kAll) unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    return rank_of_world("test", given);
  }
  static std::string refused(const std::map<std::string, std::string>& variables,
                             const GivenRank& given = {}) {
    try {
      (void)with(variables, given);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "";
  }
  static void expect(const RankOfWorld& got, int rank, int world, const std::string& launcher) {
    EXPECT_EQ(got.rank, rank);
    EXPECT_EQ(got.world, world);
    EXPECT_EQ(got.launcher, launcher);
  }

  static constexpr const char* kAll[] = {"RANK",
                                         "WORLD_SIZE",
                                         "TORCHELASTIC_RUN_ID",
                                         "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "PMI_RANK",
                                         "PMI_SIZE",
                                         "MV2_COMM_WORLD_RANK",
                                         "MV2_COMM_WORLD_SIZE",
                                         "SLURM_PROCID",
                                         "SLURM_STEP_NUM_TASKS",
                                         "SLURM_JOB_ID",
                                         "JOB_COMPLETION_INDEX"};
};

TEST_F(LauncherTest, FindsWhatEachLauncherSays) {
  expect(with({}), 0, 1, "");
  expect(with({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}}), 3, 8, "Slurm");
  expect(with({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}), 1, 2, "Open MPI");
  expect(with({{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}), 0, 4, "MPICH");
  expect(with({{"RANK", "5"}, {"WORLD_SIZE", "6"}, {"TORCHELASTIC_RUN_ID", "x"}}), 5, 6,
         "torchrun");
  expect(with({{"RANK", "5"}, {"WORLD_SIZE", "6"}}), 5, 6, "torch.distributed");
  // A batch script is no step, and half of a pair is none.
  expect(with({{"SLURM_PROCID", "0"}}), 0, 1, "");
  expect(with({{"RANK", "1"}}), 0, 1, "");
}

TEST_F(LauncherTest, TheInnermostCounts) {
  const std::map<std::string, std::string> slurm{{"SLURM_PROCID", "1"},
                                                 {"SLURM_STEP_NUM_TASKS", "2"}};
  auto both = slurm;
  both["RANK"] = "9";
  both["WORLD_SIZE"] = "16";
  expect(with(both), 1, 2, "Slurm");  // RANK may be anybody's
  both["TORCHELASTIC_RUN_ID"] = "run";
  expect(with(both), 9, 16, "torchrun");
}

// A script in an allocation exports RANK for all that it starts, also what is no step.
TEST_F(LauncherTest, RankInAnAllocationIsNotBelieved) {
  const std::map<std::string, std::string> script{
      {"SLURM_JOB_ID", "17"}, {"SLURM_PROCID", "0"}, {"RANK", "3"}, {"WORLD_SIZE", "4"}};
  expect(with(script), 0, 1, "");
  auto torchrun = script;
  torchrun["TORCHELASTIC_RUN_ID"] = "run";
  expect(with(torchrun), 3, 4, "torchrun");
}

TEST_F(LauncherTest, WhatIsGivenGoesBefore) {
  const std::map<std::string, std::string> slurm{{"SLURM_PROCID", "1"},
                                                 {"SLURM_STEP_NUM_TASKS", "2"}};
  expect(with(slurm, {.rank = 0, .world = 4}), 0, 4, "");
  EXPECT_EQ(with(slurm, {.rank = 0}).rank, 0);
  EXPECT_EQ(with(slurm, {.world = 7}).world, 7);
  expect(with({{"JOB_COMPLETION_INDEX", "2"}}, {.world = 3}), 2, 3, "Kubernetes");
  expect(with({{"JOB_COMPLETION_INDEX", "2"}}), 0, 1, "");
  // A broken variable does not matter where both are given.
  expect(with({{"SLURM_PROCID", "x"}, {"SLURM_STEP_NUM_TASKS", "2"}}, {.rank = 0, .world = 1}), 0,
         1, "");
}

TEST_F(LauncherTest, RefusesWhatContradictsItself) {
  EXPECT_NE(refused({{"SLURM_PROCID", "x"}, {"SLURM_STEP_NUM_TASKS", "2"}}).find("SLURM_PROCID"),
            std::string::npos);
  EXPECT_NE(refused({{"PMI_RANK", "-1"}, {"PMI_SIZE", "2"}}).find("PMI_RANK"), std::string::npos);
  EXPECT_NE(refused({{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}).find("PMI_SIZE"), std::string::npos);
  EXPECT_NE(refused({}, {.rank = 2, .world = 2}).find("0 to 1"), std::string::npos);
  EXPECT_NE(refused({}, {.rank = -1, .world = 2}).find("rank -1"), std::string::npos);
  EXPECT_NE(refused({}, {.rank = 1}).find("option world"), std::string::npos);
  EXPECT_NE(refused({}, {.world = 2}).find("option rank"), std::string::npos);
  EXPECT_NE(refused({}, {.rank = 0, .world = 0}).find("world of 0"), std::string::npos);
}

}  // namespace
}  // namespace octavo
