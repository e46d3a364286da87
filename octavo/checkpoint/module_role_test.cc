#include "octavo/checkpoint/module_role.h"

#include <gtest/gtest.h>

#include "octavo/checkpoint/checkpoint_testing_internal.h"

namespace octavo {
namespace {

Role role(std::string_view name, const std::vector<std::uint64_t>& shape = {64, 64},
          const Json& config = {}) {
  return role_of(name, shape, config).role;
}

TEST(ModuleRole, KnowsLinears) {
  for (const char* const name :
       {"model.layers.0.self_attn.q_proj.weight", "model.layers.31.mlp.gate_proj.weight",
        "encoder.layer.0.attention.self.query.weight",
        "encoder.layer.0.attention.output.dense.weight", "encoder.layer.5.output.dense.weight",
        "model.layers.3.mlp.experts.17.down_proj.weight",
        "model.layers.0.self_attn.kv_a_proj_with_mqa.weight", "layers.0.attention.wq.weight",
        "model.layers.0.block_sparse_moe.experts.3.w1.weight",
        "transformer.h.0.attn.c_attn.weight"})
    EXPECT_EQ(role(name), Role::linear) << name;
}

TEST(ModuleRole, LeavesAdaptersAndStateSpacesAlone) {
  for (const char* const name :
       {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.layers.0.mlp.up_proj.lora_B.default.weight",
        "base_model.model.model.embed_tokens.lora_embedding_A"})
    EXPECT_EQ(role(name), Role::adapter) << name;
  for (const char* const name :
       {"backbone.layers.0.mixer.in_proj.weight", "backbone.layers.0.mixer.x_proj.weight",
        "backbone.layers.0.mixer.dt_proj.weight", "backbone.layers.0.mixer.A_log",
        "backbone.layers.0.mixer.conv1d.weight", "backbone.layers.0.mixer.D",
        "model.layers.3.mamba.in_proj.weight", "model.layers.3.mamba.x_proj.weight"})
    EXPECT_EQ(role(name), Role::state_space) << name;
  // Linears whose names are near: a Mamba layer's way out, an attention's in_proj, a LoRA's base.
  for (const char* const name :
       {"backbone.layers.0.mixer.out_proj.weight", "encoder.layers.0.self_attn.in_proj.weight",
        "model.layers.0.self_attn.q_proj.base_layer.weight",
        "model.layers.0.self_attn.kv_a_proj_with_mqa.weight"})
    EXPECT_EQ(role(name), Role::linear) << name;
}

TEST(ModuleRole, LeavesAloneWhatEveryRecipeDoes) {
  const std::vector<std::pair<const char*, Role>> known{
      {"model.embed_tokens.weight", Role::embedding},
      {"embeddings.word_embeddings.weight", Role::embedding},
      {"embeddings.token_type_embeddings.weight", Role::embedding},
      {"transformer.wte.weight", Role::embedding},
      {"shared.weight", Role::embedding},
      {"embeddings.position_embeddings.weight", Role::position},
      {"transformer.wpe.weight", Role::position},
      {"lm_head.weight", Role::head},
      {"output.weight", Role::head},
      {"score.weight", Role::head},
      {"classifier.weight", Role::head},
      {"pooler.dense.weight", Role::head},
      {"cls.predictions.decoder.weight", Role::head},
      {"model.layers.0.mlp.gate.weight", Role::router},
      {"model.layers.0.block_sparse_moe.gate.weight", Role::router},
      {"model.layers.0.mlp.router.weight", Role::router},
      {"model.layers.0.mlp.shared_expert_gate.weight", Role::router},
      {"visual.blocks.0.attn.qkv.weight", Role::vision},
      {"model.vision_tower.layers.0.q_proj.weight", Role::vision},
  };
  for (const auto& [name, wanted] : known) {
    EXPECT_EQ(role(name), wanted) << name;
    EXPECT_FALSE(role_of(name, {64, 64}, {}).why.empty()) << name;
  }
  EXPECT_EQ(role("model.norm.weight", {64}), Role::norm);
  EXPECT_EQ(role("encoder.layer.0.output.LayerNorm.weight", {64}), Role::norm);
  EXPECT_EQ(role("model.layers.0.self_attn.q_proj.bias", {64}), Role::bias);
  EXPECT_EQ(role("patch_embed.proj.weight", {64, 3, 14, 14}), Role::conv);
  EXPECT_EQ(role("x.conv1d.weight", {64, 1, 4}), Role::conv);
  EXPECT_EQ(role("strange", {64, 64}), Role::other);
}

// Name components count whole: a name that only contains one is a Linear.
TEST(ModuleRole, PartsOfNameComponentsDecideNothing) {
  for (const char* const name :
       {"l.0.normal_proj.weight", "l.0.converter.weight", "l.0.normalizer_proj.weight",
        "l.0.conversation.q_proj.weight", "l.0.composition.weight", "l.0.reembed_proj.weight"})
    EXPECT_EQ(role(name), Role::linear) << name;
  for (const char* const name :
       {"l.0.layer_norm1.weight", "l.0.RMSNorm.weight", "h.0.q_norm.weight", "l.0.norm_2.weight",
        "l.0.post_attention_layernorm.weight"})
    EXPECT_EQ(role(name), Role::norm) << name;
  EXPECT_EQ(role("l.0.conv1d.weight"), Role::conv);
  EXPECT_EQ(role("l.0.rotary_emb.inv.weight"), Role::position);
}

TEST(ModuleRole, AsksTheConfig) {
  const Json gpt2 = parse_json(R"({"model_type": "gpt2"})", "");
  EXPECT_EQ(role("h.0.attn.c_attn.weight", {64, 192}, gpt2), Role::other);  // stored [in, out]
  const Json tied = parse_json(R"({"tie_word_embeddings": true})", "");
  EXPECT_TRUE(has(role_of("lm_head.weight", {64, 64}, tied).why, "tied"));
}

TEST(ModuleRole, StacksOfExperts) {
  EXPECT_EQ(role("model.layers.0.mlp.experts.gate_up_proj", {4, 64, 128}), Role::expert_stack);
  EXPECT_EQ(role("model.layers.0.mlp.experts.gate_up_proj_bias", {4, 128}), Role::bias);
}

TEST(ModuleRole, FusionKeys) {
  const auto same = [](std::string_view a, std::string_view b) {
    return !fusion_key(a).empty() && fusion_key(a) == fusion_key(b);
  };
  EXPECT_TRUE(same("l.0.self_attn.q_proj", "l.0.self_attn.v_proj"));
  EXPECT_FALSE(same("l.0.self_attn.q_proj", "l.1.self_attn.q_proj"));
  EXPECT_TRUE(same("l.0.mlp.gate_proj", "l.0.mlp.up_proj"));
  EXPECT_FALSE(same("l.0.mlp.gate_proj", "l.0.mlp.down_proj"));
  EXPECT_TRUE(same("l.0.attn.q_a_proj", "l.0.attn.kv_a_proj_with_mqa"));
  EXPECT_TRUE(same("encoder.layer.0.attention.self.query", "encoder.layer.0.attention.self.key"));
  EXPECT_TRUE(same("l.0.mlp.experts.0.gate_proj", "l.0.mlp.experts.31.up_proj"));
  EXPECT_TRUE(same("l.0.mlp.experts.0.w2", "l.0.mlp.experts.1.w2"));
  EXPECT_FALSE(same("l.0.mlp.experts.0.gate_proj", "l.0.mlp.experts.0.down_proj"));
  EXPECT_FALSE(same("l.0.mlp.experts.0.gate_proj", "l.0.mlp.shared_expert.gate_proj"));
  EXPECT_EQ(fusion_key("l.0.self_attn.o_proj"), "");
}

TEST(ModuleRole, GroupsAreLoadedAsOne) {
  EXPECT_EQ(group_key("l.0.attn.q_proj"), fusion_key("l.0.attn.v_proj"));
  EXPECT_EQ(group_key("l.0.mlp.experts.0.gate_proj"), group_key("l.0.mlp.experts.7.down_proj"));
  EXPECT_EQ(group_key("l.0.mlp.experts.gate_up_proj"), group_key("l.0.mlp.experts.down_proj"));
  EXPECT_NE(group_key("l.0.mlp.experts.0.w2"), group_key("l.1.mlp.experts.0.w2"));
  EXPECT_NE(group_key("l.0.mlp.shared_experts.up_proj"), group_key("l.0.mlp.experts.0.up_proj"));
  EXPECT_EQ(group_key("l.0.mlp.down_proj"), "");
}

TEST(ModuleRole, OnlyTheLastPartMayEndWithinABlock) {
  EXPECT_EQ(fused_place("l.0.self_attn.q_proj"), FusedPlace::inner);
  EXPECT_EQ(fused_place("l.0.self_attn.v_proj"), FusedPlace::last);
  EXPECT_EQ(fused_place("l.0.mlp.gate_proj"), FusedPlace::inner);
  EXPECT_EQ(fused_place("l.0.self_attn.o_proj"), FusedPlace::alone);
  EXPECT_EQ(fused_place("l.0.self_attn.q_a_proj"), FusedPlace::inner);
  EXPECT_EQ(fused_place("l.0.self_attn.kv_a_proj_with_mqa"), FusedPlace::replicated_last);
  EXPECT_EQ(fused_place("l.0.mlp.experts.3.down_proj"), FusedPlace::inner);
}

TEST(ModuleRole, WhatHoldsAStack) {
  EXPECT_EQ(holder_of("model.layers.0.mlp.experts.gate_up_proj"), "model.layers.0.mlp.experts");
  EXPECT_EQ(holder_of("l.experts.down_proj.weight"), "l.experts");
  EXPECT_EQ(holder_of("alone"), "");
}

TEST(NaturalLess, NumbersByValue) {
  EXPECT_TRUE(natural_less("layers.9.x", "layers.10.x"));
  EXPECT_FALSE(natural_less("layers.10.x", "layers.9.x"));
  EXPECT_TRUE(natural_less("a", "b"));
  EXPECT_TRUE(natural_less("a", "a1"));
  EXPECT_FALSE(natural_less("a1", "a1"));
  EXPECT_TRUE(natural_less("a01", "a1") != natural_less("a1", "a01"));
}

}  // namespace
}  // namespace octavo
