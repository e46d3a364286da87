#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/base/error.h"
#include "octavo/ops/attention/attention_call_internal.h"
#include "octavo/ops/gemm_operand_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

void check_operand(const QuantizedTensor& tensor, std::string_view op, std::string_view name) {
  check(tensor.rowwise.exists(), ErrorCode::invalid_argument, op, name,
        " has a columnwise copy only; quantize it rowwise");
  check_grid(tensor, op, name);
  const int rank = tensor.shape.rank(), axis = tensor.scaling.axis;
  check(axis == -1 || axis == rank - 1 || tensor.scaling.tile == Tile{0, 0},
        ErrorCode::invalid_argument, op, name, " is quantized along axis ", axis,
        "; attention takes tiles of the last two dimensions, so quantize it with axis = -1 (a "
        "scale per channel is the tile 'column')");
}

// [D0, ...] with ones in front.
View with_four_dimensions(const View& view) {
  View wide = view;
  const int missing = 4 - view.shape.rank();
  wide.shape = {1, 1, 1, 1};
  wide.strides = {0, 0, 0, 0};
  for (int i = 0; i < view.shape.rank(); ++i) {
    wide.shape[missing + i] = view.shape[i];
    wide.strides[missing + i] = view.strides[i];
  }
  return wide;
}

Matrix matrix_of(const View& wide) {
  return {.data = wide.data,
          .dtype = wide.dtype,
          .format = wide.format,
          .packed = wide.packed,
          .rows = wide.shape[2],
          .cols = wide.shape[3],
          .row_pitch = wide.strides[2],
          .col_stride = wide.strides[3]};
}

void check_lengths(std::span<const std::int64_t> lengths, std::int64_t batches, std::int64_t most,
                   std::string_view op, std::string_view name) {
  if (lengths.empty()) return;
  check(static_cast<std::int64_t>(lengths.size()) == batches, ErrorCode::invalid_argument, op,
        "got ", lengths.size(), " ", name, " lengths; expected one for each of ", batches,
        " batches");
  for (std::size_t i = 0; i < lengths.size(); ++i)
    check(lengths[i] >= 0 && lengths[i] <= most, ErrorCode::invalid_argument, op, "got a ", name,
          " length of ", lengths[i], " for batch ", i, "; expected 0 to ", most);
}

bool is_given(const View& view) { return view.data != nullptr || view.shape.rank() > 0; }

void check_bias(const View& bias, const Shape& wanted, std::string_view op) {
  if (!is_given(bias)) return;
  check_view(bias, op, "the bias");
  check(bias.dtype == DType::f32, ErrorCode::wrong_type, op, "the bias is ",
        is_value(bias.dtype) ? dtype_name(bias.dtype) : "codes",
        "; expected float32 numbers to add to scores, -inf where a key is hidden");
  bool good = bias.shape.rank() <= 4;
  for (int i = 0; good && i < bias.shape.rank(); ++i) {
    const std::int64_t size = bias.shape[bias.shape.rank() - 1 - i];
    good = (size == 1 || size == wanted[3 - i]) &&
           bias.strides[bias.shape.rank() - 1 - i] % static_cast<std::int64_t>(sizeof(float)) == 0;
  }
  if (!good)
    fail(ErrorCode::invalid_argument, op, "the bias has shape ", to_string(bias.shape),
         "; expected ", to_string(wanted), " (batch, heads, queries, keys), where any may be 1");
}

AttentionBias bias_of(const View& bias) {
  if (bias.data == nullptr) return {};
  const auto stride = [&](int from_last) -> std::int64_t {
    const int axis = bias.shape.rank() - from_last;
    if (axis < 0 || bias.shape[axis] == 1) return 0;
    return bias.strides[axis] / static_cast<std::int64_t>(sizeof(float));
  };
  return {.first = static_cast<const float*>(bias.data),
          .batch = stride(4),
          .head = stride(3),
          .row = stride(2),
          .key = stride(1)};
}

void check_soft_cap(double cap, std::string_view op) {
  check(cap == 0.0 || (cap >= kLeastSoftCap && cap <= kMostSoftCap), ErrorCode::invalid_argument,
        op, "got a soft cap of ", cap, "; expected 0, which is none, or a number from ",
        kLeastSoftCap, " to ", kMostSoftCap);
}

