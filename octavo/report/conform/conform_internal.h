// Shared by the checks of conform(): asking, and counting. What is expected is computed here in
// doubles from the definition of the formats, without octavo's encoders or kernels.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "octavo/report/conform/conform.h"

namespace octavo::conforming {

// The element formats of clause 5.2, with the clause of their encoding.
struct Element {
  std::string_view name, clause;
  Format format;
  int top_exponent;  // of the largest power of two that it holds
};
[[nodiscard]] const std::vector<Element>& elements();

// One finding under construction.
class Check {
 public:
  Check(ConformReport& report, std::string clause, std::string check, std::string format)
      : report_(report),
        finding_{
            .clause = std::move(clause), .check = std::move(check), .format = std::move(format)} {}
  ~Check() { report_.findings.push_back(std::move(finding_)); }
  Check(const Check&) = delete;
  Check& operator=(const Check&) = delete;

  // Counts a case; `says` describes one that deviates and is called for the first alone.
  void expect(bool good, const std::function<std::string()>& says) {
    ++finding_.cases;
    if (good) return;
    if (finding_.deviations++ == 0) finding_.what = says();
    finding_.verdict = ConformVerdict::deviates;
  }
  // What is left to implementations.
  void choice(std::string what) {
    ++finding_.cases;
    if (finding_.verdict == ConformVerdict::deviates) return;
    finding_.verdict = ConformVerdict::chooses;
    if (finding_.what.find(what) == std::string::npos)
      finding_.what += (finding_.what.empty() ? "" : "; ") + what;
  }
  void not_offered(std::string why) {
    finding_.verdict = ConformVerdict::not_offered;
    finding_.what = std::move(why);
  }

 private:
  ConformReport& report_;
  ConformFinding finding_;
};

// Asks, and checks the lengths of the reply. False, noted in the check, where it is not offered.
[[nodiscard]] bool ask(const ConformPeer& peer, const ConformRequest& request, ConformReply& reply,
                       Check& check);

// 2^(scale - 127); NaN for 255.
[[nodiscard]] double scale_value(std::uint8_t scale);
// The code of the nearest value, ties to the even code, clamped to the largest finite value: by
// comparing with every value of the format. Zeros keep their sign where the format has two.
[[nodiscard]] std::uint8_t nearest_code(const Format& format, double value);
[[nodiscard]] std::string number_text(double value);
// The same number; any two NaNs are.
[[nodiscard]] inline bool same(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

void check_decoding(const ConformPeer& peer, const Element& element, ConformReport& report);
void check_conversion(const ConformPeer& peer, const Element& element, ConformReport& report);
void check_products(const ConformPeer& peer, ConformReport& report);

}  // namespace octavo::conforming
