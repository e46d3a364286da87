#include "octavo/checkpoint/expert_stack.h"

#include <gtest/gtest.h>

#include "octavo/checkpoint/checkpoint_testing_internal.h"

namespace octavo {
namespace {

class ExpertStackTest : public CheckpointTest {
 protected:
  ExpertStack stack(std::vector<std::uint64_t> up, std::vector<std::uint64_t> down,
                    bool bias = false) const {
    std::vector<TestTensor> tensors{random_tensor("m.experts.gate_up_proj", std::move(up), 1),
                                    random_tensor("m.experts.down_proj", std::move(down), 2)};
    if (bias) tensors.push_back(random_tensor("m.experts.gate_up_proj_bias", {2, 16}, 3));
    write_tensors(path("m.safetensors"), tensors);
    const CheckpointReader reader(path("m.safetensors"));
    const ExpertStack down_stack = expert_stack(reader, reader.at("m.experts.down_proj"));
    const ExpertStack out = expert_stack(reader, reader.at("m.experts.gate_up_proj"));
    EXPECT_EQ(out.known, down_stack.known);
    EXPECT_EQ(out.in_out, down_stack.in_out);
    EXPECT_TRUE(out.gated && !down_stack.gated);
    return out;
  }
};

TEST_F(ExpertStackTest, OrientationFollowsFromBothShapes) {
  const ExpertStack in_out = stack({2, 8, 16}, {2, 8, 8});  // even where hidden = intermediate
  EXPECT_TRUE(in_out.known && in_out.in_out && !in_out.interleaved);
  const ExpertStack out_in = stack({2, 16, 8}, {2, 8, 8});
  EXPECT_TRUE(out_in.known && !out_in.in_out);
  EXPECT_TRUE(stack({2, 8, 16}, {2, 8, 8}, true).interleaved);
  EXPECT_FALSE(stack({2, 8, 12}, {2, 8, 8}).known);
}

TEST_F(ExpertStackTest, MatricesHaveTheNamesThatLoadersHave) {
  const ExpertStack up{.known = true, .gated = true}, down{.known = true};
  const Shape shape{3, 16, 8};
  EXPECT_EQ(matrix_count(up, shape), 6);
  EXPECT_EQ(matrix_count(down, {3, 8, 8}), 3);
  EXPECT_EQ(matrix_count(up, {3, 15, 8}), 0);
  EXPECT_EQ(matrix_count(up, {16, 8}), 0);
  const ExpertMatrix gate = expert_matrix(up, "m.experts.gate_up_proj", shape, 2),
                     last = expert_matrix(up, "m.experts.gate_up_proj", shape, 5),
                     flat = expert_matrix(down, "m.experts.down_proj", {3, 8, 8}, 2);
  EXPECT_EQ(gate.module, "m.experts.1.gate_proj");
  EXPECT_EQ(gate.first, 0);
  EXPECT_EQ(last.module, "m.experts.2.up_proj");
  EXPECT_EQ(last.first, 8);
  EXPECT_EQ(last.shape, (Shape{8, 8}));
  EXPECT_EQ(flat.module, "m.experts.2.down_proj");
  EXPECT_EQ(flat.expert, 2);
  const ExpertStack transposed{.known = true, .in_out = true, .gated = true};
  EXPECT_EQ(expert_matrix(transposed, "m.experts.gate_up_proj", {3, 8, 32}, 1).shape,
            (Shape{16, 8}));
}

}  // namespace
}  // namespace octavo
