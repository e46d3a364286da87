// Architectures of GGUF files that octavo knows, and the names of their tensors: llama.cpp's own in
// the file, Hugging Face's everywhere else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/checkpoint/gguf/gguf_header.h"

namespace octavo::gguf {

// Factors of rotary frequencies, which Hugging Face's models compute from config.json.
inline constexpr std::string_view kRopeFactors = "rope_freqs.weight";

// "blk.0.attn_q.weight" to "model.layers.0.self_attn.q_proj.weight", and back; "" for other names.
[[nodiscard]] std::string model_name(std::string_view gguf_name);
[[nodiscard]] std::string gguf_name(std::string_view model_name);

// general.architecture; "" where there is none.
[[nodiscard]] std::string_view architecture_of(const Header& header);
[[nodiscard]] std::string known_architectures();  // for messages

// What an architecture is in both worlds.
struct Architecture {
  std::string_view name;        // general.architecture, and model_type of config.json
  std::string_view class_name;  // of transformers
  bool rope_interleaved;        // rows of Q and K are stored as rope_row() says
};
[[nodiscard]] const Architecture* find_architecture(std::string_view name);

// The architecture of a file, with what undoing the order of its rows needs.
struct Family {
  const Architecture* architecture = nullptr;
  std::int64_t heads = 0, kv_heads = 0;

  [[nodiscard]] bool known() const { return architecture != nullptr; }
  // The heads that a tensor's rows are interleaved in; 0 where they are not. Throws
  // Error(invalid_argument) where its rows are no heads.
  [[nodiscard]] std::int64_t rope_heads(const TensorInfo& tensor) const;
};
// Unknown too where the model has experts.
[[nodiscard]] Family family_of(const Header& header);

// Values under "<architecture>.<key>"; nullopt where there is none of that kind.
[[nodiscard]] const Value* find_value(const Header& header, std::string_view key);
[[nodiscard]] std::optional<std::int64_t> model_integer(const Header& header, std::string_view key);
[[nodiscard]] std::optional<double> model_number(const Header& header, std::string_view key);

}  // namespace octavo::gguf
