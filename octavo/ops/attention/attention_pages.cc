#include "octavo/ops/attention/attention_pages_internal.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "attention";

// Whole pages for the longest batch; its shape in a dense operand.
struct Gathering {
  const AttentionCall& call;
  std::vector<std::int64_t> lengths;
  std::int64_t page_rows, rows;

  explicit Gathering(const AttentionCall& of) : call(of), page_rows(of.k.rows()) {
    const std::span<const std::int64_t> given = of.options.mask.key_lengths;
    lengths.assign(given.begin(), given.end());
    if (lengths.empty()) lengths.assign(static_cast<std::size_t>(of.q.batches()), of.keys());
    const std::int64_t most = lengths.empty() ? 0 : *std::ranges::max_element(lengths);
    rows = (most + page_rows - 1) / page_rows * page_rows;
  }

  [[nodiscard]] std::int64_t page_of(std::int64_t batch, std::int64_t place) const {
    const BlockTable& table = call.options.block_table;
    const std::int64_t page = table.blocks[batch * table.pitch + place];
    check(page >= 0 && page < call.k.batches(), ErrorCode::invalid_argument, kOp,
          "the block table has page ", page, " for batch ", batch, ", place ", place,
          "; expected 0 to ", call.k.batches() - 1);
    return page;
  }

  // Copies `height` rows of a page of the pool to each page of `to`: rows of tokens, or of scales.
  // `from` and `to` have the same type; rows of `to` are dense.
  void copy(const View& from, const View& to, std::int64_t height, std::int64_t tokens) const {
    const std::int64_t cols = to.shape[3], bytes = to.strides[2], step = to.strides[3];
    const bool is_run = to.packed || cols <= 1 || from.strides[3] == step;
    for (std::size_t batch = 0; batch < lengths.size(); ++batch)
      for (std::int64_t place = 0; place * page_rows < lengths[batch]; ++place) {
        const auto at = static_cast<std::int64_t>(batch);
        const std::int64_t page = page_of(at, place),
                           count = (std::min(page_rows, lengths[batch] - place * page_rows) +
                                    tokens - 1) /
                                   tokens;
        for (std::int64_t head = 0; head < to.shape[1]; ++head)
          for (std::int64_t row = 0; row < count; ++row) {
            const auto* const source = static_cast<const std::byte*>(from.data) +
                                       page * from.strides[0] + head * from.strides[1] +
                                       row * from.strides[2];
            auto* const target = static_cast<std::byte*>(to.data) + at * to.strides[0] +
                                 head * to.strides[1] + (place * height + row) * to.strides[2];
            if (is_run) {
              std::memcpy(target, source, static_cast<std::size_t>(bytes));
              continue;
            }
            for (std::int64_t col = 0; col < cols; ++col)
              std::memcpy(target + col * step, source + col * from.strides[3],
                          static_cast<std::size_t>(step));
          }
      }
  }

  [[nodiscard]] Tensor values(const View& pool) const {
    Tensor made =
        Tensor::values({call.q.batches(), pool.shape[1], rows, pool.shape[3]}, pool.dtype);
    std::ranges::fill(made.bytes(), std::byte{0});
    copy(pool, made.view(), page_rows, 1);
    return made;
  }

  // Nothing where scales of a page do not become scales of tokens: those of whole pages do not.
  [[nodiscard]] std::optional<QuantizedTensor> codes(const QuantizedTensor& pool) const {
    const Tile tile = pool.scaling.tile;
    const Shape shape{call.q.batches(), pool.shape[1], rows, pool.shape[3]};
    const bool is_one = element_count(pool.rowwise.scales.shape()) == 1;
    if (!is_one && (tile.rows == 0 || page_rows % tile.rows != 0)) return std::nullopt;
    if (pool.rowwise.tensor_scale.owner() != nullptr ||
        pool.scaling.scale_order != ScaleOrder::row_major)
      return std::nullopt;
    QuantizedTensor made = pool;
    made.columnwise = {};
    made.shape = shape;
    const View& from = pool.rowwise.codes.view();
    made.rowwise.codes = Tensor::codes(shape, from.format, from.packed);
    std::ranges::fill(made.rowwise.codes.bytes(), std::byte{0});
    copy(from, made.rowwise.codes.view(), page_rows, 1);
    if (is_one) return made;
    const View& scales = pool.rowwise.scales.view();
    if (scales.shape.rank() != 4) return std::nullopt;
    const Shape wanted = scale_shape(shape, pool.scaling);
    made.rowwise.scales = scales.dtype == DType::code ? Tensor::codes(wanted, scales.format)
                                                      : Tensor::values(wanted, scales.dtype);
    std::ranges::fill(made.rowwise.scales.bytes(), std::byte{0});
    copy(scales, made.rowwise.scales.view(), page_rows / tile.rows, tile.rows);
    return made;
  }
};

// K or V, and what it refers to.
struct Gathered {
  Tensor values;
  std::optional<QuantizedTensor> codes;
  bool exists = true;

  Gathered(const Gathering& gathering, const Operand& pool) {
    if (const QuantizedTensor* tensor = pool.quantized()) {
      codes = gathering.codes(*tensor);
      exists = codes.has_value();
    } else {
      values = gathering.values(pool.values());
    }
  }
  [[nodiscard]] Operand operand() const {
    if (codes) return *codes;
    return values;
  }
};

}  // namespace

void attend_pages(const AttentionCall& call, const View& out) {
  const Gathering gathering(call);
  const Gathered k(gathering, call.k_operand), v(gathering, call.v_operand);
  check(k.exists && v.exists, ErrorCode::unsupported, kOp,
        "on the CPU pages may have scales per tensor, token, or block of tokens that divides a "
        "page; got others: quantize with one of those, such as fp8-channel");
  AttentionOptions options = call.options;
  options.block_table = {};
  options.mask.key_lengths = gathering.lengths;
  // Of all keys of the table; what is gathered ends with the longest batch.
  if (View& bias = options.mask.bias; bias.data != nullptr) {
    const int last = bias.shape.rank() - 1;
    if (last >= 0 && bias.shape[last] > gathering.rows) bias.shape[last] = gathering.rows;
  }
  attention_into(call.q_operand, k.operand(), v.operand(), out, options);
}

}  // namespace octavo
