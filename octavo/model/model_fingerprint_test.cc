#include <gtest/gtest.h>

#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/checkpoint_testing_internal.h"
#include "octavo/model/model_fingerprint_internal.h"

namespace octavo {
namespace {

class ModelFingerprint : public CheckpointTest {
 protected:
  std::uint64_t of(const std::vector<TestTensor>& tensors) {
    const std::string file = path(text("model-", ++files_, ".safetensors"));
    write_tensors(file, tensors);
    return model_fingerprint(CheckpointReader(file));
  }

 private:
  int files_ = 0;
};

TEST_F(ModelFingerprint, TellsModelsOfOneShapeApart) {
  const auto model = [](unsigned seed) {
    return std::vector<TestTensor>{random_tensor("a.weight", {64, 96}, seed),
                                   random_tensor("b.weight", {64, 96}, seed + 1)};
  };
  EXPECT_EQ(of(model(1)), of(model(1)));
  EXPECT_NE(of(model(1)), of(model(5)));
  // The same values in the other tensor.
  std::vector<TestTensor> swapped = model(1);
  std::swap(swapped[0].bytes, swapped[1].bytes);
  EXPECT_NE(of(model(1)), of(swapped));
}

TEST_F(ModelFingerprint, SeesEveryByteOfASmallTensorAndTheEndsOfALargeOne) {
  for (const std::uint64_t rows : {std::uint64_t{5}, std::uint64_t{1000}}) {
    const std::vector<TestTensor> model{random_tensor("a.weight", {rows, 100}, 1)};
    const std::uint64_t before = of(model);
    const std::size_t bytes = model[0].bytes.size();
    for (std::size_t at = 0; at < bytes; at += rows == 5 ? 37 : bytes - 1) {
      std::vector<TestTensor> other = model;
      other[0].bytes[at] ^= std::byte{1};
      EXPECT_NE(of(other), before) << at;
    }
  }
}

TEST_F(ModelFingerprint, TakesEmptyTensors) {
  EXPECT_NE(of({random_tensor("a.weight", {0, 4}, 1)}), of({random_tensor("a.weight", {4, 0}, 1)}));
}

}  // namespace
}  // namespace octavo
