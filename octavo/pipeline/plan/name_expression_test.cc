#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/pattern/pattern.h"
#include "octavo/pipeline/plan/name_expression_internal.h"

namespace octavo {
namespace {

std::vector<std::string> llama(int layers) {
  std::vector<std::string> names{"model.embed_tokens.weight", "lm_head.weight"};
  for (int i = 0; i < layers; ++i)
    for (const char* module : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                               "self_attn.o_proj", "mlp.down_proj", "input_layernorm"})
      names.push_back(text("model.layers.", i, ".", module, ".weight"));
  return names;
}

// What the expression is found in is what was wanted.
std::string exact(const std::vector<std::string>& names, const std::set<std::string_view>& wanted) {
  const std::vector<std::string_view> all(names.begin(), names.end());
  const std::string expression = NameExpressions(all).of(wanted);
  if (expression.empty()) return expression;
  const Pattern pattern(expression);
  for (const std::string& name : names)
    EXPECT_EQ(pattern.is_in(name), wanted.contains(name)) << expression << " " << name;
  return expression;
}

TEST(NameExpressions, OneTensorIsItsName) {
  EXPECT_EQ(exact(llama(12), {"model.layers.1.mlp.down_proj.weight"}),
            R"(^model\.layers\.1\.mlp\.down_proj\.weight$)");
}

TEST(NameExpressions, WhatIsLoadedAsOneIsOneExpression) {
  EXPECT_EQ(exact(llama(12), {"model.layers.1.self_attn.q_proj.weight",
                              "model.layers.1.self_attn.k_proj.weight",
                              "model.layers.1.self_attn.v_proj.weight"}),
            R"(^model\.layers\.1\.self_attn\.(k_proj|q_proj|v_proj)\.weight$)");
}

TEST(NameExpressions, AllLayersAreAnyNumberAndSomeAreAList) {
  const std::vector<std::string> names = llama(12);
  std::set<std::string_view> all, some;
  for (const std::string& name : names) {
    if (!name.ends_with("down_proj.weight")) continue;
    all.insert(name);
    if (name.find("s.3.") != name.npos || name.find("s.11.") != name.npos) some.insert(name);
  }
  EXPECT_EQ(exact(names, all), R"(^model\.layers\.\d+\.mlp\.down_proj\.weight$)");
  EXPECT_EQ(exact(names, some), R"(^model\.layers\.(11|3)\.mlp\.down_proj\.weight$)");
}

// Two numbers that do not make a grid: layer 0 expert 1, and layer 1 expert 0.
TEST(NameExpressions, NumbersThatMakeNoGridAreNamedOneByOne) {
  std::vector<std::string> names;
  for (int layer = 0; layer < 2; ++layer)
    for (int expert = 0; expert < 2; ++expert)
      names.push_back(text("l.", layer, ".experts.", expert, ".up.weight"));
  EXPECT_EQ(exact(names, {names[1], names[2]}),
            R"(^l\.0\.experts\.1\.up\.weight$|^l\.1\.experts\.0\.up\.weight$)");
}

TEST(NameExpressions, NamesAreAnything) {
  const std::vector<std::string> names{"a'b\"c`.(x|y)*.weight", "a\nb.w", "...", "",
                                       "$HOME=[0-9]",           "a.b",    "axb"};
  for (const std::string& name : names) {
    const std::string expression = exact(names, {name});
    EXPECT_EQ(expression.find_first_of("'\"`\n"), std::string::npos) << expression;
  }
  const std::vector<std::string> accents{"caf\xc3\xa9.weight"};
  EXPECT_EQ(exact(accents, {accents[0]}), R"(^caf.\.weight$)");
}

TEST(NameExpressions, MoreThanAFewLinesIsNone) {
  std::vector<std::string> names;
  std::set<std::string_view> wanted;
  for (int i = 0; i < 500; ++i) names.push_back(text("a_", i * i, ".of.", i, "_weights"));
  for (const std::string& name : names) wanted.insert(name);
  EXPECT_EQ(exact(names, wanted), "");
  EXPECT_EQ(exact(names, {}), "");
}

}  // namespace
}  // namespace octavo
