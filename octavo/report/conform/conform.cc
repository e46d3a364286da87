#include "octavo/report/conform/conform.h"

#include <map>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/report/conform/conform_internal.h"

namespace octavo {
namespace conforming {
namespace {

void check_length(std::size_t got, std::int64_t wanted, std::string_view what) {
  check(static_cast<std::int64_t>(got) == wanted, ErrorCode::invalid_argument, "conform",
        "got a reply with ", got, " ", what, "; expected ", wanted);
}

}  // namespace

const std::vector<Element>& elements() {
  static const std::vector<Element> kAll{
      {"e4m3fn", "5.3.1", e4m3fn, 8}, {"e5m2", "5.3.1", e5m2, 15},
      {"e3m2fn", "5.3.2", e3m2fn, 4}, {"e2m3fn", "5.3.2", e2m3fn, 2},
      {"e2m1fn", "5.3.3", e2m1fn, 2}, {"mxint8", "5.3.4", mxint8, 0}};
  return kAll;
}

bool ask(const ConformPeer& peer, const ConformRequest& request, ConformReply& reply,
         Check& check) {
  reply = peer(request);
  if (!reply.not_offered.empty()) {
    check.not_offered(reply.not_offered);
    return false;
  }
  const std::int64_t blocks = request.blocks();
  switch (request.kind) {
    case ConformKind::convert:
      check_length(reply.scales.size(), blocks, "scales");
      check_length(reply.codes.size(), blocks * kMxBlockSize, "codes");
      break;
    case ConformKind::dequantize:
      check_length(reply.values.size(), blocks * kMxBlockSize, "values");
      break;
    case ConformKind::dot:
      check_length(reply.values.size(), 1, "values");
      break;
  }
  return true;
}

double scale_value(std::uint8_t scale) {
  return scale == 255 ? std::nan("") : std::ldexp(1.0, int{scale} - 127);
}

std::uint8_t nearest_code(const Format& format, double value) {
  std::uint32_t best = 0;
  double least = INFINITY;
  for (std::uint32_t code = 0; code <= format.code_mask(); ++code) {
    const double at = decode(format, code);
    if (!std::isfinite(at)) continue;
    // A format with one zero has it for both signs.
    const bool either = at == 0 && !format.has_negative_zero();
    if (!either && std::signbit(at) != std::signbit(value)) continue;
    const double away = std::fabs(at - value);
    // Of two that are as near, the even one: codes count upwards with magnitudes.
    if (away < least || (away == least && code % 2 == 0)) {
      least = away;
      best = code;
    }
  }
  return static_cast<std::uint8_t>(best);
}

std::string number_text(double value) { return text(value); }

}  // namespace conforming

namespace {

constexpr std::string_view kVerdicts[] = {"conforms", "deviates", "chooses", "not offered"};

}  // namespace

std::string_view name_of(ConformVerdict verdict) {
  return kVerdicts[static_cast<std::size_t>(verdict)];
}

std::int64_t ConformReport::count(ConformVerdict verdict) const {
  std::int64_t found = 0;
  for (const ConformFinding& one : findings) found += one.verdict == verdict ? 1 : 0;
  return found;
}

ConformReport conform(const ConformPeer& peer) {
  ConformReport report;
  for (const conforming::Element& element : conforming::elements())
    conforming::check_decoding(peer, element, report);
  for (const conforming::Element& element : conforming::elements())
    conforming::check_conversion(peer, element, report);
  conforming::check_products(peer, report);
  return report;
}

std::string json_of(const ConformReport& report) {
  Json findings = Json::array();
  for (const ConformFinding& one : report.findings)
    findings.push(Json::object({{"clause", one.clause},
                                {"check", one.check},
                                {"format", one.format},
                                {"verdict", name_of(one.verdict)},
                                {"cases", one.cases},
                                {"deviations", one.deviations},
                                {"what", one.what}}));
  return Json::object({{"standard", "OCP MX 1.0"},
                       {"conforms", report.count(ConformVerdict::deviates) == 0},
                       {"findings", std::move(findings)}})
      .dump();
}

std::string text_of(const ConformReport& report) {
  // Formats with the same outcome of a check share a line.
  struct Line {
    const ConformFinding* first;
    std::string formats;
    std::int64_t cases = 0, deviations = 0;
  };
  std::vector<Line> lines;
  for (const ConformFinding& one : report.findings) {
    const bool counted = one.verdict == ConformVerdict::deviates;
    Line* found = nullptr;
    for (Line& line : lines)
      if (line.first->clause == one.clause && line.first->check == one.check &&
          line.first->verdict == one.verdict && (counted || line.first->what == one.what))
        found = &line;
    if (found == nullptr) found = &lines.emplace_back(Line{.first = &one, .formats = {}});
    found->formats += (found->formats.empty() ? "" : ", ") + one.format;
    found->cases += one.cases;
    found->deviations += one.deviations;
  }
  std::string out;
  for (const Line& line : lines) {
    out += text(line.first->clause, "  ", name_of(line.first->verdict), "  ", line.first->check,
                " (", line.formats, ")");
    if (line.deviations > 0) out += text(": ", line.deviations, " of ", line.cases);
    if (!line.first->what.empty())
      out += text(line.deviations > 0 ? ", the first: " : ": ", line.first->what);
    out += "\n";
  }
  return out;
}

}  // namespace octavo
