// Members of tokenizer.json: one that is missing or of another kind is an error that names it.
#pragma once

#include <string>
#include <string_view>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"

namespace octavo::tokenizer {

// A part of tokenizer.json ("pre_tokenizer.pretokenizers[1]") and where it is.
class Part {
 public:
  Part(const Json& json, std::string name) : json_(&json), name_(std::move(name)) {}

  [[nodiscard]] const Json& json() const { return *json_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Part operator[](std::string_view key) const {
    return {(*json_)[key], text(name_, ".", key)};
  }
  [[nodiscard]] Part element(std::size_t i) const {
    return {json_->elements()[i], text(name_, "[", i, "]")};
  }
  [[nodiscard]] bool absent() const { return json_->is_null(); }
  [[nodiscard]] std::string_view type() const { return (*this)["type"].string(); }

  [[nodiscard]] std::string_view string() const {
    if (!json_->is_string()) wrong("text");
    return json_->string_or("");
  }
  [[nodiscard]] bool boolean() const {
    if (json_->kind() != Json::Kind::boolean) wrong("true or false");
    return json_->boolean_or(false);
  }
  [[nodiscard]] bool boolean_or(bool otherwise) const { return absent() ? otherwise : boolean(); }
  [[nodiscard]] std::int64_t integer(std::int64_t most) const {
    const std::int64_t value = json_->is_number() ? json_->integer_or(-1) : -1;
    if (value < 0 || value > most) wrong(text("an integer from 0 to ", most));
    return value;
  }
  [[nodiscard]] const std::vector<Json>& elements() const {
    if (!json_->is_array()) wrong("a list");
    return json_->elements();
  }

  [[noreturn]] void wrong(std::string_view wanted) const {
    fail(ErrorCode::invalid_argument, "tokenizer", "got '", shown(name_, 100),
         "' that is missing or of another kind; expected ", wanted);
  }
  [[noreturn]] void unknown(std::string_view what, std::string_view known) const {
    fail(ErrorCode::unsupported, "tokenizer", "got ", what, " '", shown(type()), "' (",
         shown(name_, 100), "); expected one of ", known);
  }

 private:
  const Json* json_;
  std::string name_;
};

// Parts of one kind in a row: those of known tokenizers are fewer than ten.
inline constexpr std::size_t kMaxSteps = 32;

inline void check_steps(std::size_t steps, std::string_view what) {
  check(steps <= kMaxSteps, ErrorCode::unsupported, "tokenizer", "got ", steps, " ", what,
        " in a row; expected at most ", kMaxSteps);
}

// Bytes that a text may grow to, in all its pieces together: a file's replacements may double a
// text again and again.
class GrowthLimit {
 public:
  // NFKD, which is the largest growth of all that is known, makes 11 bytes of one.
  static constexpr std::size_t kFactor = 16, kMore = std::size_t{1} << 20;
  explicit GrowthLimit(std::size_t bytes, std::size_t more = kMore)
      : given_(bytes), left_(bytes * kFactor + more) {}

  // Of what a step has made so far of the piece.
  void check_bytes(std::size_t bytes) const {
    if (bytes > left_)
      fail(ErrorCode::unsupported, "tokenizer", "got a tokenizer.json that makes ", bytes,
           " bytes and more of a text of ", given_, "; expected about ", kFactor,
           " times as many at most; get the model's own tokenizer.json");
  }
  // The piece is done.
  void take(std::size_t bytes) {
    check_bytes(bytes);
    left_ -= bytes;
  }

 private:
  std::size_t given_, left_;
};

// Calls take(part) for a part, or for each part of a Sequence in order, `list` being the name of
// its members; sequences may nest as deep as JSON does.
template <typename Take>
void each_of_sequence(const Part& part, std::string_view list, const Take& take) {
  if (part.absent()) return;
  if (part.type() != "Sequence") return take(part);
  const Part members = part[list];
  for (std::size_t i = 0; i < members.elements().size(); ++i)
    each_of_sequence(members.element(i), list, take);
}

}  // namespace octavo::tokenizer
