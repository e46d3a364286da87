// Activations along rows: a block has a whole row where the row has one scale, else a part of it.
#include <algorithm>

#include "octavo/backend/cuda/produce/activate_rows.cuh"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

template <DType kSource, ProducerKind kKind, Sink kSink>
void launch(const Exec& exec, const RowPlan& plan) {
  constexpr bool kWholeRows = kSink == Sink::row;
  const std::int64_t pairs = plan.cols / kRowValues;
  const std::int64_t most = kWholeRows ? kRowThreads : 256;
  // Two pairs of vectors per thread for long rows: more loads in flight per thread.
  const std::int64_t wanted = kWholeRows && pairs >= 256 ? (pairs + 1) / 2 : pairs;
  const std::int64_t threads = std::clamp<std::int64_t>((wanted + 31) / 32 * 32, 32, most);
  dim3 grid(static_cast<unsigned>(plan.rows));
  auto kernel = activate_rows_kernel<kSource, kKind, kSink, 1>;
  if constexpr (kWholeRows) {
    if (pairs > threads) kernel = activate_rows_kernel<kSource, kKind, kSink, 2>;
  } else {
    grid.y = static_cast<unsigned>((pairs + threads - 1) / threads);
  }
  kernel<<<grid, static_cast<unsigned>(threads), 0, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("activate_rows_kernel");
}

}  // namespace

void activate_rows(const Exec& exec, const RowPlan& plan, DType source, Sink sink) {
  with_source_and_sink(source, sink, [&]<DType kSource, Sink kSink>() {
    switch (plan.producer.kind) {
      case ProducerKind::gelu:
        return launch<kSource, ProducerKind::gelu, kSink>(exec, plan);
      case ProducerKind::gelu_tanh:
        return launch<kSource, ProducerKind::gelu_tanh, kSink>(exec, plan);
      case ProducerKind::silu:
        return launch<kSource, ProducerKind::silu, kSink>(exec, plan);
      default:
        return launch<kSource, ProducerKind::relu, kSink>(exec, plan);
    }
  });
}

}  // namespace octavo::cuda