void check_sinks(const View& sinks, std::int64_t heads, std::string_view op) {
  if (!is_given(sinks)) return;
  check_view(sinks, op, "the sinks");
  check(sinks.dtype == DType::f32, ErrorCode::wrong_type, op, "the sinks are ",
        is_value(sinks.dtype) ? dtype_name(sinks.dtype) : "codes",
        "; expected float32, a logit for each query head");
  if (sinks.shape != Shape{heads} ||
      sinks.strides[0] % static_cast<std::int64_t>(sizeof(float)) != 0)
    fail(ErrorCode::invalid_argument, op, "the sinks have shape ", to_string(sinks.shape),
         "; expected ", to_string(Shape{heads}), ", one for each query head");
}

void check_dropout(const AttentionDropout& dropout, std::string_view op) {
  check(dropout.probability >= 0.0 && dropout.probability < 1.0, ErrorCode::invalid_argument, op,
        "got a dropout probability of ", dropout.probability,
        "; expected 0, which is none, to less than 1");
}

void check_table(const BlockTable& table, const AttentionStack& q, const AttentionStack& k,
                 std::string_view op) {
  check(op == "attention", ErrorCode::unsupported, op,
        "got a block table; expected K and V side by side: gather them, gradients are those of "
        "tensors");
  check(q.rank() == 4, ErrorCode::invalid_argument, op, "got a block table and Q of ", q.rank(),
        " dimensions; expected [batch, heads, queries, size], and K and V as [pages, heads, page "
        "tokens, size]");
  check(table.batches == q.batches() && table.columns >= 0 && table.pitch >= table.columns,
        ErrorCode::invalid_argument, op, "got a block table of ", table.batches, " rows of ",
        table.columns, " pages; expected one row for each of ", q.batches(), " batches");
  check(k.rows() > 0 && k.batches() < (std::int64_t{1} << 31), ErrorCode::invalid_argument, op,
        "got ", k.batches(), " pages of ", k.rows(),
        " tokens; expected at least one token in a page, and fewer than 2^31 pages");
}

void check_hadamard(const Operand& q, const Operand& k, const Operand& v, std::string_view op) {
  const auto turn_of = [](const Operand& operand) {
    const QuantizedTensor* tensor = operand.quantized();
    return tensor != nullptr && tensor->scaling.hadamard.rowwise
               ? std::optional(tensor->scaling.hadamard.signs)
               : std::nullopt;
  };
  check(!turn_of(v), ErrorCode::invalid_argument, op,
        "V is Hadamard-transformed, and the output would be too; quantize it without");
  check(turn_of(q) == turn_of(k), ErrorCode::invalid_argument, op,
        "Q and K are not Hadamard-transformed with the same signs; the transforms cancel only "
        "where both have the same one, or none");
}

}  // namespace

AttentionStack::AttentionStack(const Operand& operand, std::string_view op, std::string_view name)
    : name_(name), rank_(operand.shape().rank()) {
  if (rank_ < 2 || rank_ > 4)
    fail(ErrorCode::invalid_argument, op, name, " has shape ", to_string(operand.shape()),
         "; expected [batch, heads, tokens, size], or that without batch, or without both");
  if (const QuantizedTensor* tensor = operand.quantized()) {
    check_operand(*tensor, op, name);
    elements_ = with_four_dimensions(tensor->rowwise.codes.view());
    const View& scales = tensor->rowwise.scales.view();
    scales_ = with_four_dimensions(scales);
    if (scales.shape.rank() == 0) scales_.strides = {0, 0, 0, 0};
    tile_ = tensor->scaling.tile;
    if (tensor->rowwise.tensor_scale.owner() != nullptr)
      tensor_scale_ = tensor->rowwise.tensor_scale.view();
    is_quantized_ = true;
    return;
  }
  check_view(operand.values(), op, name);
  check(is_value(operand.values().dtype), ErrorCode::wrong_type, op, name,
        " holds codes without scales; give a QuantizedTensor (quantized_from puts codes and scales "
        "together), or values");
  elements_ = with_four_dimensions(operand.values());
}

AttentionOperand AttentionStack::operand() const {
  AttentionOperand operand{.batch_pitch = elements_.strides[0], .head_pitch = elements_.strides[1]};
  if (!is_quantized_) {
    operand.first.values = matrix_of(elements_);
    return operand;
  }
  operand.first.quantized = {.codes = matrix_of(elements_),
                             .scales = matrix_of(scales_),
                             .tile = tile_,
                             .tensor_scale = static_cast<float*>(tensor_scale_.data)};
  operand.scale_batch_pitch = scales_.shape[0] > 1 ? scales_.strides[0] : 0;
  operand.scale_head_pitch = scales_.shape[1] > 1 ? scales_.strides[1] : 0;
  return operand;
}

