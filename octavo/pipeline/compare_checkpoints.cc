// Compares two checkpoints: tensors are paired by name, read as values and measured in row blocks.
#include "octavo/pipeline/compare_checkpoints.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <numeric>

#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/checkpoint/module_role.h"
#include "octavo/pipeline/compare_pairs_internal.h"
#include "octavo/pipeline/stream/work_loop_internal.h"
#include "octavo/report/expected_error_internal.h"
#include "octavo/report/row_block_error.h"
#include "octavo/report/value_error.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "compare";

struct Measured {
  TensorError error{};
  std::int64_t same_non_finite = 0;
  std::size_t pieces = 0, done = 0;
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

void note_unpaired(const ComparedSide& a, const ComparedSide& b, const Unpaired& unpaired,
                   CheckpointReport& report) {
  note_names("only in the first", unpaired.only_a, report.notes);
  note_names("only in the second", unpaired.only_b, report.notes);
  note_names("of another shape in the second", unpaired.other_shape, report.notes);
  for (const auto* const names : {&unpaired.only_a, &unpaired.only_b, &unpaired.other_shape})
    std::copy_if(names->begin(), names->end(), std::back_inserter(report.not_compared),
                 [](const std::string& name) { return !is_dialect_tensor(name); });
  if (a.unknown() + b.unknown() > 0)
    report.notes.push_back(text("not compared: ", counted(a.unknown(), "tensor"),
                                " of the first and ", b.unknown(),
                                " of the second, with numbers of no type that octavo knows"));
}

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

TensorReport report_of(const ComparedPair& pair, const Measured& measured,
                       ExpectedErrors& expected) {
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
  out.metrics = measured.error.metrics();
  out.same_non_finite = measured.same_non_finite;
  const std::int64_t elements = pair.a.rows * pair.a.cols;
  if (elements > 0)
    out.metrics.bits_per_value =
        8.0 * static_cast<double>(pair.b.bytes) / static_cast<double>(elements);
  const ExponentCounts& counts = measured.error.scale_counts();
  out.scale_histogram.assign(counts.begin(), counts.end());
  return out;
}

double bits_per_weight(const std::vector<ComparedPair>& pairs) {
  double bytes = 0, elements = 0;
  for (const ComparedPair& pair : pairs)
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
  Unpaired unpaired;
  const std::vector<ComparedPair> pairs = pair_tensors(a, b, unpaired);
  note_unpaired(a, b, unpaired, report);
  check(!pairs.empty(), ErrorCode::invalid_argument, kOp, "'", shown(a_path, 200), "' and '",
        shown(b_path, 200), "' have no tensor of the same name and shape");
  const std::vector<ComparedPiece> pieces = pieces_of(a, b, pairs);
  std::vector<Measured> measured(pairs.size());
  std::uint64_t total = 0;
  for (const ComparedPiece& piece : pieces) {
    total += static_cast<std::uint64_t>(piece.rows * pairs[piece.pair].a.cols) * sizeof(float);
    ++measured[piece.pair].pieces;
  }
  WorkLoop loop(options.threads == 0 ? available_threads() : options.threads, total,
                options.on_progress);
  std::mutex merging;
  loop.run(pieces.size(), [&](int, std::size_t i) {
    const ComparedPiece& piece = pieces[i];
    const ComparedPair& pair = pairs[piece.pair];
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
      Measured& of = measured[piece.pair];
      of.error.add(piece.ordinal, error);
      of.same_non_finite += same;
      if (++of.done == of.pieces) of.error.settle();
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
  std::vector<std::size_t> order(pairs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
    return natural_less(pairs[x].name, pairs[y].name);
  });
  std::vector<double> orders;
  for (const std::size_t i : order) {
    TensorReport of;
    of.metrics = measured[i].error.metrics();
    of.same_non_finite = measured[i].same_non_finite;
    orders.push_back(order_of(of));
  }
  const std::vector<bool> shown = with_histograms(orders);
  report.tensors.reserve(pairs.size());
  ExpectedErrors expected;
  for (std::size_t i = 0; i < order.size(); ++i) {
    report.tensors.push_back(report_of(pairs[order[i]], measured[order[i]], expected));
    if (!shown[i]) drop_histograms(report.tensors.back());
    measured[order[i]].error = TensorError();
  }
  return report;
}

}  // namespace octavo
