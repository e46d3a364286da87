// LayerNorm and RMSNorm along rows: a persistent grid, each block with many rows. Floor: bytes over
// the copy rate, as for the quantizer alone; some eleven instructions per value are half of what
// the SMs can issue in that time.
#include <algorithm>

#include "octavo/backend/cuda/produce/norm_rows.cuh"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr std::int64_t kSharedOfDevice = 220 * 1024, kSharedUnasked = 48 * 1024;

int multiprocessors(const Exec& exec) {
  int count = 0;
  OCTAVO_CUDA_CHECK(
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, exec.device.index));
  return count;
}

template <DType kSource, bool kCentred, Sink kSink, int kMostThreads>
void launch(const Exec& exec, const RowPlan& plan) {
  const std::int64_t pairs = plan.cols / kRowValues;
  const std::int64_t threads = (pairs + kNormPairs * 32 - 1) / (kNormPairs * 32) * 32;
  const bool biased = plan.producer.bias.data != nullptr;
  const std::int64_t shared = threads * kKeptQuads * 16 * (biased ? 2 : 1);
  const std::int64_t of_one =
      std::min({kSharedOfDevice / (shared + 2048), std::int64_t{32},
                norm_blocks(kSource, kMostThreads) * kMostThreads / threads});
  const std::int64_t blocks =
      std::min(plan.rows, std::max<std::int64_t>(of_one, 1) * multiprocessors(exec));
  const auto kernel = norm_rows_kernel<kSource, kCentred, kSink, kMostThreads>;
  if (shared > kSharedUnasked)
    OCTAVO_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shared)));
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads),
           static_cast<std::size_t>(shared), stream_of(exec)>>>(
      plan, 1.0F / static_cast<float>(plan.cols), static_cast<float>(plan.producer.epsilon));
  OCTAVO_CUDA_LAUNCHED("norm_rows_kernel");
}

template <DType kSource, bool kCentred, Sink kSink>
void launch_size(const Exec& exec, const RowPlan& plan) {
  constexpr int kHalf = kRowThreads / 2;
  if (plan.cols <= std::int64_t{kHalf} * kNormPairs * kRowValues)
    return launch<kSource, kCentred, kSink, kHalf>(exec, plan);
  launch<kSource, kCentred, kSink, kRowThreads>(exec, plan);
}

}  // namespace

void norm_rows(const Exec& exec, const RowPlan& plan, DType source, Sink sink) {
  with_source_and_sink(source, sink, [&]<DType kSource, Sink kSink>() {
    plan.producer.kind == ProducerKind::layer_norm ? launch_size<kSource, true, kSink>(exec, plan)
                                                   : launch_size<kSource, false, kSink>(exec, plan);
  });
}

}  // namespace octavo::cuda
