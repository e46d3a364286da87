#include "octavo/pipeline/compare_checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/checkpoint/dialect.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/convert/widen.h"
#include "octavo/pipeline/work_loop_internal.h"
#include "octavo/quant/quantize.h"
#include "octavo/report/band_error.h"
#include "octavo/report/value_error.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "compare";
constexpr std::int64_t kBandValues = 1 << 17;  // of f32: half a megabyte a side

// One tensor of a checkpoint as numbers, whatever it is stored as.
struct Numbers {
  const StoredTensor* plain = nullptr;  // floating point, or codes without a scale
  const FoundWeight* found = nullptr;
  std::vector<std::int64_t> shape{};
  std::int64_t rows = 1, cols = 1;
  std::uint64_t bytes = 0;
};

class Side {
 public:
  explicit Side(const std::string& path) : checkpoint_(path), recognized_(recognize(checkpoint_)) {
    for (const FoundWeight& found : recognized_.weights) {
      Numbers numbers{.found = &found};
      numbers.shape.assign(found.weight.shape.sizes().begin(), found.weight.shape.sizes().end());
      for (const SpelledTensor& tensor : found.tensors)
        numbers.bytes += checkpoint_.at(tensor.plan.name).nbytes();
      add(found.weight.name, std::move(numbers));
    }
    for (const std::string& name : recognized_.plain) {
      const StoredTensor& tensor = checkpoint_.at(name);
      const auto type = safetensors::element_type(tensor.entry->type);
      if (!type || type->packed || tensor.entry->shape.size() > kMaxRank) continue;
      Numbers numbers{.plain = &tensor, .bytes = tensor.nbytes()};
      numbers.shape.assign(tensor.entry->shape.begin(), tensor.entry->shape.end());
      add(name, std::move(numbers));
    }
  }

  [[nodiscard]] const CheckpointReader& checkpoint() const { return checkpoint_; }
  [[nodiscard]] const std::map<std::string, Numbers>& all() const { return all_; }

  // Bands must begin at multiples of this.
  [[nodiscard]] std::int64_t unit(const Numbers& numbers) const {
    return numbers.found != nullptr ? band_rows(recognized_.dialect, numbers.found->weight) : 1;
  }
  [[nodiscard]] QuantizedTensor codes(const Numbers& numbers, std::int64_t first,
                                      std::int64_t rows) const {
    return read_band(checkpoint_, recognized_.dialect, *numbers.found, first, rows);
  }
  [[nodiscard]] Tensor values(const Numbers& numbers, std::int64_t first, std::int64_t rows) const {
    if (numbers.found != nullptr)
      return dequantize(codes(numbers, first, rows), DType::f32, {.threads = 1});
    const auto type = *safetensors::element_type(numbers.plain->entry->type);
    const Shape shape{rows, numbers.cols};
    const Tensor stored = type.dtype == DType::code ? Tensor::codes(shape, type.format)
                                                    : Tensor::values(shape, type.dtype);
    const auto offset =
        static_cast<std::uint64_t>(first * numbers.cols * element_bytes(type.dtype, type.format));
    if (stored.nbytes() > 0) checkpoint_.read(*numbers.plain, offset, stored.bytes());
    return widened(stored);
  }

 private:
  void add(const std::string& name, Numbers numbers) {
    numbers.cols = numbers.shape.empty() ? 1 : numbers.shape.back();
    numbers.rows = 1;
    for (std::size_t i = 0; i + 1 < numbers.shape.size(); ++i) numbers.rows *= numbers.shape[i];
    all_.emplace(name, std::move(numbers));
  }

  CheckpointReader checkpoint_;
  Recognized recognized_;
  std::map<std::string, Numbers> all_;
};

struct Pair {
  std::string name;
  const Numbers *a = nullptr, *b = nullptr;
  TensorError error{};
};
struct Piece {
  std::size_t pair = 0, ordinal = 0;
  std::int64_t first = 0, rows = 0;
};

std::vector<Pair> pairs_of(const Side& a, const Side& b, std::vector<std::string>& notes) {
  std::vector<Pair> pairs;
  std::size_t only_a = 0, only_b = 0;
  for (const auto& [name, numbers] : a.all()) {
    const auto other = b.all().find(name);
    if (other == b.all().end()) {
      if (only_a++ < 5) notes.push_back(text("only in the first: '", shown(name, 160), "'"));
    } else if (other->second.shape != numbers.shape) {
      notes.push_back(text("'", shown(name, 160), "' has another shape in the second"));
    } else {
      pairs.push_back({.name = name, .a = &numbers, .b = &other->second});
    }
  }
  for (const auto& [name, numbers] : b.all())
    if (!a.all().contains(name) && only_b++ < 5)
      notes.push_back(text("only in the second: '", shown(name, 160), "'"));
  if (only_a > 5) notes.push_back(text("and ", only_a - 5, " more only in the first"));
  if (only_b > 5) notes.push_back(text("and ", only_b - 5, " more only in the second"));
  return pairs;
}

