// The quantize driver: splits the grid of tiles over threads, and for each run of tiles finds the
// amaxes, makes the scales, and encodes the scaled values. Works on any tile and source in f32 (or
// f64) staged on the stack; an Isa may offer a fused kernel for the common cases.
#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>
#include <type_traits>

#include "octavo/backend/cpu/convert/count.h"
#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/quantize/amax_driver.h"
#include "octavo/backend/cpu/quantize/amax_span.h"
#include "octavo/backend/cpu/quantize/fit_tiles.h"
#include "octavo/backend/cpu/quantize/mx_driver.h"
#include "octavo/backend/cpu/quantize/nvfp4_driver.h"
#include "octavo/backend/cpu/quantize/part_amaxes.h"
#include "octavo/backend/cpu/quantize/rank_tiles.h"
#include "octavo/backend/cpu/quantize/scale_batch.h"
#include "octavo/backend/cpu/quantize/tile_amaxes.h"
#include "octavo/backend/cpu/quantize/tile_values.h"
#include "octavo/backend/cpu/work_split.h"
#include "octavo/base/fp_env.h"
#include "octavo/round/encode.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kBigTile = 128 * 1024;  // from here on a tile is split among threads
constexpr std::int64_t kChunk = 4 * kStage;    // elements of a row processed together

// One copy, rowwise or columnwise, of one job.
template <typename Real>
class CopyMaker {
 public:
  CopyMaker(const Isa& isa, const QuantizeJob& job, bool transposed)
      : isa_(isa),
        job_(job),
        to_(transposed ? job.columnwise : job.rowwise),
        values_(isa, job, transposed),
        tile_{tile_extent(to_.tile.rows, values_.rows()),
              tile_extent(to_.tile.cols, values_.cols())},
        amaxes_(isa, values_, tile_, counted_up_to(amax_of(job.scale))),
        encoder_(make_encoder(to_.codes.format, scaled_policy(job),
                              sizeof(Real) == 4 ? DType::f32 : DType::f64)),
        encode_(isa.encode(encoder_)),
        division_(divides(job.scale) && job.given_inv_scale == nullptr),
        peer_adjust_(job.given_inv_scale == nullptr ? peer_adjust_of(job.scale, to_.codes.format)
                                                    : PeerAdjust::none),
        poison_code_(
            to_.codes.format.has_nan() ? nan_input_code(to_.codes.format, job.encode, false) : 0),
        direct_codes_(is_contiguous(to_.codes)) {
    if (tries_scales(job.policy)) fit_.emplace(isa, job, values_, encoder_, tensor_level());
    if (sizeof(Real) == 4 && isa.encode_scaled != nullptr && values_.is_direct() && !division_ &&
        peer_adjust_ == PeerAdjust::none && to_.codes.format.code_bytes() == 1) {
      scaled_encoder_ = make_encoder(to_.codes.format, scaled_policy(job), values_.dtype());
      // Peers' arithmetic does not poison, even where it reads everything.
      scaled_encoder_.only_finite = job.scale.arith == Arith::octavo &&
                                    job.scale.non_finite == NonFinite::poison &&
                                    job.given_amax == nullptr && job.given_inv_scale == nullptr &&
                                    job.encode.overflow == Overflow::saturate;
      scaled_encoder_.within_range = scaled_encoder_.only_finite && fits_its_scale(job);
      scaled_encoder_.poison_code = static_cast<std::uint8_t>(poison_code_);
      encode_scaled_ = isa.encode_scaled(scaled_encoder_);
    }
  }

