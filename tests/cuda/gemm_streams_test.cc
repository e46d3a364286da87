// Stream-K GEMM, in which one cluster hands over partial sums to the next: in replayed graphs, and
// with a caller's workspace. Bits are those of the plain call.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "tests/cuda/gemm_on_device.h"

namespace octavo::testing {
namespace {

using cuda::GemmShape;
using support::must;

// Every tile shape that uses stream-K has its last units split here, on 132 SMs.
constexpr Sizes kSizes{1900, 1700, 1100};

// The workspace that a kernel of this shape needs here: partial sums of each warpgroup, then a flag
// for each.
struct Wanted {
  std::size_t sums = 0, words = 0;

  [[nodiscard]] std::size_t bytes() const { return sums + words * sizeof(std::uint64_t); }
};

Wanted wanted_by(const GemmShape& shape) {
  const auto groups = static_cast<std::size_t>(cuda::clusters_on(kExecThere, shape.blocks) *
                                               shape.blocks * shape.warpgroups());
  return {.sums = groups * 64 * static_cast<std::size_t>(shape.group_cols()) * sizeof(float),
          .words = groups};
}

// Two sets of operands that alternate in the same memory, and the result of a plain call for each.
class Product {
 public:
  using Queue = std::function<void(const Exec&, const GemmJob&)>;

  Product(const char* scaling, Queue queue)
      : queue_(std::move(queue)),
        a_{usual_operand(preset(scaling), kSizes.m, kSizes.k, 1),
           usual_operand(preset(scaling), kSizes.m, kSizes.k, 3)},
        b_(to_device(usual_operand(preset(scaling), kSizes.n, kSizes.k, 2), kThere)),
        x_(to_device(a_[0], kThere)),
        out_(empty_there(kSizes.m, kSizes.n, DType::bf16)) {
    const support::Stream stream;
    for (const int which : {0, 1}) {
      set(which);
      queue_on(stream.exec());
      stream.wait();
      wanted_.push_back(to_host(out_.view()));
    }
  }

  // Sets the operands, and a result that is not written yet.
  void set(int which) const {
    const QuantizedCopy &from = a_[which].rowwise, &to = x_.rowwise;
    for (const auto& [here, there] :
         {std::pair{&from.codes, &to.codes}, std::pair{&from.scales, &to.scales}})
      must(cudaMemcpy(there->view().data, here->bytes().data(), here->bytes().size(),
                      cudaMemcpyHostToDevice));
    must(cudaMemset(out_.view().data, 0xA5, static_cast<std::size_t>(out_.nbytes())));
    must(cudaDeviceSynchronize());
  }
  void queue_on(const Exec& exec) const {
    queue_(exec, {.a = operand_of(x_),
                  .b = operand_of(b_),
                  .out = matrix_of(out_.view()),
                  .accumulator = Accumulator::native});
  }
  [[nodiscard]] std::string difference(int which) const {
    const Tensor got = to_host(out_.view());
    const Tensor& wanted = wanted_[static_cast<std::size_t>(which)];
    if (std::ranges::equal(got.bytes(), wanted.bytes())) return "";
    return text("other bytes: ", differences(got, wanted));
  }

 private:
  Queue queue_;
  QuantizedTensor a_[2], b_, x_;
  Tensor out_;
  std::vector<Tensor> wanted_{};
};

Product in_shape(const GemmShape& shape) {
  return {"fp8-channel",
          [shape](const Exec& exec, const GemmJob& job) { cuda::gemm_fp8(exec, job, &shape); }};
}

std::string to_text(const GemmShape& shape) {
  return text("tiles of ", shape.rows(), " x ", shape.cols);
}

class GemmStreams : public support::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    if (cuda::clusters_on(kExecThere, 1) != 132) GTEST_SKIP() << "wants 132 multiprocessors";
  }
  static Exec with_workspace(const support::Stream& stream, std::byte* memory, std::size_t bytes) {
    Exec exec = stream.exec();
    exec.workspace = {memory, bytes};
    return exec;
  }
  // Four replays, each with other operands than the one before; then two without waiting between.
  static void expect_replayed(const Product& product, const support::Stream& stream,
                              const Graph& graph, const std::string& where) {
    for (int turn = 0; turn < 4; ++turn) {
      product.set(turn % 2);
      graph.launch(stream);
      stream.wait();
      EXPECT_EQ(product.difference(turn % 2), "") << where << ", turn " << turn;
    }
    product.set(0);
    graph.launch(stream);
    graph.launch(stream);
    stream.wait();
    EXPECT_EQ(product.difference(0), "") << where << ", twice";
  }
};

