// gpt-oss as it is published, experts in MXFP4 blocks, beside the same model with their values.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "octavo/base/error_testing_internal.h"
#include "octavo/model/decoder.h"
#include "octavo/model/model_testing_internal.h"

namespace octavo {
namespace {

using error_testing::expect_refused;

constexpr std::int64_t kHidden = 64, kExperts = 4, kHeads = 4, kHeadSize = 16, kVocabulary = 50;

std::uint64_t u(std::int64_t size) { return static_cast<std::uint64_t>(size); }

// Both forms of a model. 2 * mid == hidden: the shape of gate_up_proj does not tell how it lies.
class PublishedGptOss : public CheckpointTest {
 protected:
  void make(std::int64_t mid) {
    TinyModel common;
    common.add("model.embed_tokens.weight", {u(kVocabulary), u(kHidden)}, 0.0, 1.0);
    common.add("model.norm.weight", {u(kHidden)}, 1.0, 0.2);
    common.add("lm_head.weight", {u(kVocabulary), u(kHidden)}, 0.0, 0.2);
    const std::string at = "model.layers.0.", inside = at + "self_attn.", mlp = at + "mlp.";
    common.add(at + "input_layernorm.weight", {u(kHidden)}, 1.0, 0.2);
    common.add(at + "post_attention_layernorm.weight", {u(kHidden)}, 1.0, 0.2);
    const std::int64_t q = kHeads * kHeadSize, kv = q / 2;
    const std::tuple<const char*, std::int64_t, std::int64_t> linears[] = {{"q_proj", q, kHidden},
                                                                           {"k_proj", kv, kHidden},
                                                                           {"v_proj", kv, kHidden},
                                                                           {"o_proj", kHidden, q}};
    for (const auto& [name, out, in] : linears) {
      common.add(text(inside, name, ".weight"), {u(out), u(in)}, 0.0, 0.2);
      common.add(text(inside, name, ".bias"), {u(out)}, 0.0, 0.2);
    }
    common.add(inside + "sinks", {u(kHeads)}, 0.0, 1.0);
    common.add(mlp + "router.weight", {u(kExperts), u(kHidden)}, 0.0, 0.3);
    common.add(mlp + "router.bias", {u(kExperts)}, 0.0, 0.3);
    common.add(mlp + "experts.gate_up_proj_bias", {u(kExperts), u(2 * mid)}, 0.0, 0.3);
    common.add(mlp + "experts.down_proj_bias", {u(kExperts), u(kHidden)}, 0.0, 0.3);
    blocks = values = common.tensors;
    add_stack(mlp + "experts.gate_up_proj", 2 * mid, kHidden);
    add_stack(mlp + "experts.down_proj", kHidden, mid);
    config = common.config();
    const Json own = Json::object({{"model_type", "gpt_oss"},
                                   {"hidden_size", kHidden},
                                   {"intermediate_size", mid},
                                   {"num_hidden_layers", 1},
                                   {"head_dim", kHeadSize},
                                   {"num_local_experts", kExperts},
                                   {"num_experts_per_tok", 2},
                                   {"sliding_window", 4}});
    for (const auto& [key, value] : own.members()) config.set(key, value);
  }

  // Codes and E8M0 scales of rows in blocks of 32, and the values as [experts, in, out].
  void add_stack(const std::string& name, std::int64_t out, std::int64_t in) {
    constexpr std::array<float, 8> kMagnitudes{0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
    const std::int64_t rows = kExperts * out, each = in / 32;
    TestTensor codes{
        {name + "_blocks", safetensors::StoredType::u8, {u(kExperts), u(out), u(each), 16}},
        std::vector<std::byte>(u(rows * in / 2))};
    TestTensor scales{
        {name + "_scales", safetensors::StoredType::u8, {u(kExperts), u(out), u(each)}},
        std::vector<std::byte>(u(rows * each))};
    for (std::byte& byte : codes.bytes) byte = static_cast<std::byte>(random_() & 0xff);
    for (std::byte& byte : scales.bytes) byte = static_cast<std::byte>(121 + random_() % 4);
    std::vector<float> whole(u(rows * in));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t k = 0; k < in; ++k) {
        const std::int64_t element = row * in + k;
        const auto pair = static_cast<unsigned>(codes.bytes[u(element / 2)]);
        const unsigned code = element % 2 == 0 ? pair & 15U : pair >> 4;
        const int power = static_cast<int>(scales.bytes[u(element / 32)]) - 127;
        const float magnitude = std::ldexp(kMagnitudes[code & 7U], power);
        const std::int64_t expert = row / out;
        whole[u((expert * in + k) * out + row % out)] = code < 8 ? magnitude : -magnitude;
      }
    const auto bytes = std::as_bytes(std::span(whole));
    values.push_back({{name, safetensors::StoredType::f32, {u(kExperts), u(in), u(out)}},
                      {bytes.begin(), bytes.end()}});
    blocks.push_back(std::move(codes));
    blocks.push_back(std::move(scales));
  }

  std::string written(const std::string& name, const std::vector<TestTensor>& tensors) {
    Json json = config;
    if (&tensors == &blocks)
      json.set(
          "quantization_config",
          Json::object({{"quant_method", "mxfp4"},
                        {"modules_to_not_convert", Json::array({"model.layers.*.self_attn"})}}));
    save(name + "/config.json", json.dump());
    write_tensors(path(name + "/model.safetensors"), tensors);
    return path(name);
  }

  std::vector<TestTensor> blocks, values;
  Json config;

 private:
  std::mt19937 random_{5};
};

TEST_F(PublishedGptOss, LogitsAreThoseOfTheValues) {
  const std::vector<std::int32_t> ids{3, 14, 15, 9, 26, 5, 35, 8};
  for (const std::int64_t mid : {32, 96}) {
    SCOPED_TRACE(mid);
    make(mid);
    const Decoder published(written(text("blocks-", mid), blocks)),
        plain(written(text("values-", mid), values));
    const Tensor got = published.logits(ids), wanted = plain.logits(ids);
    float largest = 0.0F, off = 0.0F;
    for (std::size_t i = 0; i < got.span<float>().size(); ++i) {
      largest = std::max(largest, std::abs(wanted.span<float>()[i]));
      off = std::max(off, std::abs(got.span<float>()[i] - wanted.span<float>()[i]));
    }
    // As in decoder_test.cc: products in f32, sums in another order.
    EXPECT_LE(off, 1e-5F * largest);
    // Codes stay codes: of 32 values 17 bytes instead of 128.
    const std::int64_t stacks = kExperts * 3 * mid * kHidden;
    EXPECT_EQ(plain.nbytes() - published.nbytes(), stacks * 4 - stacks * 17 / 32);
  }
}

TEST_F(PublishedGptOss, MisshapenBlocksAreNamed) {
  make(96);
  for (TestTensor& one : blocks)
    if (one.plan.name.ends_with("down_proj_scales")) one.plan.shape = {kExperts, kHidden / 2, 6};
  const std::string folder = written("misshapen", blocks);
  expect_refused(ErrorCode::invalid_argument, "down_proj_blocks'",
                 [&] { (void)ModelFiles(folder); });
  make(96);
  std::erase_if(blocks, [](const TestTensor& one) { return has(one.plan.name, "down_proj_"); });
  const std::string less = written("less", blocks);
  expect_refused(ErrorCode::invalid_argument, "no tensor 'model.layers.0.mlp.experts.down_proj'",
                 [&] { (void)ModelFiles(less); });
}

}  // namespace
}  // namespace octavo
