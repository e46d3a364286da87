// What every page is: one file without a request, and its words about what it knows.
#include "octavo/base/error.h"
#include "octavo/report/page/page_internal.h"

namespace octavo::page {

std::string knowledge() {
  return "<p class=\"know small\"><b>What this page knows:</b> how far each weight moved, from the "
         "weights alone. <b>What it cannot know:</b> what that does to the model, for it has seen "
         "no data. A recipe with less weight error can have more perplexity: measure the model, "
         "too, with <code>octavo eval</code>.</p>\n";
}

// The policy forbids every request, whatever a name may have smuggled in.
std::string document(std::string_view title, std::string_view body, std::string_view footer) {
  return text(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<meta "
      "http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
      "img-src "
      "data:\">\n<link rel=\"icon\" href=\"data:,\">\n<title>",
      escaped(title), " - octavo</title>\n<style>", style(), "</style></head>\n<body><main>\n",
      body, "<footer>", footer,
      "</footer>\n"
      "</main>\n<script>",
      script(), "</script></body></html>\n");
}

}  // namespace octavo::page
