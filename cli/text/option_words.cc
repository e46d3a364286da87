#include "cli/text/option_words.h"

#include <array>
#include <string_view>

namespace octavo::cli {

std::string with_flags(std::string message) {
  struct Words {
    std::string_view option, flag;
  };
  // Only these: a message also quotes untrusted names of files and tensors.
  constexpr std::array<Words, 17> kWords{{{"option include", "--include"},
                                          {"option exclude", "--exclude"},
                                          {"option recipe_for", "--recipe-for"},
                                          {"option candidates", "--candidates"},
                                          {"option statistics", "--statistics"},
                                          {"option input_scales", "--input-scales"},
                                          {"option kv_scales", "--kv-scales"},
                                          {"option dtype", "--dtype"},
                                          {"option plan", "--plan"},
                                          {"options rank, world", "--rank, --world"},
                                          {"option rank", "--rank"},
                                          {"option world", "--world"},
                                          {"option follow_links", "--follow-links"},
                                          {"option resume", "--resume"},
                                          {"option delete_source", "--delete-source-shards"},
                                          {"option nonfinite", "--non-finite clamp"},
                                          {"option recipe", "--recipe"}}};
  for (const auto& [option, flag] : kWords)
    for (std::size_t at = message.find(option); at != std::string::npos;
         at = message.find(option, at + flag.size()))
      message.replace(at, option.size(), flag);
  return message;
}

}  // namespace octavo::cli
