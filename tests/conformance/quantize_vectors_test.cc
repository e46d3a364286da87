// Scales and codes of other libraries (quantize_*.tsv), held against octavo::quantize on every
// backend, bit for bit, each library under its own arith. Where octavo is known to differ, the row
// is in kDifferent with the reason, and must differ: a row that has come to agree is to be taken
// out.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/octavo.h"
#include "octavo/scale/tile_scale.h"
#include "tests/conformance/golden.h"
#include "tests/support/every_backend.h"
#include "tests/support/printed.h"

namespace octavo {
namespace {

struct Peer {
  const char* file;
  Arith arith;
  int least_rows;  // a table that was cut short does not pass
};
constexpr Peer kPeers[] = {
    {"quantize_gfloat.tsv", Arith::octavo, 150},
    {"quantize_modelopt_export.tsv", Arith::modelopt, 162},
    {"quantize_modelopt_qtensor.tsv", Arith::modelopt_qtensor, 291},
    {"quantize_te.tsv", Arith::te, 704},
    {"quantize_te_mx.tsv", Arith::te, 153},
    {"quantize_torchao_inference.tsv", Arith::torchao_inference, 244},
    {"quantize_torchao_mx.tsv", Arith::torchao, 300},
    {"quantize_torchao_mxfp6.tsv", Arith::torchao, 200},
    {"quantize_torchao_nvfp4.tsv", Arith::torchao, 126},
    {"quantize_torchao_training.tsv", Arith::torchao, 472},
};
constexpr int kLeastCompared = 2798;

struct Different {
  const char *file, *preset, *name;
  const char* reason;
};
constexpr const char* kNanScale =
    "a tensor of zeros, which ModelOpt divides by 0: the scales are NaN in both, and under a NaN "
    "scale octavo writes code 0, ModelOpt 7";
constexpr Different kDifferent[] = {
    {"quantize_modelopt_qtensor.tsv", "nvfp4", "zero.0", kNanScale},
    {"quantize_modelopt_qtensor.tsv", "nvfp4", "zero.1", kNanScale},
};

// Columns as generate_quantize.py writes them.
struct VectorRow {
  std::string where, name, preset;
  Scaling scaling;
  DType input = DType::f32;
  std::int64_t rows = 0, cols = 0;
  std::vector<std::uint8_t> values, scales, codes;  // as in memory, little endian
  bool two_levels = false;
  std::uint32_t tensor_scale = 0;
};

// Hex numbers of some bytes each.
std::vector<std::uint8_t> numbers(const std::string& digits, std::size_t bytes) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i < digits.size(); i += 2 * bytes) {
    const auto value =
        golden::number<std::uint32_t>(std::string_view(digits).substr(i, 2 * bytes), 16);
    for (std::size_t b = 0; b < bytes; ++b)
      out.push_back(static_cast<std::uint8_t>(value >> (8 * b)));
  }
  return out;
}

VectorRow parse(const Peer& peer, const golden::Line& line) {
  const std::vector<std::string>& c = line.columns;
  VectorRow row;
  row.where = text(peer.file, ":", line.number, " ", c.at(0), " ", c.at(1), ":", c.at(2), " ",
                   c.at(3), " ", c.at(5), " ", c.at(6));
  row.name = c[0];
  row.preset = c[1];
  row.scaling = preset(c[1]);
  row.scaling.format = parse_format(c[2]);
  const std::vector<std::string> tile = golden::split(c[3], 'x');
  row.scaling.tile = {golden::number<std::int64_t>(tile.at(0), 10),
                      golden::number<std::int64_t>(tile.at(1), 10)};
  row.scaling.scale.rule = parse_scale_rule(c[5]);
  row.scaling.scale.arith = peer.arith;
  row.scaling.packed = false;
  row.scaling.encode.nan_input = NanInput::max;  // as te and ModelOpt have it
  if (row.scaling.scale.format == ScaleFormat::e4m3_f32)
    row.scaling.scale.non_finite = NonFinite::saturate;  // te's own behaviour in NVFP4
  row.input = c[6] == "bf16" ? DType::bf16 : DType::f32;
  row.rows = golden::number<std::int64_t>(c[7], 10);
  row.cols = golden::number<std::int64_t>(c[8], 10);
  row.values = numbers(c[9], row.input == DType::bf16 ? 2 : 4);
  row.scales = numbers(c[10], c[4] == "f32" ? 4 : 1);
  row.two_levels = c[11] != "-";
  if (row.two_levels) row.tensor_scale = golden::number<std::uint32_t>(c[11], 16);
  row.codes = numbers(c.at(12), 1);
  return row;
}

struct Answer {
  std::vector<std::uint8_t> scales, codes;
  std::uint32_t tensor_scale = 0;
};

std::vector<std::uint8_t> bytes_of(const Tensor& tensor) {
  std::vector<std::uint8_t> out(tensor.bytes().size());
  if (!out.empty()) std::memcpy(out.data(), tensor.bytes().data(), out.size());
  return out;
}

