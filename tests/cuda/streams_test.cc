// Streams and memory: captured graphs, two streams at once, unaligned pointers. The bits are always
// those of the reference.
#include <functional>
#include <thread>

#include "tests/cuda/device_quantizer.h"

namespace octavo::support {
namespace {

struct Named {
  const char* name;
  Scaling scaling;
};

std::vector<Named> scalings() {
  std::vector<Named> all;
  for (const char* name :
       {"fp8", "fp8-channel", "fp8-1x128", "fp8-block", "mxfp8", "mxfp4", "nvfp4"})
    all.push_back({name, preset(name)});
  Scaling both = preset("mxfp8");
  both.columnwise = true;
  all.push_back({"mxfp8, both", both});
  both.encode.rounding = Rounding::stochastic;
  both.encode.seed = 7;
  all.push_back({"mxfp8, both, stochastic", both});
  return all;
}

using Streams = CudaTest;

TEST_F(Streams, GraphsGiveTheSameBitsOnNewData) {
  for (const auto& [name, scaling] : scalings()) {
    DeviceQuantizer quantizer(96, 512, DType::bf16, scaling);
    const Stream stream;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    quantizer.set(1);
    must(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    EXPECT_TRUE(api().capturing(stream.exec()));
    quantizer.queue(api(), stream.exec());
    must(cudaStreamEndCapture(stream.get(), &graph));
    EXPECT_FALSE(api().capturing(stream.exec()));
    must(cudaGraphInstantiate(&ready, graph, 0));
    for (const unsigned seed : {1u, 2u, 3u}) {
      quantizer.set(seed);
      must(cudaGraphLaunch(ready, stream.get()));
      stream.wait();
      EXPECT_EQ(quantizer.difference(), "") << name << ", data " << seed;
    }
    must(cudaGraphExecDestroy(ready));
    must(cudaGraphDestroy(graph));
  }
}

TEST_F(Streams, GraphOfACastAndItsCounts) {
  constexpr std::int64_t kCount = 5003;
  const Tensor from =
      testing::values_as(testing::all_kinds_of_values(kCount, 4), {kCount}, DType::bf16);
  const Stream stream;
  const DeviceMemory values(kCount * 2), codes(kCount), counted(sizeof(Counts)), back(kCount * 4);
  const Matrix source =
      dense_matrix(values.data(), value_view(nullptr, DType::bf16, {0}), 1, kCount);
  const Matrix target = dense_matrix(codes.data(), code_view(nullptr, e4m3fn, {0}), 1, kCount);
  const Matrix decoded = dense_matrix(back.data(), value_view(nullptr, DType::f32, {0}), 1, kCount);
  auto* const counts = reinterpret_cast<Counts*>(counted.data());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  must(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  api().clear(stream.exec(), counts, sizeof(Counts));
  api().kernels->encode(stream.exec(), source, target, {}, counts);
  api().kernels->decode(stream.exec(), target, decoded);
  must(cudaStreamEndCapture(stream.get(), &graph));
  must(cudaGraphInstantiate(&ready, graph, 0));
  values.write(from.bytes());
  for (int turn = 0; turn < 2; ++turn) must(cudaGraphLaunch(ready, stream.get()));
  stream.wait();
  Counts wanted_counts, got_counts;
  const Tensor wanted =
      encode(from.view(), e4m3fn, {}, {.counts = &wanted_counts, .backend = &reference_backend()});
  EXPECT_EQ(std::memcmp(codes.read(0, kCount).data(), wanted.bytes().data(), kCount), 0);
  const std::vector<std::byte> bytes = counted.read(0, sizeof(Counts));
  std::memcpy(&got_counts, bytes.data(), sizeof(Counts));
  EXPECT_EQ(got_counts, wanted_counts);
  const Tensor values_back = decode(wanted.view(), DType::f32);
  EXPECT_EQ(std::memcmp(back.read(0, kCount * 4).data(), values_back.bytes().data(), kCount * 4),
            0);
  must(cudaGraphExecDestroy(ready));
  must(cudaGraphDestroy(graph));
}

TEST_F(Streams, TwoAtOnceDoNotMeet) {
  for (const auto& [name, scaling] : scalings()) {
    DeviceQuantizer a(1024, 2048, DType::bf16, scaling), b(777, 1111, DType::f32, scaling);
    a.set(5);
    b.set(6);
    const Stream one, other;
    for (int turn = 0; turn < 20; ++turn) {
      a.queue(api(), one.exec());
      b.queue(api(), other.exec());
    }
    one.wait();
    other.wait();
    EXPECT_EQ(a.difference(), "") << name;
    EXPECT_EQ(b.difference(), "") << name;
  }
}

TEST_F(Streams, TwoHostThreadsDoNotMeet) {
  const Scaling scaling = preset("fp8");
  DeviceQuantizer a(512, 1000, DType::f16, scaling), b(300, 4096, DType::bf16, scaling);
  a.set(8);
  b.set(9);
  const auto work = [&](const DeviceQuantizer& quantizer) {
    const Stream stream;
    for (int turn = 0; turn < 50; ++turn) quantizer.queue(api(), stream.exec());
    stream.wait();
  };
  std::thread first(work, std::cref(a)), second(work, std::cref(b));
  first.join();
  second.join();
  EXPECT_EQ(a.difference(), "");
  EXPECT_EQ(b.difference(), "");
}

TEST_F(Streams, PointersNeedNoAlignment) {
  for (const auto& [name, scaling] : scalings()) {
    for (const DType dtype : {DType::bf16, DType::f32, DType::f16}) {
      for (const std::size_t shift : {1, 3}) {
        for (const std::int64_t cols : {512, 515}) {
          DeviceQuantizer quantizer(65, cols, dtype, scaling, shift);
          quantizer.set(static_cast<unsigned>(shift));
          const Stream stream;
          quantizer.queue(api(), stream.exec());
          stream.wait();
          EXPECT_EQ(quantizer.difference(), "")
              << name << ", " << dtype_name(dtype) << " x " << cols << ", shifted " << shift;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::support
