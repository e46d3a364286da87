// A search for a row above its certified bound, on every backend and rung, against the oracle:
// random calls of every combination of masks, lengths, soft caps, sinks, biases, grouped heads,
// types and codes, with tokens of very different sizes; and hill climbing from small calls to
// larger shares of the bound.
#include <iostream>
#include <map>

#include "tests/attention/attention_oracle_bounds.h"

namespace octavo::testing {
namespace {

using Random = std::mt19937_64;

std::int64_t drawn(Random& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}
bool one_in(Random& random, std::int64_t n) { return drawn(random, 1, n) == 1; }
template <typename T>
T one_of(Random& random, std::initializer_list<T> all) {
  return all.begin()[drawn(random, 0, static_cast<std::int64_t>(all.size()) - 1)];
}

// What a call of the search is made of; options view the rest.
struct Drawn {
  Sizes sizes;
  Made made;
  DType dtype = DType::f32;
  std::vector<std::int64_t> query_lengths, key_lengths;
  std::vector<float> sinks;
  Tensor bias;
  AttentionOptions options{};

  [[nodiscard]] std::string name() const {
    const AttentionMask& mask = options.mask;
    std::string all = "queries " + std::to_string(sizes.queries) + " keys " +
                      std::to_string(sizes.keys) + " depth " + std::to_string(sizes.depth) +
                      " type " + std::string(dtype_name(dtype));
    const auto add = [&](bool has, const char* what) { all += has ? what : ""; };
    add(mask.causal, " causal");
    add(mask.left >= 0, " window");
    add(mask.bottom_right, " bottom right");
    add(!key_lengths.empty(), " lengths");
    add(!sinks.empty(), " sinks");
    add(options.soft_cap != 0.0, " soft cap");
    add(bias.owner() != nullptr, " bias");
    return all;
  }
};

// Tokens in two parts, of which a causal row sees the first: sizes and means may be powers of ten
// apart, between tokens and between channels.
void edit_tokens(const Tensor& tensor, Random& random, float most) {
  const Shape& shape = tensor.shape();
  const auto numbers = tensor.span<float>();
  const std::int64_t rows = shape[2], cols = shape[3], edge = drawn(random, 0, rows);
  const auto size = [&] {
    return one_in(random, 2)
               ? 1.0F
               : std::pow(10.0F, most * static_cast<float>(drawn(random, -4, 3)) / 4.0F);
  };
  const float early = size(), late = size(), mean = one_in(random, 3) ? size() : 0.0F;
  const std::int64_t channel = one_in(random, 3) ? drawn(random, 0, cols - 1) : -1;
  const float of_channel = size();
  const bool repeats = one_in(random, 4);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    const std::int64_t row = place / cols % rows, col = place % cols;
    if (repeats && row % 8 > 1)
      numbers[i] = numbers[i - static_cast<std::size_t>((row % 8 - row % 2) * cols)];
    if (row % 8 <= 1 || !repeats) {
      numbers[i] *= row < edge ? early : late;
      numbers[i] += row < edge ? 0.0F : mean;
      if (col == channel) numbers[i] *= of_channel;
    }
    if (one_in(random, 16)) numbers[i] *= 1.0F + 0x1p-8F;
  }
}

Made typed(const Made& made, DType dtype) {
  const auto one = [&](const Tensor& tensor) {
    return tensor_of(tensor.shape(), {tensor.span<float>().begin(), tensor.span<float>().end()},
                     dtype);
  };
  return {.q = one(made.q), .k = one(made.k), .v = one(made.v)};
}

Drawn drawn_call(unsigned seed) {
  Random random(seed);
  Drawn call;
  const std::int64_t group = one_of<std::int64_t>(random, {1, 2, 4}),
                     kv_heads = drawn(random, 1, 2);
  call.sizes = {.batches = drawn(random, 1, 2),
                .heads = group * kv_heads,
                .kv_heads = kv_heads,
                .queries = one_in(random, 3) ? drawn(random, 1, 3) : drawn(random, 1, 40),
                .keys = one_in(random, 3) ? drawn(random, 1, 6) : drawn(random, 1, 300),
                .depth = one_of<std::int64_t>(random, {16, 20, 64, 128})};
  const Sizes& sizes = call.sizes;
  Made wide = make_inputs(sizes, Kind::normal, seed, DType::f32);
  edit_tokens(wide.q, random, 1.0F);
  edit_tokens(wide.k, random, 2.0F);
  edit_tokens(wide.v, random, 8.0F);
  call.dtype = one_of(random, {DType::f32, DType::f32, DType::bf16, DType::f16, DType::f64});
  call.made = typed(wide, call.dtype);
  AttentionOptions& options = call.options;
  AttentionMask& mask = options.mask;
  mask.causal = one_in(random, 2);
  mask.bottom_right = one_in(random, 3);
  if (one_in(random, 3)) mask.left = drawn(random, 0, 20);
  if (!mask.causal && one_in(random, 4)) mask.right = drawn(random, 0, 20);
  if (one_in(random, 3))
    for (std::int64_t batch = 0; batch < sizes.batches; ++batch) {
      call.query_lengths.push_back(drawn(random, 0, sizes.queries));
      call.key_lengths.push_back(drawn(random, 0, sizes.keys));
    }
  mask.query_lengths = call.query_lengths;
  mask.key_lengths = call.key_lengths;
  if (one_in(random, 3)) options.soft_cap = one_of(random, {0.5, 5.0, 50.0});
  if (one_in(random, 3))
    for (std::int64_t head = 0; head < sizes.heads; ++head)
      call.sinks.push_back(static_cast<float>(drawn(random, -8, 8)));
  if (one_in(random, 4)) {
    call.bias = Tensor::values({sizes.batches, sizes.heads, sizes.queries, sizes.keys}, DType::f32);
    std::normal_distribution<float> normal;
    const float size = one_of(random, {0.1F, 3.0F, 1000.0F});
    for (float& number : call.bias.span<float>())
      number = one_in(random, 9) ? -std::numeric_limits<float>::infinity() : size * normal(random);
    mask.bias = call.bias.view();
  }
  options.softmax_scale = std::pow(10.0, static_cast<double>(drawn(random, -3, 0)));
  options.out = one_of(random, {DType::f32, DType::f32, DType::bf16, DType::f16});
  return call;
}

HeldRows held(const Drawn& call, const AttentionOptions& options, bool has_codes) {
  AttentionOptions with = options;
  with.sinks = view_of_sinks(call.sinks);
  const OracleCall of{.options = with,
                      .sinks = call.sinks,
                      .bias = call.bias.owner() != nullptr ? &call.bias : nullptr};
  if (!has_codes) return held_rows(call.made.q, call.made.k, call.made.v, of);
  return held_rows(call.made.q, quantize(call.made.k.view(), preset("fp8-channel")),
                   quantize(call.made.v.view(), preset("fp8-channel")), of);
}

struct Found {
  HeldRows rows;
  std::map<std::string, int> calls;  // by backend
};

// One call on all backends; kernels of which no bound is derived say so.
void try_everywhere(const Drawn& call, AttentionOptions options, bool has_codes, Found& found) {
  for (const BackendInfo& backend : backends_with_bounds()) {
    options.backend = backend.kernels;
    try {
      const HeldRows one = held(call, options, has_codes);
      const std::string name = call.name() + (has_codes ? ", codes, " : ", ") +
                               std::string(octavo::name_of(options.rung)) +
                               (options.certified ? " certified" : "") + " on " +
                               std::string(backend.name) + ": " + one.first;
      EXPECT_EQ(one.above, 0) << name;
      EXPECT_EQ(one.outside, 0) << name;
      found.rows.add(one);
      ++found.calls[std::string(backend.name)];
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << call.name() << ": " << error.what();
      EXPECT_NE(options.rung, AttentionRung::f32) << error.what();
    }
  }
}

void print(const Found& found) {
  std::cout << found.rows.rows << " rows, " << found.rows.unknown
            << " of an infinite bound, largest share of a bound " << found.rows.closest;
  for (const auto& [name, calls] : found.calls) std::cout << ", " << name << " " << calls;
  std::cout << " calls\n";
}

constexpr int kCalls = 160;

TEST(AttentionBoundSearch, RandomCalls) {
  Found found;
  for (unsigned seed = 0; seed < static_cast<unsigned>(kCalls); ++seed) {
    const Drawn call = drawn_call(seed);
    Random random(seed + 1000);
    AttentionOptions options = call.options;
    const bool has_codes = one_in(random, 3);
    options.rung = one_of(
        random, {AttentionRung::f32, AttentionRung::bf16, AttentionRung::f16, AttentionRung::strict,
                 AttentionRung::balanced, AttentionRung::fast, AttentionRung::automatic});
    const bool takes_codes = options.rung != AttentionRung::balanced;
    try_everywhere(call, options, has_codes && takes_codes, found);
    // What `auto` promises, for tolerances from hopeless to wide.
    options.rung = AttentionRung::automatic;
    options.certified = true;
    options.rtol = one_of(random, {0.0, 5e-3});
    double size = 0.0;  // of the first head's values
    for (const std::vector<double>& row : rows_of(call.made.v, 0, 0))
      for (const double number : row)
        if (std::isfinite(number)) size = std::max(size, std::abs(number));
    options.atol = size * std::pow(10.0, static_cast<double>(drawn(random, -6, 1)));
    try_everywhere(call, options, has_codes, found);
  }
  print(found);
  for (const auto& [name, calls] : found.calls) EXPECT_GE(calls, kCalls) << name;
  EXPECT_LE(found.rows.unknown, found.rows.rows / 5);  // of values beyond f16
}

// From a small call, numbers are moved to ties, negated, or made larger or smaller as long as the
// share of the bound grows. Few tokens and channels: there one rounding is most of an error.
TEST(AttentionBoundSearch, Climbing) {
  Found found;
  bool rounds = false;  // a backend has a bound of a rung that rounds
  for (const BackendInfo& backend : backends_with_bounds())
    for (const AttentionRung rung :
         {AttentionRung::f32, AttentionRung::bf16, AttentionRung::f16, AttentionRung::strict,
          AttentionRung::balanced, AttentionRung::fast})
      for (const bool is_decode : {false, true}) {
        Random random(static_cast<unsigned>(rung) * 2 + (is_decode ? 1U : 0U));
        Drawn call;
        call.sizes = {.queries = is_decode ? 1 : 20, .keys = drawn(random, 1, 5), .depth = 16};
        call.made = make_inputs(call.sizes, Kind::normal, 3, DType::f32);
        AttentionOptions options{.rung = rung, .out = DType::f32, .backend = backend.kernels};
        // Decode kernels are those of bf16 and of codes.
        const auto tried = [&]() -> HeldRows {
          if (!is_decode) return held(call, options, false);
          Drawn narrow = call;
          narrow.made = typed(call.made, DType::bf16);
          return held(narrow, options, rung == AttentionRung::fast);
        };
        double best = 0.0;
        try {
          for (int step = 0; step < 150; ++step) {
            const Tensor* const tensors[] = {&call.made.q, &call.made.k, &call.made.v};
            const Tensor& tensor = *tensors[drawn(random, 0, 2)];
            const std::vector<float> before(tensor.span<float>().begin(),
                                            tensor.span<float>().end());
            for (std::int64_t n = drawn(random, 1, 8); n > 0; --n) {
              float& number = tensor.span<float>()[static_cast<std::size_t>(
                  drawn(random, 0, static_cast<std::int64_t>(before.size()) - 1))];
              number *= one_of(random, {-1.0F, 0.5F, 2.0F, 1.0F + 0x1p-8F, 1.0F - 0x1p-8F, 1.0625F,
                                        0.0F, 0.9375F});
              if (std::abs(number) > 64.0F) number = 1.0F;
            }
            const HeldRows one = tried();
            EXPECT_EQ(one.above, 0)
                << octavo::name_of(rung) << " on " << backend.name << ": " << one.first;
            found.rows.add(one);
            ++found.calls[std::string(backend.name)];
            rounds |= rung != AttentionRung::f32;
            if (one.closest >= best) {
              best = one.closest;
            } else {
              std::ranges::copy(before, tensor.span<float>().begin());
            }
          }
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
          EXPECT_NE(rung, AttentionRung::f32) << error.what();
        }
      }
  print(found);
  // A bound that is too small by a factor would be seen. In f32 all is far below.
  if (rounds) {
    EXPECT_GT(found.rows.closest, 0.2);
  }
}

}  // namespace
}  // namespace octavo::testing