Answer by_backend(const VectorRow& row, const Kernels& kernels) {
  std::vector<std::uint8_t> values = row.values;
  const QuantizedTensor got =
      quantize(as_read_only(value_view(values.data(), row.input, {row.rows, row.cols})),
               row.scaling, {.backend = &kernels});
  Answer answer{bytes_of(got.rowwise.scales), bytes_of(got.rowwise.codes), 0};
  if (got.rowwise.tensor_scale.owner() != nullptr)
    answer.tensor_scale = std::bit_cast<std::uint32_t>(got.rowwise.tensor_scale.span<float>()[0]);
  return answer;
}

// Scales of one level are no Scaling of octavo's; the scalar definition has them, with a tensor
// scale of one.
Answer by_definition(const VectorRow& row) {
  Answer answer;
  const std::int64_t side = row.scaling.tile.cols;
  for (std::int64_t first = 0; first < row.rows * row.cols; first += side) {
    float amax = 0;
    std::vector<float> x;
    for (std::int64_t i = first; i < first + side; ++i) {
      std::uint32_t bits = 0;
      const std::size_t bytes = row.input == DType::bf16 ? 2 : 4;
      std::memcpy(&bits, &row.values[static_cast<std::size_t>(i) * bytes], bytes);
      x.push_back(std::bit_cast<float>(row.input == DType::bf16 ? bits << 16 : bits));
      amax = std::max(amax, std::fabs(x.back()));
    }
    const TileScale scale = tile_scale(row.scaling.scale, row.scaling.format, amax, 1.0F);
    answer.scales.push_back(static_cast<std::uint8_t>(scale.bits));
    for (const float value : x) {
      const double u = static_cast<double>(value * scale.factor);
      answer.codes.push_back(static_cast<std::uint8_t>(encode_value(row.scaling.format, u).code));
    }
  }
  return answer;
}

// Empty when all bits agree.
std::string difference(const VectorRow& row, const Answer& got) {
  const auto shown = [](const std::vector<std::uint8_t>& bytes, std::size_t at) {
    return support::printed("0x", std::hex, static_cast<int>(bytes[at]));
  };
  if (row.two_levels && got.tensor_scale != row.tensor_scale)
    return support::printed("tensor scale 0x", std::hex, got.tensor_scale, "; expected 0x",
                            row.tensor_scale);
  for (const auto& [what, have, want] : {std::tuple{"scale", &got.scales, &row.scales},
                                         std::tuple{"code", &got.codes, &row.codes}}) {
    if (have->size() != want->size()) return text(what, "s: ", have->size(), " bytes");
    for (std::size_t i = 0; i < want->size(); ++i)
      if ((*have)[i] != (*want)[i])
        return text(what, " byte ", i, " is ", shown(*have, i), "; expected ", shown(*want, i));
  }
  return "";
}

const Different* known(const Peer& peer, const VectorRow& row) {
  for (const Different& one : kDifferent)
    if (row.name == one.name && row.preset == one.preset && std::string(peer.file) == one.file)
      return &one;
  return nullptr;
}

TEST(QuantizeVectors, EveryRowOfEveryPeer) {
  int compared = 0;
  std::map<const Different*, int> met;
  for (const Peer& peer : kPeers) {
    int rows = 0;
    for (const golden::Line& line :
         golden::read_lines(text(OCTAVO_SOURCE_DIR "/tests/conformance/", peer.file))) {
      ++rows;
      const VectorRow row = parse(peer, line);
      const Different* different = known(peer, row);
      if (different != nullptr) ++met[different];
      const auto judge = [&](const std::string& backend, const Answer& got) {
        const std::string found = difference(row, got);
        EXPECT_EQ(found.empty(), different == nullptr)
            << row.where << ", " << backend << ": " << found
            << (different == nullptr ? "" : text("; known: ", different->reason));
      };
      const bool one_level = row.scaling.scale.format == ScaleFormat::e4m3_f32 && !row.two_levels;
      if (one_level) judge("definition", by_definition(row));
      if (!one_level) {
        for (const BackendInfo& backend : support::every_backend())
          judge(backend.name, by_backend(row, *backend.kernels));
      }
      compared += different == nullptr ? 1 : 0;
    }
    EXPECT_GE(rows, peer.least_rows) << peer.file;
  }
  EXPECT_GE(compared, kLeastCompared);
  for (const Different& one : kDifferent)
    EXPECT_GT(met[&one], 0) << one.file << " has no row " << one.preset << " " << one.name;
}

// A table that no test reads would go unnoticed.
TEST(QuantizeVectors, EveryTableIsListed) {
  std::size_t found = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(OCTAVO_SOURCE_DIR "/tests/conformance"))
    found += entry.path().filename().string().starts_with("quantize_") &&
             entry.path().extension() == ".tsv";
  EXPECT_EQ(found, std::size(kPeers));
}

}  // namespace
}  // namespace octavo
