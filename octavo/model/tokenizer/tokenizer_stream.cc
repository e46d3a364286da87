#include <utility>

#include "octavo/model/tokenizer/tokenizer.h"

namespace octavo {
namespace {

constexpr std::string_view kBad = "\uFFFD";
// A character has at most four bytes: more tokens than these that end in U+FFFD are no unfinished
// one. Tokens without a text (specials) are held, too.
constexpr std::size_t kMostHeld = 32;

}  // namespace

Tokenizer::Stream::Stream(const Tokenizer& tokenizer)
    : tokenizer_(std::make_shared<const Tokenizer>(tokenizer)) {}

// A token's text depends on whether another stands before it, so the tokens of the last piece are
// decoded again with what follows, and their text is cut off.
std::string Tokenizer::Stream::put(std::int32_t id) {
  ids_.push_back(id);
  std::string text = tokenizer_->decode(ids_);
  const bool unfinished = text.size() <= given_.size() || text.ends_with(kBad);
  if (unfinished && ids_.size() - context_ < kMostHeld) return {};
  return take(std::move(text));
}

std::string Tokenizer::Stream::take(std::string text) {
  std::string out;
  const std::span<const std::int32_t> held = std::span(ids_).subspan(context_);
  if (text.starts_with(given_)) {
    out = text.substr(given_.size());
  } else {  // bytes that ended a character are now part of a longer run that is none
    out = tokenizer_->decode(held);
  }
  // Without a text these are no context: what follows would be taken for the beginning.
  const bool has_text = !tokenizer_->decode(held).empty() || given_.empty();
  if (has_text) {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(context_));
  } else {
    ids_.resize(context_);
  }
  context_ = ids_.size();
  given_ = tokenizer_->decode(ids_);
  return out;
}

std::string Tokenizer::Stream::finish() {
  std::string out = ids_.size() > context_ ? take(tokenizer_->decode(ids_)) : std::string();
  ids_.clear();
  given_.clear();
  context_ = 0;
  return out;
}

}  // namespace octavo
