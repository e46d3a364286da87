#include "octavo/backend/cpu/gemm/gemm_blocking.h"

#include <algorithm>

#include "octavo/backend/cpu/gemm/gemm_scale_range.h"
#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/matrix_io.h"

namespace octavo::cpu {
namespace {

// Largest mc and nc. The sums of a block take 2 MiB and so does its packed B, of which one panel at
// a time is prefetched; nc is large because A is packed again for each column block.
constexpr std::int64_t kMaxMc = 512, kMaxNc = 1032;
// Packed panels of B that stay in L2 (whole_k): five eighths of what CPUs with matrix tiles have.
constexpr std::int64_t kWholeKBytes = 5 << 18;
// With A packed once: what packed panels of B take of an L2 of 1 MiB, and rows of sums that are
// kept from one block of K to the next.
constexpr std::int64_t kPackedBBytes = 768 << 10, kMaxSumRows = 2048;

// Blocks of K of equal size, whole runs each.
std::int64_t equal_kc(std::int64_t most, std::int64_t depth, std::int64_t run) {
  const std::int64_t count = std::max<std::int64_t>(1, blocks(depth, most));
  return std::max(run, round_up(blocks(depth, count), run));
}

// Rows of A that are packed at a time: 64 MiB, but enough that decoding B again for the next is
// not worth noticing.
constexpr std::int64_t kPackedABytes = 64 << 20, kLeastPackedRows = 2048;

// f32: are codes of B packed by a kernel of their own? Then each is decoded once for all rows.
bool packs_small_m(const GemmMethod& method, const GemmJob& job) {
  if (method.packed_type != PackedType::f32 || method.kc == 0 || method.pack_codes == nullptr ||
      !job.b.is_quantized() || job.a.cols() % kDotStep != 0)
    return false;
  const Matrix& codes = job.b.quantized.codes;
  const std::int64_t tile = job.b.quantized.tile.cols;
  const bool nibbles = codes.packed && codes.format.bits() == 4;
  return !codes.panels.exists() && (nibbles || (!codes.packed && is_contiguous(codes))) &&
         (tile == 0 || tile >= codes.cols || tile % kDotStep == 0) &&
         method.pack_codes({codes.format, PanelOf::b, nibbles}) != nullptr;
}

// The same for values.
bool multiplies_values(const GemmMethod& small_m, const GemmJob& job) {
  const Matrix& values = job.b.values;
  return !job.b.is_quantized() && job.a.cols() % kDotStep == 0 && is_contiguous(values) &&
         !values.panels.exists() && small_m.multiply_values != nullptr &&
         small_m.multiply_values(values.dtype) != nullptr;
}

// As far as can be said without scales.
bool may_be_lines(const GemmBlocking& c, const GemmJob& job) {
  const GemmMethod& method = *c.method;
  return c.whole_k && c.packs_a && method.multiply_lines != nullptr && job.out.rows <= kLineRows &&
         job.a.cols() % method.tile.step_of_a() == 0 && !job.b.elements().panels.exists();
}

GemmBlocking initial_blocking(const GemmMethod& chosen, const GemmJob& job) {
  GemmBlocking c;
  const bool packs = packs_small_m(chosen, job);
  const bool is_gemv = job.out.rows == 1 && job.b.is_quantized() && chosen.dot_codes != nullptr &&
                       chosen.dot_codes(job.b.quantized.codes.format) != nullptr &&
                       common_run(job) >= 2 * kDotStep;
  // Values of up to four rows are multiplied where they are, as fast as memory brings them. Sums of
  // no products are zero, which this kernel would not write.
  c.multiplies_rows =
      chosen.small_m != nullptr && job.out.rows <= chosen.small_m->tile.rows && !is_gemv &&
      job.a.cols() > 0 &&
      (packs || (job.out.rows > kDotRows && multiplies_values(*chosen.small_m, job)));
  const GemmMethod& method = c.multiplies_rows ? *chosen.small_m : chosen;
  c.method = &method;
  // Matrix instructions pay from a few rows on, with packed weights from one.
  const bool has_matrices =
      method.tile.a_step != 0 || (method.kc != 0 && method.packed_type == PackedType::bf16);
  const std::int64_t most_rows = has_matrices || packs ? kDotRows : kSmallM;
  c.small_m = !c.multiplies_rows && job.out.rows <= most_rows && !reads_panels(method, job.b);
  c.whole_k = !c.small_m && method.tile.a_step != 0;
  c.packs_a = !c.small_m && (c.whole_k || method.kc != 0) && job.a.cols() > 0;
  c.packed_rows = job.out.rows;
  if (c.packs_a) {
    const std::int64_t row_bytes = job.a.cols() * packed_bytes(method.packed_type);
    const std::int64_t most = std::max(kLeastPackedRows, kPackedABytes / row_bytes);
    c.packed_rows = round_up(blocks(job.out.rows, blocks(job.out.rows, most)), method.tile.rows);
  }
  if (job.out.rows <= kDotRows) c.kc = kMaxKc;
  if (c.small_m && job.out.rows == 1 && job.b.is_quantized() && method.dot_codes != nullptr)
    c.kc = std::min(kGemvKc, round_up(std::max<std::int64_t>(1, job.a.cols()), kGemmKc));
  c.run = common_run(job);
  if (c.packs_a && !c.whole_k) {
    const bool changes = scales_change(job.a) || scales_change(job.b),
               in_registers = reads_panels(method, job.b) && job.out.rows <= method.multiply_rows;
    c.kc = equal_kc(in_registers ? kMaxKc : method.kc, job.a.cols(), changes ? c.run : kDotStep);
    if (!changes) c.run = c.kc;
    c.one_k_block = job.a.cols() <= c.kc;
  }
  return c;
}

// Where scales are applied: to elements while packing, which costs less than to sums, unless a row
// is used only once.
void choose_scales(GemmBlocking& c, const Exec& exec, const GemmJob& job) {
  const bool any = job.a.is_quantized() || job.b.is_quantized();
  GemmScaleRange range(job, std::max(1, exec.threads));
  switch (c.method->packed_type) {
    case PackedType::f32:
      // Dot products that are scaled run by run end in a sum of lanes for each, and of long vectors
      // (x86) that costs: where several rows share a decoded element, it is scaled instead.
      c.scaled = !any || !c.small_m ||
                 c.run < (job.out.rows > kDotRows && c.method->kc != 0 ? 4 : 2) * kDotStep;
      if (c.scaled) c.applied_scales = AppliedScales::all;
      break;
    case PackedType::bf16:
      c.scaled = !any;
      if (any && c.run < kGemmKc && range.applies_exactly()) {
        c.applied_scales = AppliedScales::tiles;
        c.run = c.packs_a && !c.whole_k ? c.kc : kGemmKc;
      }
      break;
    default:
      break;
  }
  // GEMV: a row of B that is used once need not be decoded to memory.
  const std::int64_t run = common_run(job),
                     shortest = c.method->packed_type == PackedType::bf16 ? kDotStep : 2 * kDotStep;
  if (c.small_m && job.out.rows == 1 && job.b.is_quantized() && run >= shortest &&
      c.method->dot_codes != nullptr) {
    const Matrix& codes = job.b.quantized.codes;
    const bool nibbles = codes.packed && codes.format.bits() == 4 && !codes.panels.exists();
    if (nibbles && c.method->dot_nibbles != nullptr)
      c.dot_codes = c.method->dot_nibbles(codes.format);
    c.dots_nibbles = c.dot_codes != nullptr;
    if (!c.dots_nibbles) c.dot_codes = c.method->dot_codes(codes.format);
    if (c.dot_codes != nullptr) {
      c.scaled = false;
      c.applied_scales = AppliedScales::none;
      if (c.method->dot_scale_rows && range.applies_exactly(PanelOf::a))
        c.applied_to_a = AppliedScales::tiles;
      c.run = run;
    }
  }
  const bool whole_steps = c.small_m || c.run % c.method->tile.step_of_a() == 0;
  if (c.dot_codes == nullptr) c.applied_to_a = c.applied_scales;
  // What may be summed before scales are applied. GEMV by codes applies those of A last of all.
  const std::int64_t summed = c.whole_k                ? std::max(c.run, job.a.cols())
                              : c.dot_codes != nullptr ? std::max(c.run, c.kc)
                                                       : c.run;
  if (!c.scaled && (!whole_steps || !range.may_scale_sums(summed, c.applied_to_a, c.applied_scales,
                                                          c.method->packed_type))) {
    if (c.method->wide != nullptr) c = initial_blocking(*c.method->wide, job);
    c.dot_codes = nullptr;
    c.dots_nibbles = false;
    c.scaled = true;
    c.applied_scales = c.applied_to_a = AppliedScales::all;
  }
  if (c.small_m && c.dot_codes == nullptr) c.kc = std::min(c.kc, kMaxKc);
  if (c.scaled) c.run = c.kc;
}

// Few rows of A by lines of B: is everything as the kernels of lines take it? `needs_scales` is of
// tiles of B.
MultiplyLines lines_of(const GemmBlocking& c, const GemmJob& job) {
  const GemmMethod& method = *c.method;
  const Matrix& elements = job.b.elements();
  const bool nibbles = elements.packed && elements.format.bits() == 4;
  if (!may_be_lines(c, job) || !(nibbles || is_contiguous(elements))) return nullptr;
  const bool of_tiles = c.applied_scales == AppliedScales::tiles && scales_change(job.b);
  const bool in_runs = c.applied_scales != AppliedScales::tiles && !c.scaled &&
                       (scales_change(job.a) || scales_change(job.b));
  if (in_runs && c.run % method.line_run != 0) return nullptr;
  const Matrix& scales = job.b.quantized.scales;
  if (of_tiles && (scales.dtype != DType::code || !is_contiguous(scales))) return nullptr;
  return method.multiply_lines(elements, of_tiles ? &scales : nullptr,
                               of_tiles ? job.b.quantized.tile.cols : 0);
}

// With A packed: how many blocks of rows, and columns for each. A thread multiplies its rows by its
// columns, streams panels of A for every `fits` columns, and decodes columns of B. In units of a
// product, an element of A costs `stream` and one of B `decode`.
struct BlockCosts {
  std::int64_t stream, decode;
  // Blocks of a thread, where there are several threads: with two, one that is delayed stalls the
  // others for half as long. Vector instructions lose more by packing B again for the second.
  std::int64_t per_thread;
};
constexpr BlockCosts kTileCosts{128, 100, 2}, kVectorCosts{16, 16, 1};

void divide_blocks(GemmBlocking& c, std::int64_t threads, std::int64_t rows, std::int64_t cols,
                   std::int64_t fits, const BlockCosts& costs) {
  const Microkernel& tile = c.method->tile;
  const std::int64_t per_thread = threads > 2 ? costs.per_thread : 1, units = per_thread * threads;
  std::int64_t least = 0;
  for (std::int64_t parts = 1; parts <= std::min(units, blocks(rows, tile.rows)); ++parts) {
    const std::int64_t high = round_up(blocks(rows, parts), tile.rows),
                       wide = round_up(blocks(cols, blocks(units, parts)), tile.cols);
    const std::int64_t passes = blocks(wide, fits);
    // Blocks of a thread may have the same columns, decoded once.
    const std::int64_t decode = costs.decode / (parts % per_thread == 0 ? per_thread : 1);
    // Of whole tiles there may be more blocks than was wanted, and then a thread has one more.
    const std::int64_t rounds = blocks(blocks(rows, high) * blocks(cols, wide), threads);
    const std::int64_t cost = rounds * (high * wide + costs.stream * high * passes + decode * wide);
    if (least != 0 && cost >= least) continue;
    least = cost;
    c.mc = high;
    c.nc = round_up(blocks(wide, passes), tile.cols);
  }
}

// The largest nc whose packed panels of B, kc deep, fit in `bytes`.
std::int64_t columns_in(const GemmBlocking& c, std::int64_t bytes) {
  const Microkernel& tile = c.method->tile;
  const std::int64_t column = c.kc * packed_bytes(c.method->packed_type);
  return std::max<std::int64_t>(tile.cols, bytes / column / tile.cols * tile.cols);
}

// Some blocks for each thread, of whole lines.
std::int64_t lines_nc(std::int64_t cols, std::int64_t threads) {
  constexpr std::int64_t kMost = 512, kBlocks = 4;
  const std::int64_t some = threads > 1 ? std::min(kMost, blocks(cols, kBlocks * threads)) : kMost;
  return round_up(std::min(some, cols), kLineCols);
}

void choose_blocks(GemmBlocking& c, const Exec& exec, const GemmJob& job) {
  const std::int64_t rows = std::min(c.packed_rows, job.out.rows), cols = job.out.cols;
  const Microkernel& tile = c.method->tile;
  if (c.small_m) {
    c.mc = rows;
    // More blocks than threads, so that one delayed thread does not hold up all others.
    c.nc = exec.threads > 2 ? kSmallMNc / 4 : kSmallMNc;
  } else if (c.whole_k) {
    c.kc = round_up(std::max<std::int64_t>(1, job.a.cols()), kGemmKc);  // every run divides it
    if (c.lines != nullptr) {
      c.mc = kLineRows;
      c.nc = lines_nc(cols, std::max(1, exec.threads));
    } else
      divide_blocks(c, std::max(1, exec.threads), rows, cols, columns_in(c, kWholeKBytes),
                    kTileCosts);
  } else if (c.packs_a) {
    // Sums of a block stay from one block of K to the next.
    const std::int64_t most = c.one_k_block ? rows : std::min(rows, kMaxSumRows);
    // Of a few rows one panel is packed at a time, if any.
    const std::int64_t fits = c.multiplies_rows ? kSmallMNc : columns_in(c, kPackedBBytes);
    divide_blocks(c, std::max(1, exec.threads), rows, cols, fits, kVectorCosts);
    c.mc = std::min(c.mc, round_up(blocks(rows, blocks(rows, most)), tile.rows));
  } else {
    // Blocks of equal size, so that threads finish together.
    const std::int64_t threads = std::max(1, exec.threads);
    const std::int64_t most_rows =
        std::max<std::int64_t>(tile.rows, std::min<std::int64_t>(kMaxMc, blocks(rows, threads)));
    c.mc = round_up(blocks(rows, blocks(rows, most_rows)), tile.rows);
    // And several blocks per thread, so that one delayed thread does not hold up all others.
    const std::int64_t most_cols = threads > 1 ? kMaxNc / 2 : kMaxNc;
    c.nc = round_up(blocks(cols, blocks(cols, most_cols)), tile.cols);
  }
  c.row_blocks = blocks(rows, c.mc);
  c.col_blocks = blocks(cols, c.nc);
  c.threads = static_cast<int>(
      std::min<std::int64_t>(std::max(1, exec.threads), c.row_blocks * c.col_blocks));
}

}  // namespace

GemmBlocking choose_blocking(const GemmMethod& method, const Exec& exec, const GemmJob& job) {
  GemmBlocking c = initial_blocking(method, job);
  choose_scales(c, exec, job);
  c.lines = lines_of(c, job);
  choose_blocks(c, exec, job);
  return c;
}

// An upper bound for every blocking that the job's scales may lead to, without reading them.
std::int64_t gemm_workspace(const GemmMethod& method, const Exec& exec, const GemmJob& job) {
  std::int64_t most = 0;
  for (const GemmMethod* one : {&method, method.wide}) {
    if (one == nullptr) continue;
    GemmBlocking c = initial_blocking(*one, job);
    const auto count = [&] {
      choose_blocks(c, exec, job);
      most = std::max(
          most, packed_a_at(nullptr, c, job).bytes + c.threads * scratch_at(nullptr, c).bytes);
    };
    count();
    if (!may_be_lines(c, job)) continue;
    c.lines = [](const LinesJob&) {};
    count();
  }
  return most;
}

PackedA packed_a_at(std::byte* memory, const GemmBlocking& c, const GemmJob& job) {
  if (!c.packs_a) return {};
  const std::int64_t depth = blocks(job.a.cols(), c.kc) * c.kc;
  PackedA packed{.rows = round_up(std::min(c.packed_rows, job.out.rows), c.method->tile.rows)};
  const std::int64_t panels =
      round_up(packed.rows * depth * packed_bytes(c.method->packed_type), 64);
  packed.bytes =
      panels + round_up(packed.rows * blocks(depth, c.run) * std::int64_t{sizeof(float)}, 64);
  if (memory == nullptr) return packed;
  packed.panels = memory;
  packed.scales = reinterpret_cast<float*>(memory + panels);
  return packed;
}

GemmScratch scratch_at(std::byte* memory, const GemmBlocking& c) {
  constexpr std::int64_t kAlign = 64;
  GemmScratch scratch;
  const auto take = [&]<typename T>(T*& part, std::int64_t count, std::int64_t size) {
    if (memory != nullptr) part = reinterpret_cast<T*>(memory + scratch.bytes);
    scratch.bytes += round_up(count * size, kAlign);
  };
  const Microkernel& tile = c.method->tile;
  const std::int64_t packed_size = packed_bytes(c.method->packed_type), runs = blocks(c.kc, c.run);
  const std::int64_t a_rows = c.small_m ? c.mc : tile.rows, b_rows = c.small_m           ? kDotCols
                                                                     : c.multiplies_rows ? tile.cols
                                                                                         : c.nc;
  const std::int64_t sum_rows = c.whole_k || (c.one_k_block && !c.streams_b()) ? tile.rows : c.mc;
  take(scratch.sums, sum_rows * round_up(c.nc, kDotCols), sizeof(float));
  if (!c.packs_a) take(scratch.a_packed, a_rows * c.kc, packed_size);
  if (c.lines == nullptr) take(scratch.b_packed, b_rows * c.kc, packed_size);
  const std::int64_t staged = std::min(c.kc, c.whole_k ? kMaxKc : c.kc);
  if (!c.small_m) take(scratch.stage, std::max(tile.rows, tile.cols) * staged, packed_size);
  take(scratch.a_scales, a_rows * runs, sizeof(float));
  take(scratch.b_scales, b_rows * runs, sizeof(float));
  return scratch;
}

}  // namespace octavo::cpu
