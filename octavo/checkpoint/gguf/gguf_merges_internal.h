// Merges of a GGUF file's vocabulary as the list in a tokenizer.json, pairs of tokens in order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/checkpoint/gguf/gguf_tokenizer.h"

namespace octavo::gguf {

// Of byte-level BPE: as the file lists them, "a b".
[[nodiscard]] std::string merges_of_list(const std::vector<std::string_view>& merges,
                                         const std::vector<std::string_view>& tokens);

// SentencePiece joins the two neighbours whose union has the highest score; BPE those whose pair
// comes first in its list. So the list has all pairs whose union is a token, by the union's score.
[[nodiscard]] std::string merges_by_score(const std::vector<double>& scores,
                                          const std::vector<std::string_view>& tokens,
                                          const std::vector<TokenKind>& kinds);
// "" where that list is of a size that vocabularies have. A file made to be hostile has hundreds of
// merges for each token, which its own size does not show.
[[nodiscard]] std::string why_no_merges(const std::vector<std::string_view>& tokens,
                                        const std::vector<TokenKind>& kinds);

}  // namespace octavo::gguf
