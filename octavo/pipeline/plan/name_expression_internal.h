// Expressions that find some tensors of a checkpoint and no others: what advice gives to paste into
// option recipe_for.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

class NameExpressions {
 public:
  // The names of all tensors, which outlive this object.
  explicit NameExpressions(const std::vector<std::string_view>& names);

  // Found in each of `wanted`, which are some of the names, and in no other, such as
  //   ^model\.layers\.\d+\.self_attn\.(k_proj|q_proj|v_proj)\.weight$
  // "" where that would take more than a few lines. Names may be anything: the result is
  // printable ASCII without quotes, and has a dot for characters beyond.
  [[nodiscard]] std::string of(const std::set<std::string_view>& wanted) const;

 private:
  using Components = std::vector<std::string_view>;
  // The expressions that each component of a name may be; any name with one of the set in each
  // place is found.
  using Row = std::vector<std::set<std::string>>;

  [[nodiscard]] static Components components_of(std::string_view name);
  [[nodiscard]] static std::string key_of(const Components& components);
  [[nodiscard]] std::vector<Row> rows_of(const std::string& key,
                                         const std::set<Components>& wanted) const;
  static void merge(std::vector<Row>& rows);
  [[nodiscard]] static std::string expression_of(const Row& row);

  // Names by what they are without their numbers.
  std::map<std::string, std::vector<std::string_view>> names_;
};

}  // namespace octavo
