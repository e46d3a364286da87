// Compares two checkpoints: tensors are paired by name, read as values and measured in row blocks.
#include "octavo/pipeline/compare_checkpoints.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <set>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/checkpoint/dialect/static_scales_internal.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/pipeline/compare_side_internal.h"
#include "octavo/pipeline/stream/work_loop_internal.h"
#include "octavo/report/expected_error_internal.h"
#include "octavo/report/row_block_error.h"
#include "octavo/report/value_error.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "compare";
constexpr std::int64_t kRowBlockValues = 1 << 17;  // f32 values: half a megabyte per side

struct Pair {
  std::string name;
  ComparedNumbers a{}, b{};
  TensorError error{};
  std::int64_t same_non_finite = 0;
  std::size_t pieces = 0, done = 0;
};
struct Piece {
  std::size_t pair = 0, ordinal = 0;
  std::int64_t first = 0, rows = 0;
};

// Up to five names, and how many more there are.
void note_names(std::string_view what, const std::vector<std::string>& names,
                std::vector<std::string>& notes) {
  constexpr std::size_t kShown = 5;
  for (std::size_t i = 0; i < names.size() && i < kShown; ++i)
    notes.push_back(text("not compared, ", what, ": '", shown(names[i], 160), "'"));
  if (names.size() > kShown)
    notes.push_back(text("not compared, ", what, ": ", names.size() - kShown, " more"));
}

// Static scales and file markers, which only a quantized model has beside its weights.
bool is_dialect_tensor(std::string_view name) {
  constexpr std::array<std::string_view, 4> kOthers{"scaled_fp8", ".q_scale", ".output_scale",
                                                    ".prob_scale"};
  return is_input_scale(name) || is_cache_scale(name) ||
         std::any_of(kOthers.begin(), kOthers.end(),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

class Pairing {
 public:
  Pairing(const ComparedSide& a, const ComparedSide& b) : a_(a), b_(b) {}

  std::vector<Pair> run(CheckpointReport& report) {
    std::vector<std::string>& notes = report.notes;
    std::vector<std::string> only_a, only_b, other_shape;
    for (const auto& [name, numbers] : a_.all()) {
      const auto other = b_.all().find(name);
      if (other == b_.all().end()) {
        only_a.push_back(name);
      } else if (other->second.shape != numbers.shape) {
        other_shape.push_back(name);
      } else {
        pairs_.push_back({.name = name, .a = numbers, .b = other->second});
      }
    }
    for (const auto& [name, numbers] : b_.all())
      if (!a_.all().contains(name)) only_b.push_back(name);
    match_stacks(a_, only_a, b_, only_b, false);
    match_stacks(b_, only_b, a_, only_a, true);
    note_names("only in the first", only_a, notes);
    note_names("only in the second", only_b, notes);
    note_names("of another shape in the second", other_shape, notes);
    for (const std::vector<std::string>* const names : {&only_a, &only_b, &other_shape})
      std::copy_if(names->begin(), names->end(), std::back_inserter(report.not_compared),
                   [](const std::string& name) { return !is_dialect_tensor(name); });
    if (a_.unknown() + b_.unknown() > 0)
      notes.push_back(text("not compared: ", counted(a_.unknown(), "tensor"), " of the first and ",
                           b_.unknown(),
                           " of the second, with numbers of no type that octavo "
                           "knows"));
    return std::move(pairs_);
  }

 private:
  // Pairs an expert stack on one side with its matrices on the other.
  void match_stacks(const ComparedSide& stacked, std::vector<std::string>& only_stacked,
                    const ComparedSide& apart, std::vector<std::string>& only_apart,
                    bool second_is_stacked) {
    std::set<std::string> matched;
    std::erase_if(only_stacked, [&](const std::string& name) {
      const auto parts = stacked.split_experts(name, stacked.all().at(name));
      const auto fits = [&](const auto& part) {
        const auto other = apart.all().find(part.first);
        return other != apart.all().end() && other->second.shape == part.second.shape;
      };
      if (parts.empty() || !std::all_of(parts.begin(), parts.end(), fits)) return false;
      for (const auto& [part, numbers] : parts) {
        const ComparedNumbers& other = apart.all().at(part);
        pairs_.push_back({.name = part,
                          .a = second_is_stacked ? other : numbers,
                          .b = second_is_stacked ? numbers : other});
        matched.insert(part);
      }
      return true;
    });
    std::erase_if(only_apart, [&](const std::string& name) { return matched.contains(name); });
  }

  const ComparedSide &a_, &b_;
  std::vector<Pair> pairs_;
};

// Counts equal non-finite values: NaN equals NaN, whatever its bits; a mask has the same Inf on
// both sides. Values that only overflow f32 are distinguished in the type they are stored in.
std::int64_t same_non_finite(const Tensor& before, const Tensor& after) {
  const auto value = [](const Tensor& tensor, std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    return tensor.view().dtype == DType::f64 ? tensor.span<double>()[at]
                                             : static_cast<double>(tensor.span<float>()[at]);
  };
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < element_count(before.shape()); ++i) {
    const double a = value(before, i), b = value(after, i);
    if (std::isfinite(static_cast<float>(a))) continue;
    count += a == b || (std::isnan(a) && std::isnan(b));
  }
  return count;
}

std::vector<Piece> pieces_of(const ComparedSide& a, const ComparedSide& b,
                             std::vector<Pair>& pairs) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    Pair& pair = pairs[i];
    if (pair.a.cols == 0) continue;
    const std::int64_t unit = std::lcm(a.unit(pair.a), b.unit(pair.b));
    const bool one_matrix =
        pair.a.shape.size() > 2 && unit > 1 && unit == pair.a.shape[pair.a.shape.size() - 2];
    // A transposed matrix is read whole: its rows are stored columns.
    const bool whole = pair.a.transposed || pair.b.transposed;
    const std::int64_t wanted =
        whole        ? std::max<std::int64_t>(1, (pair.a.rows + unit - 1) / unit)
        : one_matrix ? 1
                     : std::max<std::int64_t>(1, kRowBlockValues / pair.a.cols / unit);
    std::size_t ordinal = 0;
    for (std::int64_t first = 0; first < pair.a.rows; first += wanted * unit)
      pieces.push_back({i, ordinal++, first, std::min(wanted * unit, pair.a.rows - first)});
    pair.pieces = ordinal;
  }
  return pieces;
}

