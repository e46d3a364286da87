// Which jobs the decode kernels take, and their plans. All of it follows from the job alone, so
// that a captured graph serves sequences of any length.
#include "octavo/backend/cuda/attention/decode/decode.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "octavo/backend/cuda/attention/decode/decode_launch.h"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"
#include "octavo/tensor/dtype.h"

namespace octavo::cuda {
namespace {

constexpr std::int64_t kMostQueries = 8, kMostDims = 256, kMostKeys = std::int64_t{1} << 30;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 31;
constexpr int kVector = 16;                                 // bytes
constexpr std::int64_t kMostPitch = std::int64_t{1} << 26;  // sixteen rows apart are an int
constexpr int kAllTokens = 31;  // a shift that no number of tokens survives

bool is_fp8(const Format& format) { return format == e4m3fn || format == e5m2; }

// Codes with one f32 scale for a row.
bool has_row_scales(const QuantizedMatrix& of) {
  return of.scales.dtype == DType::f32 && of.tensor_scale == nullptr &&
         tile_extent(of.tile.cols, of.codes.cols) >= of.codes.cols;
}
bool has_channel_scales(const QuantizedMatrix& of) {
  return of.scales.dtype == DType::f32 && of.tensor_scale == nullptr && of.tile.cols == 1 &&
         tile_extent(of.tile.rows, of.codes.rows) >= of.codes.rows;
}

bool fits_queries(const AttentionJob& job) {
  const GemmOperand& q = job.q.first;
  if (q.is_quantized()) return is_fp8(q.quantized.codes.format) && has_row_scales(q.quantized);
  const DType dtype = q.values.dtype;
  return job.values == DType::bf16 &&
         (dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32);
}

bool is_vectorized(const AttentionOperand& operand) {
  const Matrix& of = operand.first.elements();
  const std::int64_t bytes =
      of.dtype == DType::code ? of.format.code_bytes() : element_bytes(of.dtype, of.format);
  return !of.packed && !of.panels.exists() && of.col_stride == bytes &&
         of.cols * bytes % kVector == 0 && has_aligned_pitch(of, kVector) && of.row_pitch >= 0 &&
         of.row_pitch < kMostPitch && operand.batch_pitch % kVector == 0 &&
         operand.head_pitch % kVector == 0;
}

// Where rows lie; nothing where their scales have a form that the kernels do not read.
std::optional<DecodeTokens> tokens_of(const AttentionJob& job, const AttentionOperand& operand,
                                      bool takes_channels) {
  if (!is_vectorized(operand)) return std::nullopt;
  const Matrix& of = operand.first.elements();
  DecodeTokens tokens{.rows = static_cast<const std::byte*>(of.data),
                      .page_pitch = operand.batch_pitch,
                      .head_pitch = operand.head_pitch,
                      .row_pitch = of.row_pitch,
                      .row_bytes = static_cast<int>(of.cols * of.col_stride)};
  if (!operand.first.is_quantized()) return tokens;
  const QuantizedMatrix& codes = operand.first.quantized;
  const auto* const scales = static_cast<const std::byte*>(codes.scales.data);
  const std::int64_t height = tile_extent(codes.tile.rows, codes.codes.rows);
  const bool is_one = height >= codes.codes.rows;
  const bool has_pages = job.pages.exist() && operand.scale_batch_pitch != 0;
  if (takes_channels && has_channel_scales(codes) && !has_row_scales(codes)) {
    if (has_pages) return std::nullopt;
    tokens.channel_step = codes.scales.col_stride;
  } else if (!has_row_scales(codes)) {
    return std::nullopt;
  }
  if (is_one && !has_pages) {
    tokens.shared = scales;
    tokens.shared_page_pitch = job.pages.exist() ? 0 : operand.scale_batch_pitch;
    tokens.shared_head_pitch = operand.scale_head_pitch;
    return tokens;
  }
  if (!is_one && !std::has_single_bit(static_cast<std::uint64_t>(height))) return std::nullopt;
  tokens.scales = scales;
  tokens.scale_page_pitch = operand.scale_batch_pitch;
  tokens.scale_head_pitch = operand.scale_head_pitch;
  tokens.scale_step = is_one ? 0 : codes.scales.row_pitch;
  tokens.token_shift =
      is_one ? kAllTokens - 1 : std::countr_zero(static_cast<std::uint64_t>(height));
  return tokens;
}

struct Choice {
  DecodeLaunch launch;
  DecodePlan plan;
};

std::optional<Choice> choice_for(const AttentionJob& job) {
  const std::int64_t dims = std::max(job.q.first.cols(), job.v.first.cols());
  const bool has_pages = job.pages.exist();
  if (job.queries < 1 || job.queries > kMostQueries || dims > kMostDims || job.keys >= kMostKeys ||
      job.kv_heads < 1)
    return std::nullopt;
  if (job.bias.first != nullptr || job.dropout.exists() || job.ranges != nullptr ||
      (job.key_shift != nullptr && job.log_sum_exp != nullptr))
    return std::nullopt;
  if (job.p != AttentionP::bf16 && job.p != AttentionP::fp8 && job.p != AttentionP::fp8_split)
    return std::nullopt;
  if (!fits_queries(job)) return std::nullopt;
  if (has_pages && (job.pages.page_rows < kDecodeTileKeys || job.pages.page_rows >= kMostKeys ||
                    !std::has_single_bit(static_cast<std::uint64_t>(job.pages.page_rows))))
    return std::nullopt;
  const Matrix &k = job.k.first.elements(), &v = job.v.first.elements();
  if (job.k.first.is_quantized() != job.v.first.is_quantized() || k.dtype != v.dtype ||
      (k.dtype == DType::code && k.format != v.format))
    return std::nullopt;
  const std::optional<DecodeTokens> keys = tokens_of(job, job.k, false),
                                    values = tokens_of(job, job.v, true);
  if (!keys || !values) return std::nullopt;

  const std::int64_t rows = job.heads / job.kv_heads * job.queries;
  Choice choice{
      .launch = {},
      .plan = {.job = job,
               .k = *keys,
               .v = *values,
               .page_shift = has_pages
                                 ? std::countr_zero(static_cast<std::uint64_t>(job.pages.page_rows))
                                 : 0,
               .rows_of_head = static_cast<int>(rows)}};
  const DecodeKind kind{.dims = static_cast<int>(dims),
                        .rows = static_cast<int>(rows),
                        .token_scales = keys->scales != nullptr || values->scales != nullptr};
  if (job.k.first.is_quantized()) {
    if (!is_fp8(k.format)) return std::nullopt;
    choice.launch = k.format == e4m3fn ? decode_e4m3(kind) : decode_e5m2(kind);
  } else {
    if (job.values != DType::bf16) return std::nullopt;
    if (k.dtype == DType::bf16)
      choice.launch = decode_bf16(kind);
    else if (k.dtype == DType::f16)
      choice.launch = decode_f16(kind);
    else if (k.dtype == DType::f32)
      choice.launch = decode_f32(kind);
    else
      return std::nullopt;
  }
  choice.plan.row_tiles = choice.launch.row_tiles;
  choice.plan.groups =
      static_cast<int>((rows + 8 * choice.launch.row_tiles - 1) / (8 * choice.launch.row_tiles));
  // Blocks of keys are counted in 32 bits.
  const std::int64_t heads = job.batches * job.kv_heads * choice.plan.groups,
                     blocks = job.keys / choice.launch.keys_of_block + 2;
  if (heads >= kMostBlocks / blocks) return std::nullopt;
  return choice;
}

// Thread blocks: as many as run at once, and no more than there are blocks of keys.
int blocks_for_job(const Exec& exec, const Choice& choice) {
  int processors = 0;
  OCTAVO_CUDA_CHECK(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, exec.device.index));
  const AttentionJob& job = choice.plan.job;
  const std::int64_t most = job.batches * job.kv_heads * choice.plan.groups *
                            (job.keys / choice.launch.keys_of_block + 2);
  return static_cast<int>(std::min<std::int64_t>(
      most, std::int64_t{processors} * choice.launch.blocks_of_multiprocessor));
}

std::size_t partial_bytes(const Choice& choice, int blocks) {
  return static_cast<std::size_t>(choice.launch.partial_floats) * sizeof(float) *
         kDecodePartialsOfBlock * static_cast<std::size_t>(blocks);
}

}  // namespace

bool attention_decode_offered(const AttentionJob& job) { return choice_for(job).has_value(); }

std::int64_t attention_decode_workspace(const Exec& exec, const AttentionJob& job) {
  const std::optional<Choice> choice = choice_for(job);
  if (!choice) return 0;
  return static_cast<std::int64_t>(partial_bytes(*choice, blocks_for_job(exec, *choice)));
}

void attention_decode(const Exec& exec, const AttentionJob& job) {
  std::optional<Choice> choice = choice_for(job);
  if (!choice || job.batches * job.heads == 0) return;
  choice->plan.blocks = blocks_for_job(exec, *choice);
  const Scratch partials(exec, partial_bytes(*choice, choice->plan.blocks));
  choice->plan.partials = partials.as<float>();
  choice->launch.run(exec, choice->plan);
}

}  // namespace octavo::cuda
