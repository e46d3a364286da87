#include "octavo/checkpoint/gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/checkpoint_testing_internal.h"
#include "octavo/checkpoint/gguf/gguf_names.h"
#include "octavo/checkpoint/gguf/gguf_testing_internal.h"

namespace octavo {
namespace {

class GgufFile : public CheckpointTest {
 protected:
  [[nodiscard]] static std::vector<float> read(const CheckpointReader& model,
                                               const std::string& name, std::uint64_t first,
                                               std::uint64_t count) {
    std::vector<float> out(count);
    model.read(model.at(name), first * sizeof(float), std::as_writable_bytes(std::span(out)));
    return out;
  }
};

// Q8_0 with a scale of one: element i of row r is r, so that rows tell where they came from.
std::string numbered_rows(int rows, int cols) {
  std::string out;
  for (int row = 0; row < rows; ++row)
    for (int block = 0; block < cols / 32; ++block)
      out += gguf::le<std::uint16_t>(0x3C00) + std::string(32, static_cast<char>(row));
  return out;
}

gguf::TestFile one_layer() {
  const std::string q = numbered_rows(32, 32), k = numbered_rows(16, 32);
  gguf::TestFile file{.keys = gguf::llama_keys(), .tensors = {}};
  const auto add = [&](const char* name, const std::vector<std::uint64_t>& sizes,
                       std::uint32_t type, const std::string& data) {
    file.tensors.push_back(gguf::tensor(name, sizes, type, file.data.size()));
    file.data += data;
    file.data.resize((file.data.size() + 31) / 32 * 32, '\0');
  };
  add("blk.0.attn_q.weight", {32, 32}, 8, q);
  add("blk.0.attn_k.weight", {32, 16}, 8, k);
  add("blk.0.attn_v.weight", {32, 16}, 8, k);
  add("token_embd.weight", {32, 4}, 0, std::string(512, '\0'));
  return file;
}

TEST_F(GgufFile, LooksLikeTheModelsFolder) {
  const CheckpointReader model(save("m.gguf", one_layer().bytes()));
  EXPECT_TRUE(model.is_gguf());
  ASSERT_NE(model.find("model.layers.0.self_attn.q_proj.weight"), nullptr);
  ASSERT_NE(model.find("model.embed_tokens.weight"), nullptr);
  const StoredTensor& q = model.at("model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(q.entry->type, safetensors::StoredType::f32);
  EXPECT_EQ(model.type_in_file(q), "Q8_0");
  EXPECT_EQ(model.bytes_in_file(q), 32U * 34);
  const std::string config = model.config_text();
  EXPECT_TRUE(has(config, "\"architectures\": [\n    \"LlamaForCausalLM\"\n  ]")) << config;
  EXPECT_TRUE(has(config, "\"rms_norm_eps\": 1e-05")) << config;
  EXPECT_TRUE(has(config, "\"tie_word_embeddings\": true")) << config;
  EXPECT_TRUE(has(config, "\"vocab_size\": 4")) << config;
}

// llama.cpp's converter writes row 2 j + i of a head where the model has row i * half + j.
TEST_F(GgufFile, RowsOfQAndKAreInTheModelsOrder) {
  const CheckpointReader model(save("m.gguf", one_layer().bytes()));
  for (const char* const name : {"q_proj", "k_proj", "v_proj"}) {
    const std::string tensor = text("model.layers.0.self_attn.", name, ".weight");
    const int rows = name[0] == 'q' ? 32 : 16;
    for (int row = 0; row < rows; ++row) {
      const int head = row / 16, half = row % 16 / 8, at = row % 8;
      const int from = name[0] == 'v' ? row : head * 16 + 2 * at + half;
      const auto values = read(model, tensor, static_cast<std::uint64_t>(row) * 32, 32);
      EXPECT_EQ(values.front(), static_cast<float>(from)) << name << " " << row;
      EXPECT_EQ(values.back(), static_cast<float>(from)) << name << " " << row;
    }
  }
}

// Row blocks begin and end where they like.
TEST_F(GgufFile, AnyRangeIsTheSameBytes) {
  const CheckpointReader model(save("m.gguf", one_layer().bytes()));
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  const StoredTensor& tensor = model.at(name);
  std::vector<std::byte> all(tensor.nbytes());
  model.read(tensor, 0, all);
  for (std::uint64_t first = 0; first < all.size(); first += 97)
    for (std::uint64_t count : {1, 4, 5, 128, 1000, 2500}) {
      count = std::min<std::uint64_t>(count, all.size() - first);
      std::vector<std::byte> part(count);
      model.read(tensor, first, part);
      ASSERT_EQ(std::memcmp(part.data(), all.data() + first, count), 0) << first << " " << count;
    }
}

TEST_F(GgufFile, UnknownArchitecturesKeepTheirNames) {
  gguf::TestFile file = one_layer();
  file.keys[0] = gguf::text_key("general.architecture", "rwkv7");
  const CheckpointReader model(save("m.gguf", file.bytes()));
  EXPECT_NE(model.find("blk.0.attn_q.weight"), nullptr);
  EXPECT_EQ(model.config_text(), "null");
  ASSERT_FALSE(model.notes().empty());
  EXPECT_TRUE(has(model.notes().front(), "rwkv7"));
}

TEST_F(GgufFile, WhatCannotBeDecodedIsListedAndNotRead) {
  gguf::TestFile file{.keys = gguf::llama_keys(),
                      .tensors = {gguf::tensor("token_embd.weight", {256, 1}, 16, 0)},
                      .data = std::string(66, '\0')};
  const CheckpointReader model(save("m.gguf", file.bytes()));
  const StoredTensor& tensor = model.at("model.embed_tokens.weight");
  EXPECT_EQ(model.type_in_file(tensor), "IQ2_XXS");
  std::vector<std::byte> bytes(tensor.nbytes());
  EXPECT_TRUE(has(message_of([&] { model.read(tensor, 0, bytes); }, ErrorCode::unsupported),
                  "does not decode"));
}

TEST_F(GgufFile, HeadsThatDoNotFitAreRefused) {
  for (const std::uint32_t heads : {3U, 32U, 0x7FFFFFFFU}) {
    gguf::TestFile file = one_layer();
    file.keys[5] = gguf::u32_key("llama.attention.head_count", heads);
    const std::string path = save("m.gguf", file.bytes());
    EXPECT_TRUE(
        has(message_of([&] { const CheckpointReader model(path); }, ErrorCode::invalid_argument),
            "heads"))
        << heads;
  }
}

TEST_F(GgufFile, PartsOfAModelAreRefused) {
  gguf::TestFile file = one_layer();
  file.keys.push_back(gguf::key("split.count", 2, gguf::le<std::uint16_t>(3)));
  const std::string path = save("m.gguf", file.bytes());
  EXPECT_TRUE(has(message_of([&] { const CheckpointReader model(path); }, ErrorCode::unsupported),
                  "one of 3 parts"));
}

TEST_F(GgufFile, TwoTensorsOfOneNameAreRefused) {
  gguf::TestFile file = one_layer();
  file.tensors.push_back(gguf::tensor("model.embed_tokens.weight", {8}, 0, file.data.size()));
  file.data += std::string(32, '\0');
  const std::string path = save("m.gguf", file.bytes());
  EXPECT_TRUE(
      has(message_of([&] { const CheckpointReader model(path); }, ErrorCode::invalid_argument),
          "two tensors"));
}

TEST(GgufNames, GoBothWays) {
  for (const char* const name :
       {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
        "model.layers.17.self_attn.q_proj.weight", "model.layers.0.self_attn.k_norm.weight",
        "model.layers.3.mlp.down_proj.weight", "model.layers.3.self_attn.v_proj.bias",
        "model.layers.3.post_attention_layernorm.weight"})
    EXPECT_EQ(gguf::model_name(gguf::gguf_name(name)), name);
  for (const char* const name :
       {"", ".weight", "blk..attn_q.weight", "blk.x.attn_q.weight", "blk.0.attn_q", "blk.0.weight",
        "blk.0.attn_q.scale", "blk.12345678.attn_q.weight", "rope_freqs.weight"})
    EXPECT_EQ(gguf::model_name(name), "") << name;
}

TEST(GgufRopeRow, IsAPermutationOfEachHead) {
  std::vector<bool> seen(96, false);
  for (std::int64_t row = 0; row < 96; ++row) {
    const std::int64_t to = gguf::rope_row(row, 96, 3);
    EXPECT_EQ(to / 32, row / 32);
    EXPECT_FALSE(seen[static_cast<std::size_t>(to)]);
    seen[static_cast<std::size_t>(to)] = true;
  }
  EXPECT_EQ(gguf::rope_row(1, 96, 3), 2);
  EXPECT_EQ(gguf::rope_row(16, 96, 3), 1);
}

}  // namespace
}  // namespace octavo