TEST_F(GemmStreams, GraphsHaveTheBitsOfPlainCalls) {
  for (const GemmShape& shape : cuda::kGemmShapes) {
    const Product product = in_shape(shape);
    const support::Stream stream;
    const Graph graph(stream, [&] { product.queue_on(stream.exec()); });
    expect_replayed(product, stream, graph, to_text(shape));
  }
  const Product chosen("fp8-1x128", api().kernels->gemm), aligned("mxfp8", api().kernels->gemm);
  for (const Product* product : {&chosen, &aligned}) {
    const support::Stream stream;
    const Graph graph(stream, [&] { product->queue_on(stream.exec()); });
    expect_replayed(*product, stream, graph, product == &chosen ? "1x128" : "mxfp8");
  }
}

// The workspace keeps its contents from one replay to the next, where a flag that is still set
// would let a cluster load the partial sums of the replay before: all flags are reset.
TEST_F(GemmStreams, GraphsInTheCallersWorkspaceResetPartialSums) {
  for (const GemmShape& shape : cuda::kGemmShapes) {
    if (!shape.uses_stream_k()) continue;
    const Product product = in_shape(shape);
    const Wanted wanted = wanted_by(shape);
    const support::DeviceMemory memory(wanted.bytes());
    must(cudaMemset(memory.data(), 0, memory.size()));
    const support::Stream stream;
    const Graph graph(
        stream, [&] { product.queue_on(with_workspace(stream, memory.data(), memory.size())); });
    expect_replayed(product, stream, graph, to_text(shape));
    const std::vector<std::byte> sums = memory.read(0, wanted.sums),
                                 words = memory.read(wanted.sums, memory.size() - wanted.sums);
    const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
    EXPECT_FALSE(std::ranges::all_of(sums, is_zero)) << to_text(shape) << ": no tile was cut";
    EXPECT_TRUE(std::ranges::all_of(words, is_zero)) << to_text(shape);
  }
}

// A workspace that is too small, or not at a multiple of 16 bytes, is not used.
TEST_F(GemmStreams, WorkspaceOfTheCaller) {
  for (const GemmShape& shape : cuda::kGemmShapes) {
    if (!shape.uses_stream_k()) continue;
    const Product product = in_shape(shape);
    const std::size_t enough = wanted_by(shape).bytes();
    const support::Stream stream;
    const auto is_used = [&](std::size_t begin, std::size_t bytes) {
      const support::DeviceMemory memory(enough + 64);
      product.set(1);
      product.queue_on(with_workspace(stream, memory.data() + begin, bytes));
      stream.wait();
      EXPECT_EQ(product.difference(1), "") << to_text(shape) << ", " << bytes << " from " << begin;
      const std::vector<std::byte> after = memory.read(0, memory.size());
      const auto is_as_before = [](std::byte byte) { return byte == std::byte{0xA5}; };
      const auto end = after.begin() + static_cast<std::ptrdiff_t>(begin + bytes);
      EXPECT_TRUE(std::all_of(end, after.end(), is_as_before)) << "written behind it";
      return !std::all_of(after.begin(), end, is_as_before);
    };
    EXPECT_TRUE(is_used(0, enough));
    EXPECT_TRUE(is_used(16, enough));
    EXPECT_TRUE(is_used(0, enough + 64));
    EXPECT_FALSE(is_used(0, enough - 1));
    EXPECT_FALSE(is_used(0, 256));
    EXPECT_FALSE(is_used(8, enough));
    EXPECT_FALSE(is_used(1, enough));
  }
}

}  // namespace
}  // namespace octavo::testing
