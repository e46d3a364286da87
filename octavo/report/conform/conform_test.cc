#include "octavo/report/conform/conform.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "octavo/base/error_testing_internal.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/report/conform/conform_internal.h"

namespace octavo {
namespace {

using error_testing::message_of;

std::string deviating(const ConformReport& report) {
  std::string out;
  for (const ConformFinding& one : report.findings)
    if (one.verdict == ConformVerdict::deviates)
      out += one.clause + " " + one.check + " (" + one.format + "): " + one.what + "\n";
  return out;
}

// What deviates, without formats and examples; each once.
std::string kinds(const ConformReport& report) {
  std::string out;
  for (const ConformFinding& one : report.findings) {
    const std::string kind = one.clause + " " + one.check + "\n";
    if (one.verdict == ConformVerdict::deviates && out.find(kind) == std::string::npos) out += kind;
  }
  return out;
}

// octavo with a change to what it answers.
ConformReport changed(ConformKind kind,
                      const std::function<void(const ConformRequest&, ConformReply&)>& change) {
  return conform([&](const ConformRequest& request) {
    ConformReply reply = octavo_conforms(request);
    if (request.kind == kind) change(request, reply);
    return reply;
  });
}

TEST(Conform, OctavoDoes) {
  const ConformReport report = conform(octavo_conforms);
  EXPECT_EQ(deviating(report), "");
  EXPECT_EQ(report.count(ConformVerdict::not_offered), 0);
  EXPECT_GT(report.count(ConformVerdict::conforms), 60);
  // Elements of mxint8 reach nearly twice the power of two, and none of the inputs is beyond.
  for (const ConformFinding& one : report.findings) {
    const bool may_not_occur =
        one.check == "elements beyond the largest are clamped" && one.format == "mxint8";
    EXPECT_GE(one.cases, may_not_occur ? 0 : 1) << one.check << ", " << one.format;
  }
}

// Each change breaks the clause that is about it, and no other.
TEST(Conform, AScaleThatIsTwiceAsLargeIsOne) {
  const ConformReport report =
      changed(ConformKind::convert, [](const ConformRequest& request, ConformReply& reply) {
        for (std::size_t b = 0; b < reply.scales.size(); ++b) {
          if (reply.scales[b] >= 254) continue;
          ++reply.scales[b];
          for (std::size_t i = b * 32; i < b * 32 + 32; ++i)
            reply.codes[i] = conforming::nearest_code(
                request.format,
                static_cast<double>(request.values[i]) / conforming::scale_value(reply.scales[b]));
        }
      });
  EXPECT_EQ(kinds(report), "6.3 the scale of a block\n");
}

TEST(Conform, RoundingTowardsZeroIsOne) {
  const ConformReport report =
      changed(ConformKind::convert, [](const ConformRequest& request, ConformReply& reply) {
        const Format& format = request.format;
        for (std::size_t i = 0; i < reply.codes.size(); ++i) {
          const double u = static_cast<double>(request.values[i]) /
                           conforming::scale_value(reply.scales[i / 32]);
          const double got = decode(format, reply.codes[i]);
          if (std::fabs(got) > std::fabs(u) && std::fabs(got) > 0)
            reply.codes[i] = static_cast<std::uint8_t>(
                format.twos_complement ? reply.codes[i] + (u < 0 ? 1 : -1) : reply.codes[i] - 1);
        }
      });
  EXPECT_EQ(kinds(report),
            "6.3 elements are rounded to nearest\n"
            "6.3 ties go to even, subnormal elements are kept\n");
}

TEST(Conform, AWrongValueOfACodeAndALostNanAre) {
  EXPECT_EQ(kinds(changed(ConformKind::dequantize,
                          [](const ConformRequest& request, ConformReply& reply) {
                            if (request.scales[0] == 255)
                              for (float& value : reply.values) value = 0;
                          })),
            "5.1 a NaN scale makes all of a block NaN\n");
  const std::string wrong = kinds(
      changed(ConformKind::dequantize, [](const ConformRequest& request, ConformReply& reply) {
        for (std::size_t i = 0; i < request.codes.size(); ++i)
          if (request.codes[i] == 3) reply.values[i] *= 2;
      }));
  EXPECT_NE(wrong.find("5.3.3 values of all codes"), std::string::npos) << wrong;
}

// 5.3.4: the lowest integer may be used or not; what is beyond it may be neither smaller nor wrap.
TEST(Conform, TheLowestIntegerIsAChoiceAndWrappingIsNone) {
  const auto what = [](const ConformReport& report) {
    for (const ConformFinding& one : report.findings)
      if (one.check == "the ends of the range") return one.what;
    return std::string();
  };
  EXPECT_EQ(what(conform(octavo_conforms)), "-2 is used");
  const auto instead_of_lowest = [](std::uint8_t code) {
    return changed(ConformKind::convert,
                   [code](const ConformRequest& request, ConformReply& reply) {
                     if (!request.format.twos_complement) return;
                     for (std::uint8_t& one : reply.codes)
                       if (one == 0x80) one = code;
                   });
  };
  const ConformReport symmetric = instead_of_lowest(0x81);
  EXPECT_EQ(deviating(symmetric), "");
  EXPECT_EQ(what(symmetric), "-2 is not used: the range is symmetric");
  EXPECT_EQ(kinds(instead_of_lowest(0x7F)), "5.3.4 the ends of the range\n");
}

TEST(Conform, AProductThatIsOffIs) {
  EXPECT_EQ(kinds(changed(ConformKind::dot,
                          [](const ConformRequest&, ConformReply& reply) {
                            reply.values[0] = std::nextafter(reply.values[0], INFINITY);
                          })),
            "6.1 Dot of exact sums\n6.2 DotGeneral of exact sums, four blocks\n");
}

TEST(Conform, ANaNOfFiniteProductsIs) {
  const std::string found =
      kinds(changed(ConformKind::dot, [](const ConformRequest&, ConformReply& reply) {
        reply.values[0] = std::nanf("");
      }));
  EXPECT_NE(found.find("6.2 precision of sums"), std::string::npos) << found;
}

TEST(Conform, FormatsOfMoreThanEightBitsAreNotOffered) {
  for (const char* const line : {"dequantize e5m10 7f ", "dequantize e8m7 7f "}) {
    const ConformRequest request = parse_request(std::string(line) + std::string(64, '0'));
    EXPECT_NE(octavo_conforms(request).not_offered, "") << line;
  }
}

TEST(Conform, WhatIsNotOfferedIsNoDeviation) {
  const ConformReport report = conform([](const ConformRequest& request) {
    if (request.kind != ConformKind::convert) return ConformReply{.not_offered = "no <b>"};
    return octavo_conforms(request);
  });
  EXPECT_EQ(deviating(report), "");
  EXPECT_GT(report.count(ConformVerdict::not_offered), 20);
}

TEST(Conform, RepliesOfAnotherLengthAreRefused) {
  const std::string message = message_of([] {
    (void)conform([](const ConformRequest& request) {
      ConformReply reply = octavo_conforms(request);
      if (!reply.values.empty()) reply.values.pop_back();
      return reply;
    });
  });
  EXPECT_NE(message.find("[conform] got a reply with"), std::string::npos) << message;
}

// Through the lines of the protocol nothing is lost.
TEST(ConformProtocol, LinesReadBackAsTheyWere) {
  const ConformReport direct = conform(octavo_conforms);
  const ConformReport by_lines = conform([](const ConformRequest& request) {
    const ConformRequest read = parse_request(request_line(request));
    return parse_reply(reply_line(octavo_conforms(read)), request);
  });
  EXPECT_EQ(json_of(direct), json_of(by_lines));
  ConformRequest request{
      .kind = ConformKind::convert, .format = e4m3fn, .values = std::vector<float>(32, -1.5F)};
  EXPECT_EQ(request_line(request).substr(0, 31), "convert e4m3fn bfc00000bfc00000");
}

TEST(ConformProtocol, GarbageIsRefused) {
  const ConformRequest request{
      .kind = ConformKind::convert, .format = e4m3fn, .values = std::vector<float>(32)};
  for (const std::string& line :
       {std::string(), std::string("hello"), std::string("ok"), std::string("ok 7f"),
        std::string("ok zz 00"), std::string("ok 7 00"), std::string("ok 7f 00 00"),
        std::string("\xff\xfe")}) {
    const std::string message = message_of([&] { (void)parse_reply(line, request); });
    EXPECT_NE(message.find("[conform] got"), std::string::npos) << line << ": " << message;
  }
  for (const char* const line :
       {"", "quantize e4m3fn 00", "convert e4m3fn", "convert e9 00000000",
        "convert e4m3fn 00000000", "dequantize e4m3fn 7f 00", "dot e4m3fn 7f 00 e4m3fn 7f"}) {
    // A format's own message names it.
    const std::string message = message_of([&] { (void)parse_request(line); });
    EXPECT_TRUE(message.find("got") != std::string::npos ||
                message.find("'e9'") != std::string::npos)
        << line << ": " << message;
  }
  EXPECT_EQ(parse_reply("skip no such thing", request).not_offered, "no such thing");
}

}  // namespace
}  // namespace octavo