AttentionStack AttentionStack::every(std::int64_t n) const {
  AttentionStack some = *this;
  const auto thin_out = [n](View& view) {
    view.shape[2] = (view.shape[2] + n - 1) / n;
    view.strides[2] *= n;
  };
  const std::int64_t height = tile_.rows == 0 ? rows() : tile_.rows;
  if (is_quantized_ && height < rows()) {
    if (height != 1 && height % n != 0) return some;
    if (height == 1) thin_out(some.scales_);
    some.tile_.rows = std::max<std::int64_t>(1, height / n);
  }
  thin_out(some.elements_);
  return some;
}

void AttentionStack::add_views(std::vector<NamedView>& views) const {
  views.push_back({&elements_, name_});
  if (is_quantized_) views.push_back({&scales_, "scales"});
}

AttentionCall::AttentionCall(const Operand& q_given, const Operand& k_given, const Operand& v_given,
                             const AttentionOptions& given, std::string_view op)
    : q_operand(q_given), k_operand(k_given), v_operand(v_given), options(given) {
  q = AttentionStack(q_given, op, "Q");
  k = AttentionStack(k_given, op, "K");
  v = AttentionStack(v_given, op, "V");
  const auto shapes = [&] {
    return text("Q has shape ", to_string(q_given.shape()), ", K has shape ",
                to_string(k_given.shape()), " and V has shape ", to_string(v_given.shape()), ": ");
  };
  const auto require = [&](bool good, const auto&... what) {
    if (!good) fail(ErrorCode::invalid_argument, op, shapes(), what...);
  };
  require(q.rank() == k.rank() && k.rank() == v.rank(),
          "expected the same number of dimensions in all three");
  require(q.cols() == k.cols(), "the head size is ", q.cols(), " in Q and ", k.cols(),
          " in K; expected the same one");
  require(q.cols() > 0 && v.cols() > 0, "expected a head size of at least 1");
  require(k.rows() == v.rows(), "there are ", k.rows(), " keys and ", v.rows(), " values");
  const BlockTable& table = given.block_table;
  require(k.batches() == v.batches() && (table.exists() || q.batches() == k.batches()),
          table.exists() ? "expected as many pages in K as in V"
                         : "expected the same number of batches in all three");
  if (table.exists()) check_table(table, q, k, op);
  require(k.heads() == v.heads(), "expected as many heads in K as in V");
  require((k.heads() > 0 && q.heads() % k.heads() == 0) || q.heads() == 0, "Q has ", q.heads(),
          " heads; expected a multiple of the ", k.heads(), " heads of K and V");
  check_hadamard(q_given, k_given, v_given, op);
  const AttentionMask& mask = given.mask;
  check_lengths(mask.query_lengths, q.batches(), q.rows(), op, "query");
  check_lengths(mask.key_lengths, q.batches(), keys(), op, "key");
  check(mask.device_key_lengths == nullptr || mask.key_lengths.empty(), ErrorCode::invalid_argument,
        op, "got lengths of keys on the host and on the device; expected either");
  check(given.value_statistics.empty() ||
            static_cast<std::int64_t>(given.value_statistics.size()) == q.batches() * v.heads(),
        ErrorCode::invalid_argument, op, "got ", given.value_statistics.size(),
        " statistics of V; expected one for each of ", q.batches(), " batches of ", v.heads(),
        " heads");
  check(!mask.causal || mask.right <= 0, ErrorCode::invalid_argument, op,
        "got causal and right = ", mask.right,
        ": a causal row sees nothing after itself; expected right = 0 or none");
  check(!given.softmax_scale || std::isfinite(*given.softmax_scale), ErrorCode::invalid_argument,
        op, "the softmax scale is not finite");
  for (const double tolerance : {given.rtol, given.atol})
    check(tolerance >= 0.0 && std::isfinite(tolerance), ErrorCode::invalid_argument, op,
          "got a tolerance of ", tolerance, "; expected a number of at least 0");
  check_bias(mask.bias, {q.batches(), q.heads(), q.rows(), keys()}, op);
  check_soft_cap(given.soft_cap, op);
  check_sinks(given.sinks, q.heads(), op);
  check_dropout(given.dropout, op);
  for (const AttentionRange& range : given.ranges)
    check(range.batch >= 0 && range.batch < q.batches() && range.head >= 0 &&
              range.head < q.heads() && range.first >= 0 && range.count >= 0 &&
              range.first <= q.rows() && range.count <= q.rows() - range.first,
          ErrorCode::invalid_argument, op, "got a range of rows ", range.first, " to ",
          range.first + range.count, " of head ", range.head, " of batch ", range.batch,
          ", which Q does not have");
}

