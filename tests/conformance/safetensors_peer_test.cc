// octavo's verdicts on small safetensors files, held against those of safetensors 0.8, and its
// files against those that safetensors 0.8 wrote (generate_safetensors.py).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/safetensors/header.h"
#include "octavo/safetensors/header_writer.h"

namespace octavo::safetensors {
namespace {

std::vector<std::string> split(const std::string& line, char at) {
  std::vector<std::string> parts(1);
  for (const char c : line) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return out;
}

std::vector<std::vector<std::string>> read_table(const std::string& name, std::size_t columns) {
  std::ifstream file(std::string(OCTAVO_SOURCE_DIR) + "/tests/conformance/" + name);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    rows.push_back(split(line, '\t'));
    EXPECT_EQ(rows.back().size(), columns) << name << ": " << rows.back().front();
  }
  return rows;
}

std::string verdict(const std::string& content, bool strict) {
  try {
    (void)parse_header_of(std::as_bytes(std::span(content)), "file", {.strict = strict});
    return "accept";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_EQ(std::string(error.what()).rfind("[safetensors] 'file'", 0), 0U) << error.what();
    return "reject";
  }
}

TEST(SafetensorsPeer, VerdictsAreThoseOfTheRustReader) {
  const auto rows = read_table("safetensors.tsv", 5);
  EXPECT_GE(rows.size(), 240U);
  int differs = 0;
  for (const auto& row : rows) {
    const std::string content = from_hex(row.at(4));
    EXPECT_EQ(verdict(content, false), row.at(2)) << row.at(0);
    EXPECT_EQ(verdict(content, true), row.at(3)) << row.at(0) << ", strict";
    differs += row.at(1) != row.at(2);
    if (row.at(1) == "reject") {
      EXPECT_EQ(row.at(2), "reject") << row.at(0) << ": a file nobody else reads";
    }
  }
  EXPECT_EQ(differs, 2);  // documented in docs/numerics/safetensors.md
}

TEST(SafetensorsPeer, FilesAreThoseOfTheRustWriter) {
  const auto rows = read_table("safetensors_written.tsv", 4);
  EXPECT_GE(rows.size(), 14U);
  for (const auto& row : rows) {
    std::vector<TensorPlan> plans;
    for (const std::string& planned : split(row.at(1), ' ')) {
      if (planned.empty()) continue;
      const auto parts = split(planned, '|');
      TensorPlan plan{from_hex(parts.at(0)), find_stored_type(parts.at(1)).value(), {}};
      for (const std::string& size : split(parts.at(2), ',')) {
        if (!size.empty()) plan.shape.push_back(std::stoull(size));
      }
      plans.push_back(std::move(plan));
    }
    Metadata metadata;
    for (const std::string& item : split(row.at(2), ' ')) {
      if (item.empty()) continue;
      const auto parts = split(item, '=');
      metadata[from_hex(parts.at(0))] = from_hex(parts.at(1));
    }
    const Header header = place_tensors(plans, metadata, "file");
    std::string content = write_header(header);
    for (const TensorEntry& tensor : header.tensors) {
      for (std::uint64_t i = 0; i < tensor.nbytes(); ++i) content += static_cast<char>(i & 0xFF);
    }
    EXPECT_EQ(content, from_hex(row.at(3))) << row.at(0);
  }
}

}  // namespace
}  // namespace octavo::safetensors
