// Every golden vector on the scalar encoder and on every backend that runs here: peer_*.tsv are
// whole tables of peers' casts (generate.py), the other files specifications, worked examples and
// errors found in peers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/convert/convert.h"
#include "octavo/round/encode.h"
#include "tests/conformance/golden.h"
#include "tests/oracle/oracle.h"
#include "tests/support/every_backend.h"
#include "tests/support/printed.h"

namespace octavo {
namespace {

std::string path_of(const std::string& file) {
  return std::string(OCTAVO_SOURCE_DIR) + "/tests/conformance/" + file;
}

double value_of(const std::string& source, std::uint64_t bits) {
  if (source == "f64") return std::bit_cast<double>(bits);
  if (source == "f32") return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
  if (source == "f16") return oracle::value_of_f16(static_cast<std::uint16_t>(bits));
  if (source == "bf16") return oracle::value_of_bf16(static_cast<std::uint16_t>(bits));
  throw std::runtime_error("unknown source " + source);
}

// All vectors that one call of encode can check.
struct Batch {
  std::vector<std::uint64_t> inputs;
  std::vector<std::uint32_t> codes;
  std::vector<const golden::Row*> rows;
};

std::string describe(const golden::Row& row, const std::string& policy, std::uint64_t input) {
  return row.file + ":" + std::to_string(row.line) + " " + row.format + " " + policy + " " +
         row.source + " " + support::printed(std::hex, input);
}

void run_on_backends(const std::string& format_name, const std::string& policy_name,
                     const std::string& source, const Batch& batch) {
  const Format format = parse_format(format_name);
  const EncodePolicy policy = golden::choice_of(policy_name, format).policy;
  const DType dtype = parse_dtype(source);
  const auto size = static_cast<std::size_t>(element_bytes(dtype));
  std::vector<std::byte> values(batch.inputs.size() * size);
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    std::memcpy(&values[i * size], &batch.inputs[i],
                size);  // both our architectures are little-endian
  }
  const auto count = static_cast<std::int64_t>(batch.inputs.size());
  for (const BackendInfo& backend : support::every_backend()) {
    std::vector<std::uint16_t> codes(batch.inputs.size());
    const View out = code_view(codes.data(), format, {count});
    encode(value_view(values.data(), dtype, {count}), out, policy, {.backend = backend.kernels});
    for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
      const std::uint32_t got = format.code_bytes() == 1
                                    ? reinterpret_cast<const std::uint8_t*>(codes.data())[i]
                                    : codes[i];
      ASSERT_EQ(got, batch.codes[i])
          << backend.name << ": " << describe(*batch.rows[i], policy_name, batch.inputs[i]);
    }
  }
}

class GoldenVectors : public testing::TestWithParam<const char*> {};

TEST_P(GoldenVectors, HoldOnEveryBackend) {
  const std::vector<golden::Row> rows = golden::read_rows(path_of(GetParam()));
  std::map<std::tuple<std::string, std::string, std::string>, Batch> batches;
  for (const golden::Row& row : rows) {
    const Format format = parse_format(row.format);
    for (const std::string& name : golden::split(row.policy, ',')) {
      const golden::Choice choice = golden::choice_of(name, format);
      for (const std::uint64_t input : golden::inputs_of(row)) {
        const std::uint32_t got =
            encode_value(format, value_of(row.source, input), choice.policy, choice.draw).code;
        ASSERT_EQ(got, row.code) << "scalar: " << describe(row, name, input);
        if (choice.policy.rounding == Rounding::stochastic) continue;
        Batch& batch = batches[{row.format, name, row.source}];
        batch.inputs.push_back(input);
        batch.codes.push_back(row.code);
        batch.rows.push_back(&row);
      }
    }
  }
  for (const auto& [key, batch] : batches) {
    run_on_backends(std::get<0>(key), std::get<1>(key), std::get<2>(key), batch);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenVectors,
                         testing::Values("peer_bf16.tsv", "peer_f16.tsv", "peer_f32.tsv",
                                         "peer_f64.tsv", "gfloat.tsv", "specification.tsv",
                                         "witness.tsv"),
                         [](const auto& file) {
                           return std::string(file.param, std::strcspn(file.param, "."));
                         });

// peer_decode.tsv: format, code, f32 bits or "nan". Every code of every format that ml_dtypes has.
TEST(GoldenDecode, EveryCodeHasThePeersValue) {
  for (const golden::Line& line : golden::read_lines(path_of("peer_decode.tsv"))) {
    ASSERT_EQ(line.columns.size(), 3u) << line.number;
    const double got =
        decode(parse_format(line.columns[0]), golden::number<std::uint32_t>(line.columns[1], 16));
    if (line.columns[2] == "nan") {
      ASSERT_TRUE(std::isnan(got)) << line.number;
    } else {
      const float want = std::bit_cast<float>(golden::number<std::uint32_t>(line.columns[2], 16));
      ASSERT_EQ(std::bit_cast<std::uint64_t>(got), std::bit_cast<std::uint64_t>(double{want}))
          << line.number;
    }
  }
}

}  // namespace
}  // namespace octavo
