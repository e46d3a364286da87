// What is kept of a deleted shard is enough to open and plan the checkpoint again.
#include "octavo/checkpoint/deleted_shards_internal.h"

#include "octavo/checkpoint/checkpoint_testing_internal.h"
#include "octavo/checkpoint/dialect/open_values.h"

namespace octavo {
namespace {

class DeletedShardsTest : public CheckpointTest {};

TestTensor bytes_of(const std::string& name, safetensors::StoredType type,
                    std::vector<std::uint64_t> shape, std::vector<std::byte> bytes) {
  return {{name, type, std::move(shape)}, std::move(bytes)};
}

// INT4 of compressed-tensors: decoding changes the header, and shapes are read as it is opened.
TEST_F(DeletedShardsTest, AQuantizedSourceOpensAgain) {
  constexpr std::int64_t kShape[] = {64, 128};
  std::vector<std::byte> shape(sizeof kShape);
  std::memcpy(shape.data(), kShape, sizeof kShape);
  std::filesystem::create_directory(root / "model");
  write_tensors(path("model/one.safetensors"),
                {bytes_of("q.weight_packed", safetensors::StoredType::i32, {64, 16},
                          std::vector<std::byte>(64 * 64, std::byte{0x91})),
                 random_tensor("q.weight_scale", {64, 4}, 1),
                 bytes_of("q.weight_shape", safetensors::StoredType::i64, {2}, shape)});
  write_tensors(path("model/two.safetensors"), {random_tensor("b", {4}, 3)});
  save("model/config.json", R"({"dtype": "bfloat16"})");
  save("model/model.safetensors.index.json", R"({"metadata": {"total_size": 4632}, "weight_map": {
      "q.weight_packed": "one.safetensors", "q.weight_scale": "one.safetensors",
      "q.weight_shape": "one.safetensors", "b": "two.safetensors"}})");
  const auto opened = [&] { return open_values(path("model"), OtherFiles::unused, path("kept")); };
  {
    const CheckpointReader before = opened();
    ASSERT_NE(before.find("q.weight"), nullptr);
    keep_shard_header(before.files()[0], path("kept"));
  }
  std::filesystem::remove(path("model/one.safetensors"));
  const CheckpointReader after = opened();
  EXPECT_EQ(after.at("q.weight").entry->shape, (std::vector<std::uint64_t>{64, 128}));
  std::vector<std::byte> some(8);
  EXPECT_TRUE(has(message_of([&] { after.read(after.at("q.weight"), 0, some); }, ErrorCode::io),
                  "was deleted as asked"));
  after.read(after.at("b"), 0, some);  // of the other shard
}

}  // namespace
}  // namespace octavo
