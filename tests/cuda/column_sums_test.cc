// Column sums in graphs, in a caller's workspace, and of more rows than the tests of all backends
// (tests/agreement) have: the reference's bytes each time.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "octavo/octavo.h"
#include "tests/cuda/gemm_on_device.h"
#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

class ColumnSumsOnDevice : public support::CudaTest {};

Matrix rows_at(void* data, DType dtype, std::int64_t rows, std::int64_t cols) {
  const std::int64_t bytes = element_bytes(dtype, {});
  return {.data = data,
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .row_pitch = cols * bytes,
          .col_stride = bytes};
}

TEST_F(ColumnSumsOnDevice, InAGraphOrAWorkspace) {
  const support::Stream stream;
  for (const auto& [rows, cols] : {std::pair{300'001, 3}, {8192, 1024}, {64, 4096}, {65, 20}}) {
    const auto bytes = static_cast<std::size_t>(cols) * sizeof(float);
    const support::DeviceMemory values(static_cast<std::size_t>(rows) * bytes / 2), sums(bytes);
    const Matrix from = rows_at(values.data(), DType::bf16, rows, cols),
                 to = rows_at(sums.data(), DType::f32, 1, cols);
    const Graph graph(stream, [&] { api().kernels->column_sums(stream.exec(), from, {}, to); });
    const support::DeviceMemory memory(2 * (static_cast<std::size_t>(rows) / 64 + 64) * bytes);
    Exec in_workspace = stream.exec();
    in_workspace.workspace = {memory.data(), memory.size()};
    for (const unsigned seed : {1U, 2U}) {
      const Tensor here = values_as(usual_values(rows, cols, seed), {rows, cols}, DType::bf16),
                   wanted = Tensor::values({cols}, DType::f32);
      reference_backend().column_sums({}, rows_at(here.view().data, DType::bf16, rows, cols), {},
                                      rows_at(wanted.view().data, DType::f32, 1, cols));
      const std::vector<std::byte> bits(wanted.bytes().begin(), wanted.bytes().end());
      values.write(here.bytes());
      graph.launch(stream);
      stream.wait();
      EXPECT_EQ(sums.read(0, bytes), bits) << rows << " x " << cols << " in a graph";
      support::must(cudaMemset(sums.data(), 0xA5, bytes));
      support::must(cudaDeviceSynchronize());
      api().kernels->column_sums(in_workspace, from, {}, to);
      stream.wait();
      EXPECT_EQ(sums.read(0, bytes), bits) << rows << " x " << cols << " in a workspace";
    }
  }
}

// A training step in the caller's memory is captured: nothing waits, bias gradients included.
TEST_F(ColumnSumsOnDevice, ABackwardPassIsCaptured) {
  constexpr Device kThere{DeviceKind::cuda, 0};
  constexpr std::int64_t kRows = 512, kIn = 256, kOut = 384;
  const auto there = [&](std::int64_t rows, std::int64_t cols, unsigned seed) {
    return to_device(values_as(usual_values(rows, cols, seed), {rows, cols}, DType::bf16).view(),
                     kThere);
  };
  const Tensor x = there(kRows, kIn, 1), w = there(kOut, kIn, 2), dy = there(kRows, kOut, 3),
               bias = to_device(values_as(usual_values(1, kOut, 4), {kOut}, DType::f32).view(),
                                kThere);
  // Memory is allocated before the capture begins.
  std::vector<support::DeviceMemory> pool;
  for (int i = 0; i < 64; ++i) pool.emplace_back(std::size_t{1} << 20);
  std::size_t used = 0;
  const auto make = [&](const View& like) {
    View view = like;
    view.device = kThere;
    view.data = pool.at(used++).data();
    return Tensor::adopt(view, std::shared_ptr<void>(view.data, [](void*) {}));
  };
  const support::Stream stream;
  Linear layer(w, bias, {.run = {.stream = stream.get(), .make = make}});
  const auto forward = [&] {
    const auto scope = autocast(MXFP8BlockScaling{});
    (void)layer.forward(x);
  };
  forward();
  (void)layer.backward(dy);
  const Tensor once = to_host(layer.bias_grad().view(), stream.get());
  forward();
  const Graph graph(stream, [&] { (void)layer.backward(dy); });
  graph.launch(stream);
  const Tensor twice = to_host(layer.bias_grad().view(), stream.get());
  // The second step accumulates.
  const auto a = once.span<float>(), b = twice.span<float>();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(b[i], 2 * a[i]) << i;
}

}  // namespace
}  // namespace octavo::testing