  void run(const Exec& exec, AtomicCounts* counts) const {
    const std::int64_t rows = values_.rows(), cols = values_.cols();
    if (rows == 0 || cols == 0) return;
    const std::int64_t tile_rows = (rows + tile_.rows - 1) / tile_.rows;
    const std::int64_t wide = chunk_tiles() * tile_.cols;
    const std::int64_t chunks = (cols + wide - 1) / wide, units = tile_rows * chunks;
    const int threads = useful_threads(exec, rows * cols);
    const auto area = [&](std::int64_t unit) {
      const std::int64_t row = unit / chunks * tile_.rows, col = unit % chunks * wide;
      return Area{row, col, std::min(tile_.rows, rows - row), std::min(wide, cols - col)};
    };
    if (tile_.rows * tile_.cols >= kBigTile && units < 2 * threads) {
      for (std::int64_t unit = 0; unit < units; ++unit) shared_tile(area(unit), threads, counts);
      return;
    }
    parallel_units(units, threads, [&](std::int64_t unit) { one_thread(area(unit), counts); });
  }

 private:
  // Neighbouring tiles that are processed together: about a stage, and where codes are packed, a
  // whole number of bytes.
  [[nodiscard]] std::int64_t chunk_tiles() const {
    const std::int64_t whole_bytes = to_.codes.packed ? 8 / std::gcd(tile_.cols, 8) : 1;
    const std::int64_t most = std::min(kChunk / tile_.cols, kMaxTiles - 8);
    return std::max<std::int64_t>(1, most / whole_bytes) * whole_bytes;
  }

  // Is the amax, scaled, the largest value up to the rounding of its scale? Scales in f16 and of
  // two levels end before amaxes do, and some rules round down.
  static bool fits_its_scale(const QuantizeJob& job) {
    const ScaleSpec& scale = job.scale;
    return job.policy == AmaxPolicy::max && scale.margin >= 0 &&
           (scale.format == ScaleFormat::f32 || scale.format == ScaleFormat::bf16) &&
           scale.rule != ScaleRule::floor && scale.rule != ScaleRule::even;
  }

  void make(const Area& area, std::uint32_t* amax, ScaleBatch& scales, int threads = 1) const {
    const std::int64_t tiles = (area.cols + tile_.cols - 1) / tile_.cols;
    if (job_.given_inv_scale != nullptr)
      return give_scale(job_.scale, *job_.given_inv_scale, scales);
    const bool searches = job_.given_amax == nullptr;
    if (searches && job_.policy == AmaxPolicy::percentile)
      rank_tiles<Real>(isa_, job_, values_, area, tile_.cols, amax);
    make_scales(isa_, job_.scale, to_.codes.format, amax, tiles, tensor_level(), scales);
    if (searches && fit_) fit_->fit(area, tile_.cols, amax, scales, threads);
  }

  [[nodiscard]] TensorLevel tensor_level() const {
    TensorLevel tensor;
    if (to_.tensor_scale != nullptr) tensor.scale = *to_.tensor_scale;
    if (job_.tensor_amax != nullptr) tensor.amax = *job_.tensor_amax;
    return tensor;
  }

  void store(const Area& area, const ScaleBatch& scales) const {
    store_scales(to_.scales, area.row / tile_.rows, area.col / tile_.cols,
                 (area.cols + tile_.cols - 1) / tile_.cols, scales.bits);
  }

  // `first_col` is where the first tile of `scales` begins.
  void encode(const Area& area, std::int64_t first_col, const ScaleBatch& scales,
              AtomicCounts* counts) const {
    const bool shortcut = encode_scaled_ != nullptr && counts == nullptr;
    const std::int64_t step = shortcut ? kChunk : kStage;
    for (std::int64_t col = area.col, n = 0; col < area.col + area.cols; col += n) {
      n = std::min(step, area.col + area.cols - col);
      const std::int64_t start = col - first_col, tile = start / tile_.cols;
      const bool in_one_tile = start + n <= (tile + 1) * tile_.cols;
      if (shortcut && (in_one_tile || (start % tile_.cols == 0 && tile_.cols % 16 == 0))) {
        encode_directly(area, col, n, scales, tile, start - tile * tile_.cols);
      } else {
        n = std::min(n, kStage);
        encode_staged(area, col, n, start, scales, counts);
      }
    }
  }