std::vector<Piece> pieces_of(const Side& a, const Side& b, const std::vector<Pair>& pairs) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const Pair& pair = pairs[i];
    if (pair.a->cols == 0) continue;
    const std::int64_t unit = std::lcm(a.unit(*pair.a), b.unit(*pair.b));
    const bool one_matrix =
        pair.a->shape.size() > 2 && unit > 1 && unit == pair.a->shape[pair.a->shape.size() - 2];
    const std::int64_t wanted =
        one_matrix ? 1 : std::max<std::int64_t>(1, kBandValues / pair.a->cols / unit);
    std::size_t ordinal = 0;
    for (std::int64_t first = 0; first < pair.a->rows; first += wanted * unit)
      pieces.push_back({i, ordinal++, first, std::min(wanted * unit, pair.a->rows - first)});
  }
  return pieces;
}

TensorReport report_of(const Pair& pair) {
  TensorReport out;
  out.name = pair.name;
  out.module = std::string(module_of(pair.name));
  out.shape = pair.a->shape;
  out.source = pair.a->plain != nullptr ? std::string(stored_name(pair.a->plain->entry->type))
                                        : describe(pair.a->found->weight.scaling);
  out.bytes_before = pair.a->bytes;
  out.bytes_after = pair.b->bytes;
  if (pair.b->found != nullptr) {
    out.scaling = describe(pair.b->found->weight.scaling);
    const std::size_t colon = out.scaling.find(':');
    out.preset = colon == std::string::npos ? "other" : out.scaling.substr(0, colon);
  }
  out.measured = true;
  out.metrics = pair.error.metrics();
  const std::int64_t elements = pair.a->rows * pair.a->cols;
  if (elements > 0)
    out.metrics.bits_per_value =
        8.0 * static_cast<double>(pair.b->bytes) / static_cast<double>(elements);
  const ExponentCounts& counts = pair.error.scale_counts();
  out.scale_histogram.assign(counts.begin(), counts.end());
  return out;
}

double bits_per_weight(const std::vector<Pair>& pairs) {
  double bytes = 0, elements = 0;
  for (const Pair& pair : pairs)
    if (pair.b->found != nullptr) {
      bytes += static_cast<double>(pair.b->bytes);
      elements += static_cast<double>(pair.a->rows) * static_cast<double>(pair.a->cols);
    }
  return elements > 0 ? 8 * bytes / elements : 0;
}

}  // namespace

CheckpointReport compare_checkpoints(const std::string& a_path, const std::string& b_path,
                                     const CompareOptions& options) {
  check(options.threads >= 0 && options.threads <= kMaxThreads, ErrorCode::invalid_argument, kOp,
        "got threads = ", options.threads, ", wanted 0 (all) to ", kMaxThreads);
  const Side a(a_path), b(b_path);
  CheckpointReport report;
  std::vector<Pair> pairs = pairs_of(a, b, report.notes);
  check(!pairs.empty(), ErrorCode::invalid_argument, kOp, "'", shown(a_path, 200), "' and '",
        shown(b_path, 200), "' have no tensor of the same name and shape");
  const std::vector<Piece> pieces = pieces_of(a, b, pairs);
  std::uint64_t total = 0;
  for (const Piece& piece : pieces)
    total += static_cast<std::uint64_t>(piece.rows * pairs[piece.pair].a->cols) * sizeof(float);
  WorkLoop loop(options.threads == 0 ? available_threads() : options.threads, total,
                options.on_progress);
  std::mutex merging;
  loop.run(pieces.size(), [&](int, std::size_t i) {
    const Piece& piece = pieces[i];
    Pair& pair = pairs[piece.pair];
    const Tensor before = a.values(*pair.a, piece.first, piece.rows);
    BandError error;
    if (pair.b->found != nullptr) {
      error = measure_band(before.view(), b.codes(*pair.b, piece.first, piece.rows),
                           {.first_row = piece.first});
    } else {
      const Tensor after = b.values(*pair.b, piece.first, piece.rows);
      error = measure_values(before.span<float>(), after.span<float>(), 0);
    }
    {
      const std::lock_guard lock(merging);
      pair.error.add(piece.ordinal, error);
    }
    loop.advance(static_cast<std::uint64_t>(before.nbytes()), pair.name);
  });
  loop.finish("");

  report.verb = "compare";
  const std::filesystem::path path(b_path);
  report.title = (path.has_filename() ? path : path.parent_path()).filename().string();
  report.source = a_path;
  report.output = b_path;
  report.bytes_before = a.checkpoint().nbytes();
  report.bytes_after = b.checkpoint().nbytes();
  report.bits_per_weight = bits_per_weight(pairs);
  report.seconds = loop.seconds();
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& x, const Pair& y) { return natural_less(x.name, y.name); });
  for (const Pair& pair : pairs) report.tensors.push_back(report_of(pair));
  return report;
}

}  // namespace octavo