TensorReport report_of(const Pair& pair, ExpectedErrors& expected) {
  TensorReport out;
  out.name = pair.name;
  out.module = std::string(module_of(pair.name));
  out.shape = pair.a.shape;
  out.source = pair.a.plain != nullptr ? std::string(stored_name(pair.a.plain->entry->type))
                                       : describe(pair.a.found->weight.scaling);
  out.bytes_before = pair.a.bytes;
  out.bytes_after = pair.b.bytes;
  if (pair.b.found != nullptr) {
    out.scaling = describe(pair.b.found->weight.scaling);
    const std::size_t colon = out.scaling.find(':');
    out.preset = colon == std::string::npos ? "other" : out.scaling.substr(0, colon);
    // What plain weights lose; two quantizations beside each other have no such anchor.
    if (pair.a.plain != nullptr) {
      const ExpectedError normal = expected.of(pair.b.found->weight.scaling, pair.a.shape);
      out.expected_sqnr = normal.sqnr;
      out.expected_cosine = normal.cosine;
    }
  }
  out.measured = true;
  out.metrics = pair.error.metrics();
  out.same_non_finite = pair.same_non_finite;
  const std::int64_t elements = pair.a.rows * pair.a.cols;
  if (elements > 0)
    out.metrics.bits_per_value =
        8.0 * static_cast<double>(pair.b.bytes) / static_cast<double>(elements);
  const ExponentCounts& counts = pair.error.scale_counts();
  out.scale_histogram.assign(counts.begin(), counts.end());
  return out;
}

double bits_per_weight(const std::vector<Pair>& pairs) {
  double bytes = 0, elements = 0;
  for (const Pair& pair : pairs)
    if (pair.b.found != nullptr) {
      bytes += static_cast<double>(pair.b.bytes);
      elements += static_cast<double>(pair.a.rows) * static_cast<double>(pair.a.cols);
    }
  return elements > 0 ? 8 * bytes / elements : 0;
}

}  // namespace

CheckpointReport compare_checkpoints(const std::string& a_path, const std::string& b_path,
                                     const CompareOptions& options) {
  check(options.threads >= 0 && options.threads <= kMaxThreads, ErrorCode::invalid_argument, kOp,
        "got threads = ", options.threads, "; expected 0 (all) to ", kMaxThreads);
  const ComparedSide a(a_path), b(b_path);
  CheckpointReport report;
  std::vector<Pair> pairs = Pairing(a, b).run(report);
  check(!pairs.empty(), ErrorCode::invalid_argument, kOp, "'", shown(a_path, 200), "' and '",
        shown(b_path, 200), "' have no tensor of the same name and shape");
  const std::vector<Piece> pieces = pieces_of(a, b, pairs);
  std::uint64_t total = 0;
  for (const Piece& piece : pieces)
    total += static_cast<std::uint64_t>(piece.rows * pairs[piece.pair].a.cols) * sizeof(float);
  WorkLoop loop(options.threads == 0 ? available_threads() : options.threads, total,
                options.on_progress);
  std::mutex merging;
  loop.run(pieces.size(), [&](int, std::size_t i) {
    const Piece& piece = pieces[i];
    Pair& pair = pairs[piece.pair];
    const Tensor before = a.values(pair.a, piece.first, piece.rows);
    RowBlockError error;
    std::int64_t same = 0;
    if (pair.b.found != nullptr) {
      error = measure_row_block(before.view(), b.codes(pair.b, piece.first, piece.rows),
                                {.first_row = piece.first});
    } else if (pair.a.integers || pair.b.integers) {
      error = measure_values(a.all_digits(pair.a, piece.first, piece.rows),
                             b.all_digits(pair.b, piece.first, piece.rows), 0);
    } else {
      const Tensor after = b.values(pair.b, piece.first, piece.rows);
      error = measure_values(before.span<float>(), after.span<float>(), 0);
      if (error.count < error.elements)
        same = same_non_finite(a.wide_values(pair.a, piece.first, piece.rows),
                               b.wide_values(pair.b, piece.first, piece.rows));
    }
    {
      const std::lock_guard lock(merging);
      pair.error.add(piece.ordinal, error);
      pair.same_non_finite += same;
      if (++pair.done == pair.pieces) pair.error.settle();
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
  std::vector<double> orders;
  for (const Pair& pair : pairs) {
    TensorReport of;
    of.metrics = pair.error.metrics();
    of.same_non_finite = pair.same_non_finite;
    orders.push_back(order_of(of));
  }
  const std::vector<bool> shown = with_histograms(orders);
  report.tensors.reserve(pairs.size());
  ExpectedErrors expected;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    report.tensors.push_back(report_of(pairs[i], expected));
    if (!shown[i]) drop_histograms(report.tensors.back());
    pairs[i].error = TensorError();
  }
  return report;
}

}  // namespace octavo