AttentionJob AttentionCall::job() const {
  const AttentionMask& mask = options.mask;
  AttentionJob job{.batches = q.batches(),
                   .heads = q.heads(),
                   .kv_heads = k.heads(),
                   .queries = q.rows(),
                   .keys = keys(),
                   .left = mask.left < 0 ? -1 : mask.left,
                   .right = mask.causal      ? 0
                            : mask.right < 0 ? -1
                                             : mask.right,
                   .bottom_right = mask.bottom_right};
  job.q = q.operand();
  job.k = k.operand();
  job.v = v.operand();
  job.softmax_scale =
      options.softmax_scale.value_or(1.0 / std::sqrt(static_cast<double>(q.cols())));
  if (!mask.query_lengths.empty()) job.query_lengths = mask.query_lengths.data();
  if (!mask.key_lengths.empty()) job.key_lengths = mask.key_lengths.data();
  if (mask.device_key_lengths != nullptr) job.key_lengths = mask.device_key_lengths;
  if (options.block_table.exists())
    job.pages = {.table = options.block_table.blocks,
                 .table_pitch = options.block_table.pitch,
                 .page_rows = k.rows(),
                 .page_count = k.batches()};
  job.bias = bias_of(mask.bias);
  job.soft_cap = options.soft_cap;
  job.dropout = options.dropout;
  job.oblivious = options.oblivious;
  if (options.sinks.data != nullptr)
    job.sinks = {.first = static_cast<const float*>(options.sinks.data),
                 .step = options.sinks.strides[0] / static_cast<std::int64_t>(sizeof(float))};
  if (!options.ranges.empty()) {
    job.ranges = options.ranges.data();
    job.range_count = static_cast<std::int64_t>(options.ranges.size());
  }
  return job;
}

QuantizeOptions quantize_options(const AttentionOptions& options) {
  return {.threads = options.threads,
          .backend = options.backend,
          .log = options.log,
          .stream = options.stream,
          .workspace = options.workspace};
}

bool is_f16_or_codes(const AttentionStack& stack) {
  return stack.is_quantized() || stack.elements().dtype == DType::f16;
}

bool AttentionCall::takes_as_given(AttentionRung rung) const {
  switch (rung) {
    case AttentionRung::exact:
    case AttentionRung::f32:
    case AttentionRung::bf16:
      return true;
    case AttentionRung::f16:
      return is_f16_or_codes(k) && is_f16_or_codes(v);
    case AttentionRung::strict:
    case AttentionRung::fast:
      return k.is_quantized() && v.is_quantized();
    default:
      return false;
  }
}

std::vector<AttentionRange> AttentionCall::ranges_of(std::int64_t rows) const {
  std::vector<AttentionRange> ranges;
  const auto cut = [&](AttentionRange range) {
    while (range.count > 0) {
      const std::int64_t count = std::min(range.count, rows - range.first % rows);
      ranges.push_back({range.batch, range.head, range.first, count});
      range.first += count;
      range.count -= count;
    }
  };
  for (const AttentionRange& range : options.ranges) cut(range);
  if (!options.ranges.empty()) return ranges;
  for (std::int64_t batch = 0; batch < q.batches(); ++batch)
    for (std::int64_t head = 0; head < q.heads(); ++head)
      cut({.batch = batch, .head = head, .first = 0, .count = q.rows()});
  return ranges;
}

Shape AttentionCall::out_shape() const {
  Shape shape = q_operand.shape();
  shape[shape.rank() - 1] = v.cols();
  return shape;
}

bool AttentionCall::is_empty() const { return q.batches() * q.heads() * q.rows() == 0; }

std::int64_t AttentionCall::work() const {
  // Decode attention (few queries) is bound by reading K and V, longer calls by their products.
  constexpr std::int64_t kFewRows = 16;
  const double products_per_element = q.rows() <= kFewRows ? 8.0 : 64.0;
  std::int64_t rows = q.batches() * q.heads() * q.rows();
  if (!options.ranges.empty()) {
    rows = 0;
    for (const AttentionRange& range : options.ranges) rows += range.count;
  }
  const double products = static_cast<double>(rows) * static_cast<double>(keys()) *
                          static_cast<double>(q.cols() + v.cols());
  return static_cast<std::int64_t>(
      std::min(products / products_per_element,
               static_cast<double>(std::numeric_limits<std::int64_t>::max() / 2)));
}

void AttentionCall::add_views(std::vector<NamedView>& views) const {
  q.add_views(views);
  k.add_views(views);
  v.add_views(views);
  if (options.mask.bias.data != nullptr) views.push_back({&options.mask.bias, "the bias"});
  if (options.sinks.data != nullptr) views.push_back({&options.sinks, "the sinks"});
}

}  // namespace octavo
