// Families of adversarial inputs, made to defeat an error model that treats the errors of keys as
// independent.
#pragma once

#include <numeric>

#include "tests/attention/attention_attack.h"

namespace octavo::testing {

using Random = std::mt19937_64;

inline float noise(Random& random, float size) {
  return size * std::normal_distribution<float>()(random);
}

inline void scale_row(std::vector<float>& row, float times) {
  for (float& number : row) number *= times;
}

// Every token is one of `distinct`, and something less than a step of e4m3 is added.
inline auto repeated(std::size_t distinct, float size) {
  return [=](Numbers&, Numbers& k, Numbers& v, Random& random) {
    for (std::size_t j = distinct; j < k.size(); ++j)
      for (std::size_t d = 0; d < k[j].size(); ++d) {
        k[j][d] = k[j % distinct][d] * (1.0F + noise(random, size));
        v[j][d] = v[j % distinct][d] * (1.0F + noise(random, size));
      }
  };
}

// Tokens of a few kinds, whose keys differ by much more than a step from one to the next, so that
// only Q's rounding is shared: it moves the weights of all keys of a kind together. `level`:
// queries to which all kinds have the same score, so that every output is at the mean of V.
inline auto noisy_kinds(std::size_t kinds, float size, float of_keys, bool level) {
  return [=](Numbers& q, Numbers& k, Numbers& v, Random& random) {
    const Numbers k_of(k.begin(), k.begin() + static_cast<std::ptrdiff_t>(kinds)),
        v_of(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(kinds));
    for (std::size_t j = 0; j < k.size(); ++j) {
      const std::size_t kind = random() % kinds;
      v[j] = v_of[kind];
      for (std::size_t d = 0; d < k[j].size(); ++d)
        k[j][d] = of_keys * k_of[kind][d] + noise(random, size);
    }
    if (!level) return;
    // Directions between kinds, one at right angles to the other, are taken out of queries.
    Numbers apart;
    const auto take = [](std::vector<float>& row, const std::vector<float>& unit) {
      const double along = std::inner_product(row.begin(), row.end(), unit.begin(), 0.0);
      for (std::size_t d = 0; d < row.size(); ++d) row[d] -= static_cast<float>(along) * unit[d];
    };
    for (std::size_t kind = 1; kind < kinds; ++kind) {
      std::vector<float> unit = k_of[kind];
      for (std::size_t d = 0; d < unit.size(); ++d) unit[d] -= k_of[0][d];
      for (const auto& before : apart) take(unit, before);
      scale_row(unit, static_cast<float>(1.0 / std::sqrt(std::inner_product(
                                                   unit.begin(), unit.end(), unit.begin(), 0.0))));
      apart.push_back(unit);
    }
    for (auto& row : q)
      for (const auto& unit : apart) take(row, unit);
  };
}

// Every `every`th row of the second half attends to the keys [first, last): their query gets a
// direction that those keys have.
inline void look_at(Numbers& q, Numbers& k, std::size_t first, std::size_t last, std::size_t every,
                    float strength) {
  for (std::size_t j = first; j < last; ++j)
    for (std::size_t d = 0; d < k[j].size() / 8; ++d) k[j][d] += strength;
  for (std::size_t i = 1; i < q.size(); i += every)
    for (std::size_t d = 0; d < q[i].size() / 8; ++d) q[i][d] += strength;
}

inline std::vector<Attack> attacks() {
  std::vector<Attack> all;
  const auto add = [&](std::string name, auto edit, AttackSizes sizes = {}, AttentionMask mask = {},
                       DType dtype = DType::f32, std::optional<double> scale = {}) {
    all.push_back({std::move(name), edit, sizes, mask, dtype, scale});
  };
  const auto nothing = [](Numbers&, Numbers&, Numbers&, Random&) {};
  add("plain", nothing);
  for (const std::size_t distinct : {2, 8, 64, 512})
    for (const float size : {0.0F, 0.005F, 0.02F, 0.05F})
      add(std::to_string(distinct) + " tokens, noise " + std::to_string(size),
          repeated(distinct, size));
  const AttackSizes square{.queries = 256, .keys = 256, .depth = 128};
  for (const std::size_t kinds : {2, 3})
    for (const bool level : {false, true})
      add(std::to_string(kinds) + " noisy kinds" + (level ? ", level" : ""),
          noisy_kinds(kinds, 0.05F, 0.5F, level), square, {}, DType::bf16);
  add("half of the tokens are one, which some rows look at",
      [](Numbers& q, Numbers& k, Numbers& v, Random&) {
        for (std::size_t j = 0; j < k.size(); j += 2) k[j] = k[0], v[j] = v[0];
        for (std::size_t i = 5; i < q.size(); i += 31)
          for (std::size_t d = 0; d < q[i].size(); ++d) q[i][d] = 0.5F * k[0][d];
      });
  add("two tokens, and scores that are equal", [](Numbers& q, Numbers& k, Numbers& v, Random&) {
    for (std::size_t j = 2; j < k.size(); ++j) k[j] = k[j % 2];
    for (std::size_t j = 0; j < v.size(); ++j)
      for (std::size_t d = 0; d < v[j].size(); ++d) v[j][d] = j % 2 == 0 ? v[0][d] : -v[0][d];
    std::vector<float> apart = k[0];
    double length = 0.0;
    for (std::size_t d = 0; d < apart.size(); ++d) {
      apart[d] -= k[1][d];
      length += static_cast<double>(apart[d]) * static_cast<double>(apart[d]);
    }
    for (std::vector<float>& row : q) {
      double along = 0.0;
      for (std::size_t d = 0; d < row.size(); ++d)
        along += static_cast<double>(row[d]) * static_cast<double>(apart[d]);
      for (std::size_t d = 0; d < row.size(); ++d)
        row[d] -= static_cast<float>(along / length) * apart[d];
    }
  });
  add("values are keys", [](Numbers&, Numbers& k, Numbers& v, Random&) { v = k; });
  add("values are four times keys", [](Numbers&, Numbers& k, Numbers& v, Random&) {
    v = k;
    for (auto& row : v) scale_row(row, 4.0F);
  });
  add("one channel of values is a channel of keys", [](Numbers&, Numbers& k, Numbers& v, Random&) {
    for (std::size_t j = 0; j < k.size(); ++j) v[j][3] = 3.0F * k[j][5];
  });
  for (const float times : {30.0F, 300.0F, 3000.0F})
    for (const std::size_t every : {1, 50})
      add("one long value, times " + std::to_string(times) + ", every " + std::to_string(every),
          [=](Numbers& q, Numbers& k, Numbers& v, Random&) {
            scale_row(v[1234], times);
            look_at(q, k, 1234, 1235, every, 2.0F);
          });
  add("one long number in one channel", [](Numbers& q, Numbers& k, Numbers& v, Random&) {
    v[1234][7] = 300.0F;
    look_at(q, k, 1234, 1235, 50, 2.0F);
  });
  add("a channel of values is huge", [](Numbers&, Numbers&, Numbers& v, Random&) {
    for (auto& row : v) row[9] *= 100.0F;
  });
  for (const float size : {0.0F, 0.001F, 0.01F})
    add("values are 0.55 and noise " + std::to_string(size) + ", one is 1",
        [=](Numbers&, Numbers&, Numbers& v, Random& random) {
          for (auto& row : v)
            for (float& number : row) number = 0.55F + noise(random, size);
          for (float& number : v[77]) number = 1.0F;
        });
  add("one channel of values is 0.55, and once 1", [](Numbers&, Numbers&, Numbers& v, Random&) {
    for (auto& row : v) row[11] = 0.55F;
    v[77][11] = 1.0F;
  });
  add("values are of two kinds", [](Numbers&, Numbers&, Numbers& v, Random& random) {
    for (auto& row : v)
      for (float& number : row) number = random() % 2 == 0 ? 0.55F : 0.10F;
    for (float& number : v[77]) number = 1.0F;
  });
  add("halves of keys differ in values, rows look at one",
      [](Numbers& q, Numbers& k, Numbers& v, Random& random) {
        for (std::size_t j = 0; j < v.size(); ++j)
          for (float& number : v[j])
            number = (j < v.size() / 2 ? 0.55F : -0.55F) + noise(random, 0.01F);
        for (float& number : v[77]) number = 1.0F;
        look_at(q, k, 0, k.size() / 2, 40, 3.0F);
      });
  add("a sink", [](Numbers& q, Numbers& k, Numbers& v, Random&) {
    look_at(q, k, 0, 1, 1, 3.0F);
    scale_row(v[0], 0.01F);
  });
  add("one-hot softmax", [](Numbers& q, Numbers& k, Numbers&, Random&) {
    for (std::size_t i = 0; i < q.size(); ++i)
      for (std::size_t d = 0; d < q[i].size(); ++d) q[i][d] = 4.0F * k[i * 7 % k.size()][d];
  });
  add("few one-hot rows", [](Numbers& q, Numbers& k, Numbers&, Random&) {
    for (std::size_t i = 3; i < q.size(); i += 60)
      for (std::size_t d = 0; d < q[i].size(); ++d) q[i][d] = k[i * 7 % k.size()][d] * 0.8F;
  });
  add("one key is long", [](Numbers&, Numbers& k, Numbers&, Random&) { scale_row(k[55], 40.0F); });
  add("one query is long",
      [](Numbers& q, Numbers&, Numbers&, Random&) { scale_row(q[55], 40.0F); });
  for (const std::size_t alike : {2, 3, 12})
    for (const float score : {3.0F, 7.0F, 14.0F})
      add(std::to_string(alike) + " keys along every query, of score " + std::to_string(score),
          [=](Numbers& q, Numbers& k, Numbers&, Random& random) {
            const std::vector<float> along = q[0];
            const auto size = static_cast<float>(along.size());
            for (auto& row : q)
              for (std::size_t d = 0; d < row.size(); ++d) row[d] = along[d] + 0.05F * row[d];
            for (std::size_t j = 7; j < 7 + 101 * alike; j += 101)
              for (std::size_t d = 0; d < along.size(); ++d)
                k[j][d] = score / std::sqrt(size) * (along[d] + noise(random, 0.05F));
          });
  add("sorted tokens", [](Numbers&, Numbers& k, Numbers& v, Random&) {
    std::sort(k.begin(), k.end());
    std::sort(v.begin(), v.end());
  });
  add("clusters", [](Numbers&, Numbers& k, Numbers& v, Random& random) {
    for (std::size_t j = 16; j < k.size(); ++j)
      for (std::size_t d = 0; d < k[j].size(); ++d) {
        k[j][d] = k[j % 16][d] + noise(random, 0.3F);
        v[j][d] = v[j % 16][d] + noise(random, 0.3F);
      }
  });
  add("signs alternate", [](Numbers&, Numbers& k, Numbers& v, Random&) {
    for (std::size_t j = 1; j < k.size(); ++j)
      for (std::size_t d = 0; d < k[j].size(); ++d) {
        k[j][d] = j % 2 == 0 ? k[0][d] : -k[0][d];
        v[j][d] = j % 2 == 0 ? v[0][d] : -v[0][d];
      }
  });
  add("keys of rank one", [](Numbers&, Numbers& k, Numbers&, Random& random) {
    for (std::size_t j = 1; j < k.size(); ++j) {
      const float size = noise(random, 1.0F);
      for (std::size_t d = 0; d < k[j].size(); ++d) k[j][d] = k[0][d] * size;
    }
  });
  add("keys and values of rank one", [](Numbers&, Numbers& k, Numbers& v, Random& random) {
    for (std::size_t j = 1; j < k.size(); ++j) {
      const float size = noise(random, 1.0F);
      for (std::size_t d = 0; d < k[j].size(); ++d) {
        k[j][d] = k[0][d] * size;
        v[j][d] = v[0][d] * size;
      }
    }
  });
  add("scores are all equal", [](Numbers&, Numbers& k, Numbers&, Random&) {
    for (auto& row : k) row = k[0];
  });
  add("queries are one", [](Numbers& q, Numbers&, Numbers&, Random&) {
    for (auto& row : q) row = q[0];
  });
  add("keys far from zero", [](Numbers&, Numbers& k, Numbers&, Random&) {
    for (auto& row : k)
      for (float& number : row) number += 50.0F;
  });
  add("window", nothing, {}, {.left = 600, .right = 0});
  add("window of repeated tokens", repeated(8, 0.0F), {.queries = 2048},
      {.left = 1500, .right = 0});
  add("causal", nothing, {.queries = 4096}, {.causal = true});
  add("causal, repeated", repeated(8, 0.002F), {.queries = 4096}, {.causal = true});
  add("causal, drifting values",
      [](Numbers&, Numbers&, Numbers& v, Random&) {
        for (std::size_t j = 0; j < v.size(); ++j)
          for (float& number : v[j]) number += static_cast<float>(j) / 1000.0F;
      },
      {.queries = 4096}, {.causal = true});
  add("grouped", repeated(8, 0.002F), {.queries = 256, .heads = 4, .kv_heads = 2});
  static const std::vector<std::int64_t> key_lengths{3000}, query_lengths{300};
  add("lengths", nothing, {}, {.query_lengths = query_lengths, .key_lengths = key_lengths});
  add("lengths, repeated", repeated(8, 0.002F), {},
      {.query_lengths = query_lengths, .key_lengths = key_lengths});
  add("narrow", nothing, {.depth = 8});
  add("narrow, repeated", repeated(64, 0.01F), {.depth = 8});
  add("narrow, values are keys", [](Numbers&, Numbers& k, Numbers& v, Random&) { v = k; },
      {.depth = 8});
  add("wide", nothing, {.queries = 256, .depth = 256});
  add("wide, repeated", repeated(64, 0.01F), {.queries = 256, .depth = 256});
  add("small scale", nothing, {}, {}, DType::f32, 1e-3);
  add("small scale, repeated", repeated(8, 0.0F), {}, {}, DType::f32, 1e-3);
  add("large scale", nothing, {}, {}, DType::f32, 0.5);
  add("bf16, repeated", repeated(8, 0.0F), {}, {}, DType::bf16);
  add(
      "bf16, values are keys", [](Numbers&, Numbers& k, Numbers& v, Random&) { v = k; }, {}, {},
      DType::bf16);
  add("pairs that cancel, which a few rows attend to",
      [](Numbers& q, Numbers& k, Numbers& v, Random&) {
        for (std::size_t j = 0; j < 2048; ++j)
          for (std::size_t d = 0; d < k[j].size(); ++d) {
            k[j][d] = k[j % 2][d];
            v[j][d] = j % 2 == 0 ? v[0][d] : -v[0][d];
          }
        for (std::size_t i = 9; i < q.size(); i += 41)
          for (std::size_t d = 0; d < q[i].size(); ++d)
            q[i][d] = 0.5F * (k[0][d] + k[1][d]) + 0.2F * q[i][d];
      });
  add("values repeat, keys do not", [](Numbers&, Numbers&, Numbers& v, Random&) {
    for (std::size_t j = 4; j < v.size(); ++j) v[j] = v[j % 4];
  });
  add("keys repeat, values do not", [](Numbers&, Numbers& k, Numbers&, Random&) {
    for (std::size_t j = 4; j < k.size(); ++j) k[j] = k[j % 4];
  });
  const auto heavy = [](Numbers& numbers) {
    for (auto& row : numbers)
      for (float& number : row) number = number * number * number;
  };
  add("heavy tails of values", [=](Numbers&, Numbers&, Numbers& v, Random&) { heavy(v); });
  add("heavy tails of keys", [=](Numbers&, Numbers& k, Numbers&, Random&) { heavy(k); });
  add("heavy tails of queries", [=](Numbers& q, Numbers&, Numbers&, Random&) { heavy(q); });
  add("queries of all lengths", [](Numbers& q, Numbers&, Numbers&, Random& random) {
    for (auto& row : q) scale_row(row, std::exp(noise(random, 1.0F)));
  });
  add("channels of values of all sizes", [](Numbers&, Numbers&, Numbers& v, Random&) {
    for (auto& row : v)
      for (std::size_t d = 0; d < row.size(); ++d)
        row[d] *= std::exp2(static_cast<float>(d % 14) - 12.0F);
  });
  add("large values", [](Numbers&, Numbers&, Numbers& v, Random&) {
    for (auto& row : v) scale_row(row, 1000.0F);
  });
  add("small values", [](Numbers&, Numbers&, Numbers& v, Random&) {
    for (auto& row : v) scale_row(row, 0.05F);
  });
  add("values of both signs that are alike in size", [](Numbers&, Numbers&, Numbers& v, Random&) {
    for (auto& row : v)
      for (float& number : row) number = number > 0.0F ? 0.55F : -0.55F;
    for (float& number : v[3]) number = 1.0F;
  });
  add("values that go with the length of their key", [](Numbers&, Numbers& k, Numbers& v, Random&) {
    for (std::size_t j = 0; j < k.size(); ++j) scale_row(v[j], k[j][0] > 1.5F ? 8.0F : 0.5F);
  });
  add("a scale below zero", nothing, {}, {}, DType::f32, -0.125);
  add(
      "f16, long value",
      [](Numbers& q, Numbers& k, Numbers& v, Random&) {
        scale_row(v[1234], 30.0F);
        look_at(q, k, 1234, 1235, 9, 1.5F);
      },
      {}, {}, DType::f16);
  add(
      "bf16, long value",
      [](Numbers& q, Numbers& k, Numbers& v, Random&) {
        scale_row(v[1234], 30.0F);
        look_at(q, k, 1234, 1235, 9, 1.5F);
      },
      {}, {}, DType::bf16);
  add("padding: the last half is one token", [](Numbers& q, Numbers& k, Numbers& v, Random&) {
    for (std::size_t j = k.size() / 2; j < k.size(); ++j) k[j] = k[4000], v[j] = v[4000];
    for (std::size_t i = 7; i < q.size(); i += 43)
      for (std::size_t d = 0; d < q[i].size(); ++d) q[i][d] += 0.3F * k[4000][d];
  });
  add("two halves of tokens, rows look at the repeated one",
      [](Numbers& q, Numbers& k, Numbers& v, Random& random) {
        for (std::size_t j = 0; j < 2048; ++j)
          for (std::size_t d = 0; d < k[j].size(); ++d) {
            k[j][d] = k[j % 8][d] * (1.0F + noise(random, 0.01F));
            v[j][d] = v[j % 8][d] * (1.0F + noise(random, 0.01F));
          }
        look_at(q, k, 0, 2048, 37, 2.0F);
      });
  add("causal, one long value",
      [](Numbers&, Numbers&, Numbers& v, Random&) { scale_row(v[100], 100.0F); }, {.queries = 4096},
      {.causal = true});
  add("one query row, many keys", nothing, {.queries = 1});
  add("nine rows, repeated", repeated(8, 0.0F), {.queries = 9});
  add("seven rows, repeated", repeated(8, 0.0F), {.queries = 7});
  add("seven rows, long value",
      [](Numbers& q, Numbers& k, Numbers& v, Random&) {
        scale_row(v[1234], 100.0F);
        look_at(q, k, 1234, 1235, 2, 1.5F);
      },
      {.queries = 7});
  add("rounded to ties", [](Numbers&, Numbers& k, Numbers& v, Random&) {
    for (auto& row : k)
      for (float& x : row) x = std::round(x * 8.0F) / 8.0F + 0.0625F;
    for (auto& row : v)
      for (float& x : row) x = std::round(x * 8.0F) / 8.0F + 0.0625F;
  });
  add("values above a tie", [](Numbers&, Numbers&, Numbers& v, Random& random) {
    for (auto& row : v)
      for (float& x : row) x = (1.0F + 0.125F * static_cast<float>(random() % 8) + 0.07F) / 1.9375F;
    for (float& number : v[3]) number = 1.0F;
  });
  return all;
}

}  // namespace octavo::testing
