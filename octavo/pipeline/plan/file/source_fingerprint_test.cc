#include <gtest/gtest.h>

#include <set>

#include "octavo/checkpoint/dialect/open_values.h"
#include "octavo/pipeline/pipeline_testing_internal.h"
#include "octavo/pipeline/plan/file/source_fingerprint_internal.h"

namespace octavo {
namespace {

class SourceSampleTest : public PipelineTest {
 protected:
  [[nodiscard]] std::string sample(const std::string& model = "model") const {
    return source_sample(open_values(path(model)));
  }
  // Changes one byte of a tensor, and puts it back when `then` has looked.
  void with_byte(const std::string& model, const std::string& tensor, std::uint64_t at,
                 const std::function<void()>& then) const {
    const CheckpointReader source(path(model));
    const StoredTensor& stored = source.at(tensor);
    const safetensors::FileReader& file = source.files()[stored.file];
    const std::string before = content_of(file.path());
    std::string changed = before;
    changed[file.header().data_begin + stored.entry->begin + at] ^= 1;
    const std::string name = model + "/" + std::filesystem::path(file.path()).filename().string();
    save(name, changed);
    then();
    save(name, before);
  }
};

TEST_F(SourceSampleTest, SeesTheBeginningAndTheEndOfEveryTensor) {
  write_model();
  const std::string before = sample();
  const CheckpointReader source(path("model"));
  for (const StoredTensor& tensor : source.tensors())
    for (const std::uint64_t at : {std::uint64_t{0}, tensor.nbytes() - 1})
      with_byte("model", tensor.name(), at,
                [&] { EXPECT_NE(sample(), before) << tensor.name() << " at " << at; });
  EXPECT_EQ(sample(), before);
}

// Codes and scales of a quantized model, not the values that they stand for.
TEST_F(SourceSampleTest, SeesWhatAQuantizedModelHasInItsFiles) {
  write_model();
  (void)run("fp8", recipe("fp8-block", Dialect::deepseek));
  ASSERT_TRUE(open_values(path("fp8")).is_decoded());
  const std::string before = sample("fp8");
  const CheckpointReader stored(path("fp8"));
  for (const StoredTensor& tensor : stored.tensors())
    with_byte("fp8", tensor.name(), tensor.nbytes() - 1,
              [&] { EXPECT_NE(sample("fp8"), before) << tensor.name(); });
}

TEST_F(SourceSampleTest, ACopyHasTheSame) {
  write_model();
  std::filesystem::copy(root / "model", root / "copy");
  EXPECT_EQ(sample("copy"), sample());
  EXPECT_EQ(source_sample(CheckpointReader(path("model")), 1),
            source_sample(CheckpointReader(path("model")), 7));
}

// 16 places of 1 KiB of a matrix of 640 KiB: a byte between them is not seen, and others are.
TEST_F(SourceSampleTest, ASampleIsNotTheWhole) {
  write_model();
  const std::string before = sample(), tensor = "model.layers.0.mlp.up_proj.weight";
  with_byte("model", tensor, 2048, [&] { EXPECT_EQ(sample(), before); });
  const std::uint64_t last = 1280 * 256 * 2 - 1024;
  for (std::uint64_t place = 0; place < 16; ++place)
    with_byte("model", tensor, last * place / 15 + 500, [&] { EXPECT_NE(sample(), before); });
}

// Files of very many tensors: the time is bounded, and each tensor still has its place.
TEST_F(SourceSampleTest, ManyTensorsShareTheirFilesPlaces) {
  std::vector<TestTensor> tensors;
  for (int i = 0; i < 6000; ++i)
    tensors.push_back(random_tensor(text("t", i, ".weight"), {8, 96}, static_cast<unsigned>(i)));
  std::filesystem::create_directory(root / "model");
  write_tensors(path("model/model.safetensors"), tensors);
  const std::string before = sample();
  int seen = 0;
  for (const int i : {17, 3001, 5999})
    for (const std::uint64_t at : {0, 300, 1535})
      with_byte("model", text("t", i, ".weight"), at, [&] { seen += sample() != before ? 1 : 0; });
  EXPECT_GE(seen, 7);  // of 9: 2 or 3 places of 1 KiB each in 1.5 KiB
}

}  // namespace
}  // namespace octavo
