#include "octavo/model/eval/hidden_states_internal.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "octavo/base/error.h"

namespace octavo::eval {
namespace {

// Rows that tell their place.
void fill(HiddenStates& states) {
  Tensor buffer;
  for (std::int64_t first = 0; first < states.rows(); first += 700) {
    const std::int64_t count = std::min<std::int64_t>(700, states.rows() - first);
    const View rows = states.fetch(first, count, buffer);
    auto* const data = static_cast<float*>(rows.data);
    std::iota(data, data + count * states.hidden(), static_cast<float>(first * states.hidden()));
    states.keep(first, rows);
  }
}

void expect_filled(const HiddenStates& states) {
  Tensor buffer;
  const View rows = states.fetch(5, 1500, buffer);
  const auto* const data = static_cast<const float*>(rows.data);
  for (std::int64_t i = 0; i < 1500 * states.hidden(); ++i)
    ASSERT_EQ(data[i], static_cast<float>(5 * states.hidden() + i));
}

TEST(HiddenStates, AreTheSameInMemoryAndInAFile) {
  const std::string folder = ::testing::TempDir(), saved = folder + "/octavo_hidden.f32";
  std::uint64_t hash = 0;
  for (const std::string& where : {std::string(), folder}) {
    HiddenStates states("eval", 2000, 8, where);
    EXPECT_EQ(states.is_in_memory(), where.empty());
    fill(states);
    expect_filled(states);
    const std::uint64_t this_hash = states.save(saved);
    if (hash != 0) {
      EXPECT_EQ(this_hash, hash);
    }
    hash = this_hash;
  }
  for (const std::string& where : {std::string(), folder}) {
    HiddenStates again("eval", 2000, 8, where);
    EXPECT_TRUE(again.load(saved, hash));
    expect_filled(again);
    EXPECT_FALSE(again.load(saved, hash + 1));
    EXPECT_FALSE(again.load(folder + "/octavo_missing", hash));
  }
  HiddenStates shorter("eval", 1999, 8, "");
  EXPECT_FALSE(shorter.load(saved, hash));
}

TEST(HiddenStates, LeaveNoFileBehind) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "octavo_hidden_states";
  std::filesystem::create_directory(folder);
  HiddenStates states("eval", 100, 8, folder.string());
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "the file has no name";
  std::filesystem::remove(folder);
}

TEST(HiddenStates, ADiskWithoutRoomIsSaid) {
  try {
    // More than any disk has.
    const HiddenStates states("eval", std::int64_t{1} << 40, 1 << 12, ::testing::TempDir());
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_NE(std::string(error.what()).find("--temporary"), std::string::npos) << error.what();
  }
  EXPECT_THROW(HiddenStates("eval", 10, 8, "/nowhere/at/all"), Error);
}

}  // namespace
}  // namespace octavo::eval
