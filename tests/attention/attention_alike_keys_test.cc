// A few similar keys aligned with the query share its weight, each with an error of its own in its
// score. Sums in f16 are too coarse for such scores: rows over the error bound are recomputed, and
// the result of a row does not depend on whether others are.
#include <algorithm>
#include <numeric>
#include <tuple>

#include "tests/attention/attention_cases.h"
#include "tests/support/sanitizer.h"

namespace octavo::testing {
namespace {

constexpr std::int64_t kKeys = 256;
constexpr std::array<std::int64_t, 3> kAlike = {10, 100, 150};

struct Alike {
  std::int64_t depth = 128, queries = 64;
  std::size_t keys = 2;  // that are alike
  double score = 12.0;   // theirs, to the first query
  unsigned seed = 1;
  std::int64_t heads = 1, kv_heads = 1;

  [[nodiscard]] std::string name() const {
    return std::to_string(keys) + " keys of score " + std::to_string(score) + ", D " +
           std::to_string(depth) + ", " + std::to_string(queries) + " rows, seed " +
           std::to_string(seed);
  }
};

// Queries are one direction and a little noise. So are the similar keys; the others are independent
// of it. Values are normal, so that those of two keys differ by several units in some channel.
Made alike_inputs(const Alike& one, DType dtype = DType::f32) {
  std::mt19937_64 random(one.seed);
  std::normal_distribution<float> normal;
  const auto drawn = [&](std::int64_t n) {
    std::vector<float> numbers(static_cast<std::size_t>(n));
    for (float& number : numbers) number = normal(random);
    return numbers;
  };
  const auto size = static_cast<std::size_t>(one.depth);
  std::vector<float> q, k;
  for (std::int64_t head = 0; head < one.kv_heads; ++head) {
    const std::vector<float> along = drawn(one.depth);
    for (std::int64_t i = 0; i < one.queries * (one.heads / one.kv_heads); ++i)
      for (const float number : along) q.push_back(number + 0.02F * normal(random));
    std::vector<float> keys = drawn(kKeys * one.depth);
    for (float& number : keys) number *= 0.5F;
    const double squares = std::inner_product(along.begin(), along.end(), along.begin(), 0.0);
    const auto factor = static_cast<float>(one.score * std::sqrt(one.depth) / squares);
    for (std::size_t i = 0; i < one.keys; ++i)
      for (std::size_t d = 0; d < size; ++d)
        keys[static_cast<std::size_t>(kAlike[i]) * size + d] =
            factor * (along[d] + 0.02F * normal(random));
    k.insert(k.end(), keys.begin(), keys.end());
  }
  Made made;
  made.q = tensor_of({1, one.heads, one.queries, one.depth}, q, dtype);
  made.k = tensor_of({1, one.kv_heads, kKeys, one.depth}, k, dtype);
  made.v = tensor_of({1, one.kv_heads, kKeys, one.depth}, drawn(one.kv_heads * kKeys * one.depth),
                     dtype);
  return made;
}

struct Codes {
  QuantizedTensor q, k, v;
  explicit Codes(const Made& made)
      : q(quantize(made.q.view(), preset("fp8-channel"))),
        k(quantize(made.k.view(), preset("fp8-channel"))),
        v(quantize(made.v.view(), preset("fp8-channel"))) {}
};

std::vector<BackendInfo> backends() {
  std::vector<BackendInfo> all = support::every_backend();
  std::erase_if(all, [](const BackendInfo& one) { return one.name == "reference"; });
  return all;
}

// What rows of one head are, in f64.
oracle::Rows exact_rows(const View& q, const View& k, const View& v, const oracle::Sees& sees) {
  const oracle::Rows queries = rows_of(q, 0, 0), keys = rows_of(k, 0, 0), values = rows_of(v, 0, 0);
  oracle::Rows exact;
  for (const std::vector<double>& query : queries)
    exact.push_back(oracle::attended(query, keys, values,
                                     1.0 / std::sqrt(static_cast<double>(query.size())), sees,
                                     static_cast<std::int64_t>(exact.size()))
                        .out);
  return exact;
}
Errors errors_of(const Tensor& out, const oracle::Rows& exact) {
  Errors errors;
  const oracle::Rows got = rows_of(out.view(), 0, 0);
  for (std::size_t row = 0; row < exact.size(); ++row)
    for (std::size_t e = 0; e < exact[row].size(); ++e) errors.add(got[row][e], exact[row][e]);
  return errors;
}

void expect_within_the_gate(const Alike& one, bool causal) {
  const Codes codes(alike_inputs(one));
  const oracle::Rows exact =
      exact_rows(dequantize(codes.q).view(), dequantize(codes.k).view(), dequantize(codes.v).view(),
                 {.causal = causal, .diagonal = kKeys - one.queries});
  for (const BackendInfo& backend : backends())
    for (const AttentionRung rung :
         {AttentionRung::strict, AttentionRung::bf16, AttentionRung::automatic}) {
      const Tensor out = attention(codes.q, codes.k, codes.v,
                                   {.rung = rung,
                                    .mask = {.causal = causal, .bottom_right = true},
                                    .out = DType::f32,
                                    .backend = backend.kernels});
      const Errors errors = errors_of(out, exact);
      EXPECT_EQ(errors.failures, 0) << octavo::name_of(rung) << " on " << backend.name << ", "
                                    << one.name() << (causal ? ", causal" : "") << ": " << errors;
    }
}

std::vector<double> scores() { return support::some_of<double>({4.0, 7.0, 12.0, 18.0, 22.0}); }

TEST(AttentionAlikeKeys, AreWithinTheGate) {
  const unsigned seeds = support::under_sanitizer() ? 1 : 2;
  for (const std::int64_t depth : {64, 128, 256})
    for (const std::size_t keys : {2U, 3U})
      for (const double score : scores())
        for (unsigned seed = 1; seed <= seeds; ++seed)
          expect_within_the_gate({.depth = depth, .keys = keys, .score = score, .seed = seed},
                                 seed % 2 == 0);
}
// Depth and number of queries.
class AttentionAlikeKeysDecode
    : public ::testing::TestWithParam<std::tuple<std::int64_t, std::int64_t>> {};

TEST_P(AttentionAlikeKeysDecode, AreWithinTheGate) {
  const auto [depth, queries] = GetParam();
  for (const std::size_t keys : {2U, 3U})
    for (const double score : scores())
      for (const unsigned seed : {1U, 2U, 3U})
        expect_within_the_gate(
            {.depth = depth, .queries = queries, .keys = keys, .score = score, .seed = seed},
            seed % 2 == 0);
}
INSTANTIATE_TEST_SUITE_P(All, AttentionAlikeKeysDecode,
                         ::testing::Combine(::testing::Values(64, 128, 256),
                                            ::testing::Values(1, 5, 16)));

// Values of bf16, which `strict` quantizes itself: it is held to its own inputs.
TEST(AttentionAlikeKeys, OfValuesAreWithinTheGate) {
  for (const std::int64_t depth : {64, 128})
    for (const std::int64_t queries : {4, 64})
      for (const double score : {4.0, 12.0, 22.0}) {
        const Alike one{.depth = depth, .queries = queries, .score = score, .seed = 5};
        const Made made = alike_inputs(one, DType::bf16);
        const AttentionInputs own =
            attention_inputs(made.q, made.k, made.v, {.rung = AttentionRung::strict});
        const oracle::Rows exact = exact_rows(made.q.view(), made.k.view(), made.v.view(), {}),
                           exact_of_own = exact_rows(own.q.view(), own.k.view(), own.v.view(), {});
        for (const BackendInfo& backend : backends())
          for (const AttentionRung rung :
               {AttentionRung::strict, AttentionRung::bf16, AttentionRung::automatic}) {
            const Tensor out =
                attention(made.q, made.k, made.v,
                          {.rung = rung, .out = DType::f32, .backend = backend.kernels});
            const Errors errors =
                errors_of(out, rung == AttentionRung::strict ? exact_of_own : exact);
            EXPECT_EQ(errors.failures, 0) << octavo::name_of(rung) << " on " << backend.name << ", "
                                          << one.name() << ": " << errors;
          }
      }
}

// Outputs and log-sum-exps of `strict`.
struct Results {
  std::vector<float> out, lse;
  bool operator==(const Results&) const = default;
};
Results results_of(const Codes& codes, const BackendInfo& backend, int threads = 2,
                   const View& bias = {}, std::span<const AttentionRange> ranges = {}) {
  const Shape shape = codes.q.shape;
  const Tensor lse = Tensor::values({shape[0], shape[1], shape[2]}, DType::f32);
  std::ranges::fill(lse.span<float>(), 7.0F);
  const Tensor out = Tensor::values(shape, DType::f32);
  std::ranges::fill(out.span<float>(), 7.0F);
  attention_into(codes.q, codes.k, codes.v, out.view(),
                 {.rung = AttentionRung::strict,
                  .mask = {.bias = bias},
                  .log_sum_exp = lse.view(),
                  .ranges = ranges,
                  .threads = threads,
                  .backend = backend.kernels});
  const auto numbers = [](const Tensor& tensor) {
    return std::vector<float>(tensor.span<float>().begin(), tensor.span<float>().end());
  };
  return {numbers(out), numbers(lse)};
}

// Every `step`th row from `first` on attends to other keys: it need not be recomputed.
Made with_other_rows(const Made& made, std::int64_t first, std::int64_t step) {
  const Shape shape = made.q.shape();
  const auto size = static_cast<std::size_t>(shape[3]);
  Made other = made;
  other.q = Tensor::values(shape, DType::f32);
  const std::span<float> from = made.q.span<float>(), to = other.q.span<float>();
  std::ranges::copy(from, to.begin());
  for (std::int64_t row = first; row < shape[1] * shape[2]; row += step)
    for (std::size_t d = 0; d < size; ++d)
      to[static_cast<std::size_t>(row) * size + d] *= d % 2 == 0 ? 0.1F : -0.1F;
  return other;
}

TEST(AttentionAlikeKeys, RowsDoNotDependOnThoseBesideThem) {
  for (const std::int64_t queries : {1, 5, 150}) {
    const Alike one{.depth = 64, .queries = queries, .heads = 3, .kv_heads = 1};
    const Made made = alike_inputs(one), mixed = with_other_rows(made, 1, 3),
               most = with_other_rows(mixed, 2, 3);
    const Codes all_codes(made), mixed_codes(mixed), most_codes(most);
    for (const BackendInfo& backend : backends()) {
      const Results all = results_of(all_codes, backend), some = results_of(mixed_codes, backend),
                    few = results_of(most_codes, backend);
      for (std::int64_t row = 0; row < 3 * queries; ++row) {
        const auto is_same = [&](const Results& a, const Results& b) {
          const auto at = a.out.begin() + row * 64, other = b.out.begin() + row * 64;
          const auto place = static_cast<std::size_t>(row);
          return std::equal(at, at + 64, other) && a.lse[place] == b.lse[place];
        };
        const Results &one_way = row % 3 == 1 ? some : all, &another = row % 3 == 2 ? some : few;
        ASSERT_TRUE(is_same(one_way, another))
            << backend.name << ", row " << row << " of " << queries;
      }
    }
  }
}

TEST(AttentionAlikeKeys, ThreadsAndRangesChangeNothing) {
  for (const std::int64_t queries : {4, 150}) {
    const Alike one{.depth = 128, .queries = queries, .heads = 4, .kv_heads = 2};
    const Codes codes(with_other_rows(alike_inputs(one), 1, 3));
    for (const BackendInfo& backend : backends()) {
      const Results alone = results_of(codes, backend, 1);
      for (const int threads : {2, 5})
        EXPECT_EQ(alone, results_of(codes, backend, threads)) << backend.name;
      if (queries < 16) continue;  // with ranges, they do not take the decode path
      const AttentionRange ranges[] = {{0, 1, 0, 70}, {0, 3, 0, 150}, {0, 1, 70, 80}};
      const Results some = results_of(codes, backend, 2, {}, ranges);
      for (const std::int64_t head : {0, 1, 2, 3})
        for (std::int64_t i = 0; i < queries; ++i) {
          const auto row = static_cast<std::size_t>(head * queries + i);
          ASSERT_EQ(some.lse[row], head % 2 == 0 ? 7.0F : alone.lse[row]) << backend.name;
          ASSERT_EQ(some.out[row * 128], head % 2 == 0 ? 7.0F : alone.out[row * 128])
              << backend.name;
        }
    }
  }
}

// A bias that takes away what a score has leaves its error: keys whose scores are 12 weigh as much
// as those of none.
TEST(AttentionAlikeKeys, WithABiasAreWithinTheGate) {
  const Alike one{.depth = 128, .queries = 40, .score = 18.0};
  const Codes codes(alike_inputs(one));
  const Tensor q = dequantize(codes.q), k = dequantize(codes.k), v = dequantize(codes.v);
  const oracle::Rows q_rows = rows_of(q.view(), 0, 0), k_rows = rows_of(k.view(), 0, 0),
                     v_rows = rows_of(v.view(), 0, 0);
  for (const float amount : {-17.0F, -1000.0F, 1000.0F}) {
    const Tensor bias = Tensor::values({1, 1, 1, kKeys}, DType::f32);
    for (std::int64_t key = 0; key < kKeys; ++key) {
      const bool is_alike = key == kAlike[0] || key == kAlike[1];
      bias.span<float>()[static_cast<std::size_t>(key)] = amount != -17.0F ? amount
                                                          : is_alike       ? amount
                                                                           : -9.0F;
    }
    // One more channel of K has the bias, and Q what undoes the softmax scale.
    oracle::Rows k_biased = k_rows;
    for (std::size_t key = 0; key < k_rows.size(); ++key)
      k_biased[key].push_back(static_cast<double>(bias.span<float>()[key]));
    for (const BackendInfo& backend : backends()) {
      const Results got = results_of(codes, backend, 2, bias.view());
      Errors errors;
      for (std::size_t row = 0; row < q_rows.size(); ++row) {
        std::vector<double> q_biased = q_rows[row];
        q_biased.push_back(std::sqrt(128.0));
        const oracle::AttendedRow exact =
            oracle::attended(q_biased, k_biased, v_rows, 1.0 / std::sqrt(128.0), {}, 0);
        for (std::size_t e = 0; e < 128; ++e)
          errors.add(static_cast<double>(got.out[row * 128 + e]), exact.out[e]);
      }
      EXPECT_EQ(errors.failures, 0) << backend.name << ", bias " << amount << ": " << errors;
    }
  }
}

}  // namespace
}  // namespace octavo::testing
