// Preparation of Q and K (smoothing, Hadamard rotation) has the bits of reference on every backend
// that offers it, and its inverse restores the input.
#include "octavo/backend/attention_job.h"
#include "tests/attention/attention_cases.h"

namespace octavo::testing {
namespace {

AttentionOperand operand_of(const Tensor& tensor) {
  const View& view = tensor.view();
  AttentionOperand operand{.batch_pitch = view.strides[0], .head_pitch = view.strides[1]};
  operand.first.values = {.data = view.data,
                          .dtype = view.dtype,
                          .rows = view.shape[2],
                          .cols = view.shape[3],
                          .row_pitch = view.strides[2],
                          .col_stride = view.strides[3]};
  return operand;
}

struct Prepared {
  Tensor to, mean;
};

Prepared prepare(const Kernels& kernels, const Tensor& from,
                 const std::vector<std::int64_t>& lengths, bool smooth, bool hadamard,
                 const Tensor* undo_mean = nullptr) {
  const Shape& shape = from.shape();
  Prepared made{Tensor::values(shape, DType::f32),
                undo_mean != nullptr ? *undo_mean
                                     : Tensor::values({shape[0], shape[1], shape[3]}, DType::f32)};
  AttentionPrepareJob job{.batches = shape[0], .heads = shape[1]};
  job.from = operand_of(from);
  job.to = operand_of(made.to);
  job.lengths = lengths.empty() ? nullptr : lengths.data();
  job.mean = smooth ? made.mean.span<float>().data() : nullptr;
  job.hadamard = hadamard;
  job.undo = undo_mean != nullptr;
  kernels.attention_prepare({.threads = 2}, job);
  return made;
}

TEST(AttentionPrepare, BitsOfReference) {
  for (const BackendInfo& backend : support::every_backend()) {
    if (backend.kernels->attention_prepare == nullptr) continue;
    for (const std::int64_t depth : {1, 8, 24, 33, 34, 36, 64, 80, 128, 256})
      for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
        const Sizes sizes{.batches = 2,
                          .kv_heads = 3,
                          .queries = 1,
                          .keys = 37,
                          .depth = std::max<std::int64_t>(depth, 4),
                          .width = depth};
        const Tensor from = make_inputs(sizes, Kind::biased, 3, dtype).v;
        for (const bool smooth : {false, true})
          for (const bool hadamard : {false, true})
            for (const std::vector<std::int64_t>& lengths :
                 {std::vector<std::int64_t>{}, std::vector<std::int64_t>{20, 0}}) {
              const Prepared want = prepare(reference_backend(), from, lengths, smooth, hadamard),
                             got = prepare(*backend.kernels, from, lengths, smooth, hadamard);
              EXPECT_TRUE(std::ranges::equal(want.to.bytes(), got.to.bytes()))
                  << backend.name << ", D " << depth << ", smooth " << smooth << ", hadamard "
                  << hadamard << ", " << dtype_name(dtype);
              EXPECT_TRUE(!smooth || std::ranges::equal(want.mean.bytes(), got.mean.bytes()))
                  << backend.name << ", D " << depth;
            }
      }
  }
}

// Statistics of values have the same bits: `auto` must sample the same rows on every backend. Codes
// times scales are rounded to f32 by some, 2^-24, and squared.
TEST(AttentionPrepare, StatisticsOfReference) {
  constexpr std::int64_t kRows = 300, kStep = 128;
  const std::int64_t lengths[] = {300, 130};
  for (const BackendInfo& backend : support::every_backend()) {
    if (backend.kernels->attention_statistics == nullptr) continue;
    for (const std::int64_t depth : {1, 40, 1032})
      for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
        for (const float bad : {1.0F, std::numeric_limits<float>::quiet_NaN()}) {
          const Sizes sizes{
              .batches = 2, .kv_heads = 2, .queries = 1, .keys = kRows, .depth = 4, .width = depth};
          std::vector<float> numbers;
          const Tensor made = make_inputs(sizes, Kind::biased, 3, DType::f32).v;
          numbers.assign(made.span<float>().begin(), made.span<float>().end());
          numbers[static_cast<std::size_t>(200 * depth)] = bad;
          const Tensor of = tensor_of(made.shape(), numbers, dtype);
          AttentionStatisticsJob job{.batches = 2, .heads = 2, .lengths = lengths};
          job.of = operand_of(of);
          job.rows_per_range = kStep;
          std::vector<AttentionStatistics> want(2 * 2 * 3), got(want.size());
          job.result = want.data();
          reference_backend().attention_statistics({.threads = 1}, job);
          job.result = got.data();
          backend.kernels->attention_statistics({.threads = 3}, job);
          const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
          for (std::size_t i = 0; i < got.size(); ++i) {
            const AttentionStatistics &a = want[i], &b = got[i];
            EXPECT_TRUE(a.row == b.row && same(a.row_squares, b.row_squares) &&
                        same(a.mean_squares, b.mean_squares) &&
                        same(a.channel_squares, b.channel_squares) && same(a.amax, b.amax))
                << backend.name << ", D " << depth << ", " << dtype_name(dtype) << ", range " << i
                << ": row " << b.row << " for " << a.row;
          }
        }
  }
}

// Orthogonal: lengths stay, and going back gives the values, within f32's roundings: log2(D) + 2
// of them each way, 2^-24 of a row's length each.
TEST(AttentionPrepare, UndoneIsWhatWasThere) {
  for (const std::int64_t depth : {4, 24, 80, 128}) {
    const Sizes sizes{.kv_heads = 2, .queries = 1, .keys = 19, .depth = depth};
    const Tensor from = make_inputs(sizes, Kind::outlier, 3, DType::f32).k;
    const Prepared rotated = prepare(reference_backend(), from, {}, true, true);
    const Prepared back = prepare(reference_backend(), rotated.to, {}, true, true, &rotated.mean);
    const oracle::Rows a = rows_of(from.view(), 0, 1), b = rows_of(back.to.view(), 0, 1),
                       t = rows_of(rotated.to.view(), 0, 1);
    for (std::size_t d = 0; d < a[0].size(); ++d) {
      double mean = 0.0;
      for (const auto& row : a) mean += row[d] / static_cast<double>(a.size());
      EXPECT_NEAR(static_cast<double>(rotated.mean.span<float>()[a[0].size() + d]), mean, 1e-6);
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
      double before = 0.0, after = 0.0;
      for (std::size_t d = 0; d < a[i].size(); ++d) {
        const double centred =
            a[i][d] - static_cast<double>(rotated.mean.span<float>()[a[0].size() + d]);
        before += centred * centred;
        after += t[i][d] * t[i][d];
        EXPECT_NEAR(a[i][d], b[i][d], 20 * 0x1p-24 * 20.0) << "D " << depth;
      }
      EXPECT_NEAR(before, after, 1e-5 * before) << "D " << depth;
    }
  }
}

}  // namespace
}  // namespace octavo::testing
