// The amax of a matrix, split among threads.
#include <algorithm>
#include <bit>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/masks.h"
#include "octavo/backend/cpu/quantize/amax_driver.h"
#include "octavo/backend/cpu/quantize/amax_span.h"
#include "octavo/backend/cpu/quantize/part_amaxes.h"
#include "octavo/backend/cpu/quantize/tile_values.h"
#include "octavo/backend/cpu/work_split.h"
#include "octavo/base/fp_env.h"
#include "octavo/scale/delayed_step.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::cpu {
namespace {

template <typename Real>
void amax_of_values(const Isa& isa, const Exec& exec, const TileValues<Real>& values, AmaxOf of,
                    float* amax) {
  const std::int64_t rows = values.rows(), cols = values.cols();
  if (rows == 0 || cols == 0) return;
  const std::int64_t per_row = (cols + kStage - 1) / kStage, units = rows * per_row;
  const int threads = useful_threads(exec, rows * cols);
  const std::uint32_t limit = counted_up_to(of);
  const bool as_bf16 = values.is_direct() && values.dtype() == DType::bf16;
  const bool by_isa = isa.amax != nullptr && sizeof(Real) == 4 && limit == kAllCount;
  PartAmaxes found;
  parallel_parts(
      units, std::min(parts_for(units, threads), kMaxParts), threads,
      [&](int part, std::int64_t first, std::int64_t last) {
        alignas(64) Real stage[kStageRoom];
        std::uint32_t most = 0;
        for (std::int64_t unit = first; unit < last; ++unit) {
          const std::int64_t row = unit / per_row, col = unit % per_row * kStage;
          const std::int64_t n = std::min(kStage, cols - col);
          if (by_isa) {
            const void* x = as_bf16 ? values.direct(row, col) : values.piece(row, col, n, stage);
            most = larger(most, isa.amax(as_bf16 ? DType::bf16 : DType::f32, x, n));
            continue;
          }
          most = as_bf16 ? amax_run(static_cast<const std::uint16_t*>(values.direct(row, col)), n,
                                    limit, most)
                         : amax_run(values.piece(row, col, n, stage), n, limit, most);
        }
        found.of(part) = most;
      });
  const std::uint32_t most = larger(found.largest(), std::bit_cast<std::uint32_t>(*amax));
  // One canonical NaN, whatever the payload.
  *amax = std::bit_cast<float>(select(mask_of(most > 0x7F800000u), 0x7FC00000u, most));
}

}  // namespace

void amax_matrix(const Isa& isa, const Exec& exec, const QuantizeSource& source, AmaxOf of,
                 float* amax) {
  const QuantizeJob job{.source = source};
  source.works_in_f64()
      ? amax_of_values<double>(isa, exec, TileValues<double>(isa, job, false), of, amax)
      : amax_of_values<float>(isa, exec, TileValues<float>(isa, job, false), of, amax);
}

void amax_as_copied(const Isa& isa, const Exec& exec, const QuantizeJob& job) {
  const AmaxOf of = amax_of(job.scale);
  const bool transposed = job.hadamard_columnwise;
  job.source.works_in_f64()
      ? amax_of_values<double>(isa, exec, TileValues<double>(isa, job, transposed), of, job.amax)
      : amax_of_values<float>(isa, exec, TileValues<float>(isa, job, transposed), of, job.amax);
}

void delayed_update(const Exec&, const DelayedJob& job) {
  const FpEnvGuard guard;
  delayed_update_all(job);
}

void tensor_scale(const Exec&, const ScaleSpec& spec, const Format& element, const float* amax,
                  float* scale) {
  const FpEnvGuard guard;
  *scale = tensor_scale_of(spec, element, *amax);
}

}  // namespace octavo::cpu
