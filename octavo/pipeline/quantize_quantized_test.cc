// A quantized source goes straight to the target: the bytes are those of dequantizing it to bf16 on
// disk and quantizing that, which shares none of the code that decodes row blocks as they are read.
#include <gtest/gtest.h>

#include "octavo/checkpoint/dialect/open_values.h"
#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/pipeline_testing_internal.h"
#include "tests/support/sanitizer.h"

namespace octavo {
namespace {

class QuantizeQuantizedTest : public PipelineTest {
 protected:
  [[nodiscard]] std::map<std::string, std::string> weights_of(const std::string& folder) const {
    std::map<std::string, std::string> out;
    for (const auto& [name, content] : contents_of(path(folder)))
      if (name.ends_with(".safetensors") || name.ends_with(".index.json")) out[name] = content;
    return out;
  }
};

TEST_F(QuantizeQuantizedTest, LikeByWayOfACopy) {
  write_model();
  const struct {
    const char* recipe;
    Dialect dialect;
  } sources[] = {{"fp8-block", Dialect::deepseek},
                 {"fp8-channel", Dialect::compressed_tensors},
                 {"nvfp4", Dialect::modelopt},
                 {"mxfp4", Dialect::octavo}};
  for (const auto& from : sources) {
    const std::string source = text("source-", from.recipe);
    (void)run(source, recipe(from.recipe, from.dialect));
    (void)dequantize_checkpoint(path(source), path(source + "-bf16"), DType::bf16);
    std::vector<const char*> targets{"nvfp4", "fp8-block", "mxfp8"};
    if (support::under_sanitizer()) targets.resize(1);
    for (const char* const to : targets) {
      const std::string direct = text(from.recipe, "-", to), by_copy = direct + "-copy";
      const CheckpointReport report = quantize_checkpoint(path(source), path(direct), recipe(to));
      (void)quantize_checkpoint(path(source + "-bf16"), path(by_copy), recipe(to));
      EXPECT_EQ(weights_of(direct), weights_of(by_copy)) << direct;
      EXPECT_TRUE(std::any_of(report.notes.begin(), report.notes.end(), [](const auto& note) {
        return has(note, "the model is quantized");
      }));
      EXPECT_FALSE(has(content_of(path(direct + "/config.json")),
                       "weight_block_size\": [\n      "
                       "64"));
    }
  }
}

TEST_F(QuantizeQuantizedTest, NotWithoutARecipe) {
  write_model();
  (void)run("fp8", recipe("fp8-block"));
  EXPECT_TRUE(has(message_of([&] { (void)quantize_checkpoint(path("fp8"), path("twice")); },
                             ErrorCode::invalid_argument),
                  "quantized already"));
  EXPECT_FALSE(std::filesystem::exists(path("twice")));
}

// Any byte range, in any order.
TEST_F(QuantizeQuantizedTest, ReadsAnyRange) {
  write_model();
  (void)run("fp8", recipe("fp8-block", Dialect::deepseek));
  (void)dequantize_checkpoint(path("fp8"), path("bf16"), DType::bf16);
  const CheckpointReader decoded = open_values(path("fp8")), copy(path("bf16"));
  ASSERT_EQ(decoded.tensors().size(), copy.tensors().size());
  for (std::size_t i = 0; i < copy.tensors().size(); ++i) {
    const StoredTensor &a = decoded.tensors()[i], &b = copy.tensors()[i];
    ASSERT_EQ(a.name(), b.name());
    EXPECT_EQ(a.entry->shape, b.entry->shape);
    EXPECT_EQ(a.entry->type, b.entry->type);
    for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{2}, b.nbytes() / 2 - 6}) {
      std::vector<std::byte> got((b.nbytes() - offset) / 2), wanted(got.size());
      decoded.read(a, offset, got);
      copy.read(b, offset, wanted);
      EXPECT_TRUE(got == wanted) << a.name() << " from " << offset;
    }
  }
  EXPECT_FALSE(has(decoded.config_text(), "quantization_config"));
}

}  // namespace
}  // namespace octavo
