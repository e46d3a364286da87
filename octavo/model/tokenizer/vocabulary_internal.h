// Tokens and their ids. Memory grows with the tokens, never with an id.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace octavo::tokenizer {

inline constexpr std::int64_t kMaxId = (std::int64_t{1} << 31) - 2;

class Vocabulary {
 public:
  // False where the token or the id is taken.
  bool add(std::string_view token, std::int32_t id);
  [[nodiscard]] std::optional<std::int32_t> id_of(std::string_view token) const;
  // Null for an id that none has.
  [[nodiscard]] const std::string* token_of(std::int32_t id) const;
  [[nodiscard]] std::size_t count() const { return tokens_.size(); }
  [[nodiscard]] std::int64_t end() const { return end_; }         // ids are below it
  [[nodiscard]] std::size_t longest() const { return longest_; }  // token, in bytes
  [[nodiscard]] const std::deque<std::string>& tokens() const { return tokens_; }

 private:
  std::deque<std::string> tokens_;  // which stay where they are
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::vector<const std::string*> low_;  // by id, as far as ids are dense
  std::unordered_map<std::int32_t, const std::string*> high_;
  std::int64_t end_ = 0;
  std::size_t longest_ = 0;
};

}  // namespace octavo::tokenizer