  // Reads the source in place, and writes in place where codes are not packed.
  void encode_directly(const Area& area, std::int64_t col, std::int64_t n, const ScaleBatch& scales,
                       std::int64_t tile, std::int64_t into_tile) const {
    alignas(64) std::byte staged[kChunk];
    const std::int64_t width = into_tile + n <= tile_.cols ? (n + 15) / 16 * 16 : tile_.cols;
    for (std::int64_t row = area.row; row < area.row + area.rows; ++row) {
      std::byte* to = direct_codes_ ? element(to_.codes, row, col) : staged;
      encode_scaled_(scaled_encoder_, values_.direct(row, col), to, n, scales.factor + tile,
                     scales.poisoned + tile, width);
      if (!direct_codes_) scatter(to_.codes, row, col, n, staged);
    }
  }

  void encode_staged(const Area& area, std::int64_t col, std::int64_t n, std::int64_t start,
                     const ScaleBatch& scales, AtomicCounts* counts) const {
    alignas(64) Real stage[kStageRoom], scaled[kStage], factors[kStage];
    alignas(64) std::uint8_t poisoned[kStage];
    alignas(64) std::byte codes[kStage * 2];
    for (std::int64_t t = start / tile_.cols, i = 0; i < n; ++t) {
      const std::int64_t end = std::min(n, (t + 1) * tile_.cols - start);
      std::fill(poisoned + i, poisoned + end, scales.poisoned[t]);
      std::fill(factors + i, factors + end, static_cast<Real>(scales.factor[t]));
      i = end;
    }
    for (std::int64_t row = area.row; row < area.row + area.rows; ++row) {
      const Real* x = values_.piece(row, col, n, stage);
      if (division_) {
        for (std::int64_t i = 0; i < n; ++i) scaled[i] = x[i] / factors[i];
      } else {
        for (std::int64_t i = 0; i < n; ++i) scaled[i] = x[i] * factors[i];
      }
      if (peer_adjust_ != PeerAdjust::none) {
        for (std::int64_t i = 0; i < n; ++i) scaled[i] = peer_adjusted(peer_adjust_, scaled[i]);
      }
      const std::uint64_t index =
          job_.encode.first_index + static_cast<std::uint64_t>(row * values_.cols() + col);
      encode_(encoder_, scaled, codes, n, index);
      if (to_.codes.format.code_bytes() == 1) {
        auto* code = reinterpret_cast<std::uint8_t*>(codes);
        const auto poison = static_cast<std::uint8_t>(poison_code_);
        for (std::int64_t i = 0; i < n; ++i)
          code[i] = static_cast<std::uint8_t>((code[i] & ~poisoned[i]) | (poison & poisoned[i]));
      } else {
        auto* code = reinterpret_cast<std::uint16_t*>(codes);
        for (std::int64_t i = 0; i < n; ++i) {
          const auto mask = static_cast<std::uint16_t>(poisoned[i] * 0x101u);
          code[i] = static_cast<std::uint16_t>((code[i] & ~mask) | (poison_code_ & mask));
        }
      }
      if (counts != nullptr) counts->add(count(scaled, poisoned, n, index));
      scatter(to_.codes, row, col, n, codes);
    }
  }

  // Elements of poisoned tiles count as NaN.
  Counts count(Real* scaled, const std::uint8_t* poisoned, std::int64_t n,
               std::uint64_t index) const {
    using Bits = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
    const auto nan = std::bit_cast<Bits>(static_cast<Real>(f32_nan()));
    for (std::int64_t i = 0; i < n; ++i) {
      const Bits mask = Bits{0} - static_cast<Bits>(poisoned[i] != 0);
      scaled[i] = std::bit_cast<Real>((std::bit_cast<Bits>(scaled[i]) & ~mask) | (nan & mask));
    }
    return isa_.count(encoder_, scaled, n, index);
  }

