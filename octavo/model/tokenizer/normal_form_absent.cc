// What stands in for normal_form.cc where utf8proc was missing when octavo was built: no tokenizer
// can be made, so nothing calls these.
#include "octavo/model/tokenizer/normal_form_internal.h"

namespace octavo::tokenizer {

std::string normal_form(std::string_view text, NormalForm) { return std::string(text); }
std::string lower_case(std::string_view text) { return std::string(text); }
bool is_numeric(std::uint32_t) { return false; }

std::string_view missing_for_normal_forms() { return "utf8proc (Debian: libutf8proc-dev)"; }

}  // namespace octavo::tokenizer
