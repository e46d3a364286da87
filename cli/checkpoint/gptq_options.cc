#include "cli/checkpoint/gptq_options.h"

#include "cli/command.h"
#include "cli/text/names.h"
#include "octavo/base/error.h"

namespace octavo::cli {
namespace {

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw UsageError(text("[quantize] ", parts...));
}

}  // namespace

void add_gptq_options(CLI::App& app, GptqArguments& arguments) {
  app.add_option("--method", arguments.method,
                 "rtn (default): each number to nearest; gptq: by what the layers see on --text, "
                 "layer by layer")
      ->type_name("NAME")
      ->check(CLI::IsMember({"rtn", "gptq"}).description(""));
  app.add_option("--damping", arguments.damping,
                 "Of gptq: added to the diagonal of Hessians, as a part of its mean (default 0.05)")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1e6).description(""));
  app.add_option("--column-order", arguments.order,
                 "Of gptq: natural (default), or activation, the largest inputs first")
      ->type_name("NAME");
  add_calibration_options(app, arguments.text);
}

std::optional<GptqCalibration> gptq_calibration(const GptqArguments& arguments) {
  const TextArguments& of = arguments.text;
  if (arguments.method != "gptq") {
    const char* unused = !of.texts.empty()               ? "--text"
                         : !of.ids.empty()               ? "--ids"
                         : of.window != 0                ? "--window"
                         : of.tokens != 0                ? "--tokens"
                         : !of.temporary.empty()         ? "--temporary"
                         : arguments.damping.has_value() ? "--damping"
                         : arguments.order.has_value()   ? "--column-order"
                                                         : nullptr;
    if (unused != nullptr)
      refuse("got ", unused, ", which is for --method gptq; add that, or leave it out");
    return std::nullopt;
  }
  GptqCalibration out{.window = of.window, .tokens = of.tokens, .temporary = of.temporary};
  if (arguments.damping) out.damping = *arguments.damping;
  if (arguments.order)
    out.order = named_argument("[quantize] --column-order:", *arguments.order,
                               {"natural", "activation"}, parse_column_order);
  out.texts = read_texts("quantize", of);
  return out;
}

}  // namespace octavo::cli
