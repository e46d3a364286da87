#include "octavo/model/tokenizer/post_processor_internal.h"

#include <utility>

#include "octavo/model/tokenizer/vocabulary_internal.h"

namespace octavo::tokenizer {
namespace {

constexpr std::size_t kMaxItems = 64;  // a text with 64 templates of 64 texts would be large

}  // namespace

PostProcessor::PostProcessor(const Part& part) {
  each_of_sequence(part, "processors", [&](const Part& one) { add(one); });
  check_steps(templates_.size(), "post-processors");
}

PostProcessor::PostProcessor(std::optional<std::int32_t> begin, std::optional<std::int32_t> end) {
  Template whole;
  if (begin) whole.push_back({*begin});
  whole.emplace_back();
  if (end) whole.push_back({*end});
  templates_.push_back(std::move(whole));
}

void PostProcessor::add(const Part& part) {
  const std::string_view type = part.type();
  if (type == "ByteLevel") return;  // of offsets, which there are none of here
  if (type == "TemplateProcessing") return add_template(part);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    Template whole(3);
    for (const auto& [at, name] : {std::pair{0U, "cls"}, {2U, "sep"}}) {
      const Part token = part[name];
      if (token.elements().size() != 2) token.wrong("a token and its id");
      whole[at] = {static_cast<std::int32_t>(token.element(1).integer(kMaxId))};
    }
    templates_.push_back(std::move(whole));
    return;
  }
  part.unknown("a post-processor of the kind",
               "ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing, Sequence");
}

void PostProcessor::add_template(const Part& part) {
  const Part single = part["single"], specials = part["special_tokens"];
  Template whole;
  std::size_t texts = 0;
  if (single.elements().size() > kMaxItems) single.wrong(text("at most ", kMaxItems, " members"));
  for (std::size_t i = 0; i < single.elements().size(); ++i) {
    const Part item = single.element(i);
    if (const Part sequence = item["Sequence"]; !sequence.absent()) {
      if (sequence["id"].string() != "A") sequence["id"].wrong("A");
      whole.emplace_back();
      ++texts;
      continue;
    }
    const Part ids = specials[item["SpecialToken"]["id"].string()]["ids"];
    if (ids.elements().size() > kMaxItems) ids.wrong(text("at most ", kMaxItems, " ids"));
    Item tokens;
    for (std::size_t k = 0; k < ids.elements().size(); ++k)
      tokens.push_back(static_cast<std::int32_t>(ids.element(k).integer(kMaxId)));
    if (!tokens.empty()) whole.push_back(std::move(tokens));
  }
  if (texts != 1) single.wrong("the text once");
  templates_.push_back(std::move(whole));
}

std::vector<std::int32_t> PostProcessor::process(std::vector<std::int32_t> ids,
                                                 bool specials) const {
  if (!specials) return ids;
  for (const Template& whole : templates_) {
    std::vector<std::int32_t> out;
    for (const Item& item : whole)
      out.insert(out.end(), item.empty() ? ids.begin() : item.begin(),
                 item.empty() ? ids.end() : item.end());
    ids = std::move(out);
  }
  return ids;
}

std::optional<std::int32_t> PostProcessor::begin() const {
  for (const Template& whole : templates_)
    if (whole.front().size() == 1) return whole.front().front();
  return std::nullopt;
}

std::optional<std::int32_t> PostProcessor::end() const {
  for (const Template& whole : templates_)
    if (whole.back().size() == 1) return whole.back().front();
  return std::nullopt;
}

}  // namespace octavo::tokenizer
