#include "octavo/model/tokenizer/vocabulary_internal.h"

#include <algorithm>

namespace octavo::tokenizer {

bool Vocabulary::add(std::string_view token, std::int32_t id) {
  if (ids_.contains(token) || token_of(id) != nullptr) return false;
  const std::string& kept = tokens_.emplace_back(token);
  ids_.emplace(kept, id);
  const auto at = static_cast<std::size_t>(id);
  if (at < 2 * tokens_.size() + 1024) {  // a list by id is at most twice as long as the tokens are
    if (at >= low_.size()) low_.resize(at + 1);
    low_[at] = &kept;
  } else {
    high_.emplace(id, &kept);
  }
  end_ = std::max(end_, std::int64_t{id} + 1);
  longest_ = std::max(longest_, token.size());
  return true;
}

std::optional<std::int32_t> Vocabulary::id_of(std::string_view token) const {
  const auto at = ids_.find(token);
  if (at == ids_.end()) return std::nullopt;
  return at->second;
}

const std::string* Vocabulary::token_of(std::int32_t id) const {
  if (id < 0) return nullptr;
  const auto at = static_cast<std::size_t>(id);
  if (at < low_.size() && low_[at] != nullptr) return low_[at];
  const auto found = high_.find(id);
  return found == high_.end() ? nullptr : found->second;
}

}  // namespace octavo::tokenizer