  void one_thread(const Area& area, AtomicCounts* counts) const {
    std::uint32_t amax[kMaxTiles];
    ScaleBatch scales;
    if (job_.given_amax != nullptr) {
      amax[0] = std::bit_cast<std::uint32_t>(*job_.given_amax);
    } else if (job_.given_inv_scale == nullptr) {
      amaxes_.find(area, amax);
    }
    make(area, amax, scales);
    store(area, scales);
    encode(area, area.col, scales, counts);
  }

  // Splits one large tile among threads: by rows if it has enough of them, else by columns.
  void shared_tile(const Area& area, int threads, AtomicCounts* counts) const {
    const bool by_rows = area.rows >= 4 * threads;
    const std::int64_t pieces = by_rows ? area.rows : (area.cols + kStage - 1) / kStage;
    const int parts = std::min(parts_for(pieces, threads), kMaxParts);
    const auto between = [&](std::int64_t first, std::int64_t last) {
      if (by_rows) return Area{area.row + first, area.col, last - first, area.cols};
      const std::int64_t end = std::min(last * kStage, area.cols);
      return Area{area.row, area.col + first * kStage, area.rows, end - first * kStage};
    };
    std::uint32_t amax = 0;
    if (job_.given_amax != nullptr) {
      amax = std::bit_cast<std::uint32_t>(*job_.given_amax);
    } else if (job_.given_inv_scale == nullptr) {
      PartAmaxes found;
      parallel_parts(pieces, parts, threads, [&](int part, std::int64_t first, std::int64_t last) {
        amaxes_.find(between(first, last), &found.of(part));
      });
      amax = found.largest();
    }
    ScaleBatch scales;
    {
      const FpEnvGuard guard;
      make(area, &amax, scales, threads);
    }
    store(area, scales);
    parallel_parts(pieces, parts, threads, [&](int, std::int64_t first, std::int64_t last) {
      encode(between(first, last), area.col, scales, counts);
    });
  }

  const Isa& isa_;
  const QuantizeJob& job_;
  const QuantizedMatrix& to_;
  TileValues<Real> values_;
  Tile tile_;
  TileAmaxes<Real> amaxes_;
  Encoder encoder_;
  EncodeSpan encode_;
  bool division_;
  PeerAdjust peer_adjust_;
  std::uint32_t poison_code_;
  bool direct_codes_;
  std::optional<TileFit<Real>> fit_{};
  Encoder scaled_encoder_{};
  ScaledSpan encode_scaled_ = nullptr;
};

template <typename Real>
void quantize_copies(const Isa& isa, const Exec& exec, const QuantizeJob& job,
                     AtomicCounts* counts) {
  if (job.rowwise.wanted()) CopyMaker<Real>(isa, job, false).run(exec, counts);
  if (job.columnwise.wanted())
    CopyMaker<Real>(isa, job, true).run(exec, job.rowwise.wanted() ? nullptr : counts);
}

}  // namespace

void quantize_matrix(const Isa& isa, const Exec& exec, const QuantizeJob& job) {
  if (!job.rowwise.wanted() && !job.columnwise.wanted()) {
    if (job.amax != nullptr) amax_as_copied(isa, exec, job);
    return;
  }
  if (job.amax != nullptr) amax_matrix(isa, exec, job.source, amax_of(job.scale), job.amax);
  if (job.policy == AmaxPolicy::percentile && ranks_are_amaxes(job)) {
    QuantizeJob plain = job;
    plain.amax = nullptr;
    plain.policy = AmaxPolicy::max;
    return quantize_matrix(isa, exec, plain);
  }
  if (quantize_mx(isa, exec, job) || quantize_fp4(isa, exec, job)) return;
  AtomicCounts totals;
  AtomicCounts* counts = job.counts != nullptr ? &totals : nullptr;
  job.source.works_in_f64() ? quantize_copies<double>(isa, exec, job, counts)
                            : quantize_copies<float>(isa, exec, job, counts);
  if (job.counts != nullptr) *job.counts += totals.get();
}

}  // namespace octavo::cpu
