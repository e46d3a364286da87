#include "octavo/report/checkpoint_report.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/report/page/page_internal.h"
#include "octavo/report/report_testing_internal.h"

namespace octavo {
namespace {

using namespace std::string_literals;

TEST(PageText, NothingInANameIsMarkup) {
  EXPECT_EQ(page::escaped("<script>alert('x')</script>"),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;");
  EXPECT_EQ(page::escaped("a&b\"c"), "a&amp;b&quot;c");
}

TEST(PageText, InvisibleCharactersAreEscaped) {
  EXPECT_EQ(page::escaped("a\0b\n\x7f"s), "a\\x00b\\x0a\\x7f");
  EXPECT_EQ(page::escaped("\xff\xc3\xa9\xc3"), "\\xff\xc3\xa9\\xc3");    // é is well-formed
  EXPECT_EQ(page::escaped("\xc0\xaf"), "\\xc0\\xaf");                    // overlong '/'
  EXPECT_EQ(page::escaped("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(page::escaped("\xe2\x80\xaetxt"), "\\u202etxt");             // right-to-left override
  EXPECT_EQ(page::escaped("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
}

TEST(PageText, Numbers) {
  EXPECT_EQ(page::grouped(1234567), "1,234,567");
  EXPECT_EQ(page::grouped(-1234), "-1,234");
  EXPECT_EQ(page::grouped(999), "999");
  EXPECT_EQ(page::bytes_text(1536), "1.50 KiB");
  EXPECT_EQ(page::cosine_text(0.999654), "0.99965");
  EXPECT_EQ(page::cosine_text(1), "1");
  EXPECT_EQ(page::fixed(INFINITY, 2), "inf");
}

TEST(PageText, PlacesOfModules) {
  const page::Place expert = page::place_of("model.layers.3.mlp.experts.17.up_proj");
  EXPECT_EQ(expert.stack, "model.layers");
  EXPECT_EQ(expert.layer, 3);
  EXPECT_EQ(expert.module, "mlp.experts.*.up_proj");
  EXPECT_EQ(page::place_of("lm_head").layer, -1);
  EXPECT_EQ(page::place_of("a.99999999999999999999.b").layer, -1);  // no number of a layer
  EXPECT_EQ(page::place_of("...").layer, -1);
}

TEST(CheckpointReport, WorstAreTheLowestSqnr) {
  CheckpointReport report;
  for (const double sqnr : {30.0, 20.0, 25.0}) {
    TensorReport tensor;
    tensor.measured = true;
    tensor.metrics.sqnr = sqnr;
    report.tensors.push_back(tensor);
  }
  report.tensors.emplace_back();  // not measured
  EXPECT_EQ(report.worst(2), (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(report.worst(9), (std::vector<std::size_t>{1, 2, 0}));
}

TEST(CheckpointReport, JsonSaysWhatTheReportSays) {
  const CheckpointReport report = testing::sample_report(1, "mxfp4");
  const Json json = parse_json(json_of(report), "report");
  EXPECT_EQ(json["tensors"].elements().size(), report.tensors.size());
  const TensorReport& tensor = report.tensors[2];
  const Json& same = json["tensors"].elements()[2];
  EXPECT_EQ(same["name"].string_or(""), tensor.name);
  EXPECT_EQ(same["metrics"]["sqnr"].number_or(0), tensor.metrics.sqnr);
  EXPECT_EQ(same["codes"].elements().size(), 16U);
  EXPECT_FALSE(json["tensors"].elements()[0].has("metrics"));
}

TEST(CheckpointReport, PageHasEveryTensorAndNoForeignMarkup) {
  CheckpointReport report = testing::sample_report(3, "mxfp8");
  const std::string evil = "</td><script>alert(1)</script>\"'\0\xff"s;
  report.title = report.source = report.output = report.recipe = report.target = evil;
  report.notes = {evil};
  report.provenance = {{evil, evil}};
  for (TensorReport& tensor : report.tensors) {
    tensor.why = evil;
    tensor.advice = evil;
  }
  for (TensorReport& tensor : report.tensors) tensor.recipe_for = evil;
  report.advice = {
      {.what = evil, .tensor = evil, .advice = evil, .tensors = 2, .recipe_for = evil}};
  report.tensors[2].name = report.tensors[2].module = evil;
  report.tensors[3].module = "model.layers.0." + evil;
  report.tensors[3].preset = report.tensors[3].scaling = evil;
  const std::string html = html_of(report);
  EXPECT_EQ(html.find("alert(1)</script>"), std::string::npos);
  EXPECT_EQ(html.find('\0'), std::string::npos);
  EXPECT_EQ(html.find('\xff'), std::string::npos);
  std::size_t scripts = 0;
  for (std::size_t at = 0; (at = html.find("<script", at)) != std::string::npos; ++at) ++scripts;
  EXPECT_EQ(scripts, 1U);
  for (const char* outside : {"http:", "https:", "src=", "url(", "@import"})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  EXPECT_NE(html.find("self_attn.<wbr>v_proj"), std::string::npos);
}

// Every 128th row was counted: what is shown for all values is 128 times that, and says "about".
TEST(CheckpointReport, CountsOfASampleAreEstimates) {
  CheckpointReport report = testing::sample_report(1, "mxfp4");
  TensorReport& tensor = report.tensors[report.worst(1)[0]];
  tensor.metrics.values = {.first_exponent = -6, .counts = {7'000, 2'700}, .zeros = 300};
  tensor.results = {.first_exponent = -6, .counts = {7'000, 2'500}, .zeros = 500};
  tensor.metrics.elements = 10'000;
  const std::string all = html_of(report);
  EXPECT_NE(all.find("; 300 are zero"), std::string::npos);
  EXPECT_NE(all.find("; 500 are zero"), std::string::npos);
  EXPECT_NE(all.find("2^-6 to 2^-5: 7,000<"), std::string::npos);
  tensor.metrics.elements = 10'000 * 128;
  const std::string sampled = html_of(report);
  EXPECT_NE(sampled.find("; about 38,400 are zero"), std::string::npos);
  EXPECT_NE(sampled.find("; about 64,000 are zero"), std::string::npos);
  EXPECT_NE(sampled.find("2^-6 to 2^-5: about 896,000<"), std::string::npos);
  EXPECT_EQ(sampled.find("; 300 are zero"), std::string::npos);
  const Json json = parse_json(json_of(report), "report");
  const Json& values = json["tensors"].elements()[report.worst(1)[0]]["values"];
  EXPECT_EQ(values["counted"].integer_or(0), 10'000);
}

// The cells of the first map, by grade, and how many marks there are in it.
std::map<std::string, int> cells_of(const std::string& html) {
  const std::size_t begin = html.find("<div class=\"pane\">");
  const std::string first =
      html.substr(begin, html.find("<div class=\"pane\">", begin + 1) - begin);
  std::map<std::string, int> cells;
  for (std::size_t at = 0; (at = first.find("class=\"hit g", at)) != std::string::npos; ++at)
    ++cells[first.substr(at + 11, 2)];
  for (std::size_t at = 0; (at = first.find("class=\"mark\"", at)) != std::string::npos; ++at)
    ++cells["mark"];
  return cells;
}

// Normal weights in FP8, and one tensor of a few large values that come out exactly: 31.5 dB is
// what to expect, and 40 dB is what does not fit.
TEST(HeatMap, HealthyTensorsAreCalmAndAnOutlierIsMarked) {
  CheckpointReport report;
  for (int layer = 0; layer < 8; ++layer)
    report.tensors.push_back(testing::sample_tensor(text("model.layers.", layer, ".up_proj"),
                                                    "fp8-channel", 0.02, 0,
                                                    static_cast<unsigned>(layer + 1)));
  EXPECT_EQ(cells_of(html_of(report)), (std::map<std::string, int>{{"g4", 8}}));
  report.tensors[3].metrics.sqnr = 40;
  report.tensors[5].metrics.sqnr = 18;
  const std::string html = html_of(report);
  EXPECT_EQ(cells_of(html),
            (std::map<std::string, int>{{"g0", 1}, {"g4", 6}, {"g6", 1}, {"mark", 2}}));
  EXPECT_NE(html.find("Far from normal weights"), std::string::npos);
  EXPECT_NE(html.find("A few large values hold most of the energy"), std::string::npos);
}

// The same decibels are good for one format and bad for another.
TEST(HeatMap, EveryFormatHasItsOwnAnchor) {
  CheckpointReport report;
  report.tensors.push_back(testing::sample_tensor("model.layers.0.up_proj", "mxfp4", 0.02));
  report.tensors.push_back(testing::sample_tensor("model.layers.0.down_proj", "mxfp8", 0.02));
  EXPECT_EQ(cells_of(html_of(report)), (std::map<std::string, int>{{"g4", 2}}));
  report.tensors[1].metrics.sqnr = report.tensors[0].metrics.sqnr;  // 12 dB less, two bits
  EXPECT_EQ(cells_of(html_of(report)),
            (std::map<std::string, int>{{"g0", 1}, {"g4", 1}, {"mark", 1}}));
}

TEST(HeatMap, GradesBeginWhereTheySay) {
  for (int grade = 1; grade < page::kExactGrade; ++grade) {
    EXPECT_EQ(page::grade_of(page::grade_begins(grade)), grade);
    EXPECT_EQ(page::grade_of(page::grade_begins(grade) - 1e-9), grade - 1);
  }
  EXPECT_EQ(page::grade_of(0), page::kExpectedGrade);
  EXPECT_EQ(page::grade_of(INFINITY), page::kExactGrade);
  EXPECT_EQ(page::grade_of(-INFINITY), 0);
  EXPECT_EQ(page::grade_of(NAN), 0);
  EXPECT_TRUE(page::is_far_off(-INFINITY));
  EXPECT_FALSE(page::is_far_off(INFINITY));  // no error
}

// Two plain checkpoints: there is no format to expect something of.
TEST(HeatMap, WithoutAFormatTheMedianIsTheAnchor) {
  CheckpointReport report = testing::sample_report(4, "mxfp8");
  for (TensorReport& tensor : report.tensors) {
    tensor.preset.clear();
    tensor.expected_sqnr = tensor.expected_cosine = NAN;
    tensor.metrics.sqnr = 50;
  }
  report.tensors[2].metrics.sqnr = 45;
  const std::string html = html_of(report);
  EXPECT_EQ(cells_of(html), (std::map<std::string, int>{{"g2", 1}, {"g4", 27}, {"mark", 1}}));
  EXPECT_NE(html.find("their median, 50.0 dB"), std::string::npos);
}

TEST(CheckpointReport, PageSaysWhatItCannotKnow) {
  const std::string html = html_of(testing::sample_report(1, "mxfp4"));
  EXPECT_NE(html.find("it has seen no data"), std::string::npos);
  EXPECT_NE(html.find("less weight error can have more perplexity"), std::string::npos);
  EXPECT_NE(html.find("<code>octavo eval</code>"), std::string::npos);
}

TEST(CheckpointReport, AdviceNamesItsTensorAndAnOptionToPaste) {
  CheckpointReport report = testing::sample_report(1, "mxfp4");
  report.advice = {{.what = "fp8-block instead of mxfp4",
                    .tensor = "model.<b>.weight",
                    .advice = "fp8-block instead of mxfp4 gains 13 dB for 3.8 bits more",
                    .tensors = 3,
                    .far_below = true,
                    .recipe_for = R"(^model\.\<b\>\.weight$=fp8-block)"}};
  const std::string html = html_of(report);
  EXPECT_NE(html.find("<code>model.&lt;b&gt;.weight</code>, far below normal weights: fp8-block "
                      "instead of mxfp4 gains 13 dB"),
            std::string::npos);
  EXPECT_NE(html.find("--recipe-for &#39;^model\\.\\&lt;b\\&gt;\\.weight$=fp8-block&#39;"),
            std::string::npos);
  EXPECT_NE(html.find("; the same for 2 other tensors"), std::string::npos);
}

TEST(CheckpointReport, PageOfNothing) {
  EXPECT_NE(html_of(CheckpointReport{}).find("</html>"), std::string::npos);
}

// The gain that is promised beside the gain that comes, of normal values, where the assumption
// (values in random order) holds; the estimate rounds to whole decibels, and the model takes values
// for evenly spread inside an eighth of a binade, which is good for one more.
TEST(Advice, PromisesWhatComes) {
  for (const char* now : {"mxfp4", "nvfp4"}) {
    for (const int outlier : {0, 400, 97}) {
      const TensorReport tensor = testing::sample_tensor("m", now, 0.02, outlier);
      const std::string advice = advice_for(tensor);
      ASSERT_NE(advice, "") << now;
      const std::string better = advice.substr(0, advice.find(' '));
      const double promised = std::stod(advice.substr(advice.find("gains ") + 6));
      const double got =
          testing::sample_tensor("m", better, 0.02, outlier).metrics.sqnr - tensor.metrics.sqnr;
      EXPECT_NEAR(promised, got, 1.5) << advice;
    }
  }
}

TEST(Advice, NamesNoPresetThatTheTargetCannotHold) {
  TensorReport tensor = testing::sample_tensor("m", "mxfp4", 0.02);
  const auto only = [&](std::string_view one) {
    tensor.could_have = {one};
    return advice_for(tensor);
  };
  for (const char* one : {"fp8-channel", "fp8-block", "mxfp8"})
    EXPECT_TRUE(only(one).starts_with(std::string(one) + " instead of mxfp4")) << only(one);
  EXPECT_EQ(only("none of them"), "");
}

// Tall, wide or square: the same values have the same advice, where scales of a row or a block
// differ by hundredths of a bit.
TEST(Advice, EqualTensorsHaveEqualAdvice) {
  for (const char* now : {"mxfp4", "nvfp4"}) {
    std::set<std::string> advised;
    for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{
             {64, 256}, {256, 1280}, {1280, 256}, {8192, 128}, {128, 8192}})
      for (const double sigma : {0.02, 0.0317, 1.0}) {
        TensorReport tensor = testing::sample_tensor("m", now, sigma);
        tensor.shape = shape;
        tensor.could_have = {"fp8-channel", "fp8-block", "mxfp8"};
        const std::string advice = advice_for(tensor);
        advised.insert(advice.substr(0, advice.find(" gains ")));
      }
    EXPECT_EQ(advised, std::set<std::string>{text("fp8-channel instead of ", now)});
  }
}

TEST(Advice, SilentWhereNothingIsGained) {
  for (const char* now : {"fp8-channel", "fp8-block", "mxfp8"})
    EXPECT_EQ(advice_for(testing::sample_tensor("m", now, 0.02)), "") << now;
  EXPECT_EQ(advice_for(TensorReport{}), "");
  TensorReport foreign = testing::sample_tensor("m", "mxfp4", 0.02);
  foreign.preset = "somebody's";
  EXPECT_EQ(advice_for(foreign), "");
}

// Small values beside one very large one: with one scale they are lost.
TEST(Advice, SeesRangeThatOneScaleCannotHold) {
  TensorReport tensor;
  tensor.measured = true;
  tensor.preset = "fp8";
  tensor.shape = {1024, 1024};
  tensor.metrics.amax = 0x1p20;
  tensor.metrics.values.first_exponent = -5;
  tensor.metrics.values.counts.assign(26, 0);
  tensor.metrics.values.counts[0] = 1000000;
  tensor.metrics.values.counts[25] = 1;
  // With one scale all small values are lost, with one a row only those of the row of the large
  // value, one in 1024: 10 log10(1024) is 30 dB, less what the other rows lose by rounding.
  EXPECT_EQ(advice_for(tensor), "fp8-channel instead of fp8 gains 29 dB for the same size");
}

// The same text whether the document is made or not, with and without tensors.
TEST(CheckpointReport, JsonInPiecesIsTheDocument) {
  for (const bool empty : {false, true}) {
    CheckpointReport report = testing::sample_report(3, "mxfp8");
    if (empty) report.tensors.clear();
    const std::string whole = json_of(report);
    Json document = parse_json(whole, "report");
    EXPECT_EQ(document.dump(), whole);
    std::string pieces;
    std::size_t longest = 0;
    const auto put = [&](std::string_view piece) {
      pieces += piece;
      longest = std::max(longest, piece.size());
    };
    write_json(report, {}, put);
    EXPECT_EQ(pieces, whole);
    if (!empty) {
      EXPECT_LT(longest, pieces.size() / 2);
    }
    const Json more = Json::object({{"servers", Json::array({1, "two\nlines"})}, {"none", Json()}});
    JsonMembers members;
    for (const auto& [key, value] : more.members()) {
      document.set(key, value);
      members.emplace_back(key, value.dump());
    }
    pieces.clear();
    write_json(report, members, put);
    EXPECT_EQ(pieces, document.dump());
  }
}

// Never more than kMaxHistograms, of equals too: a model of equal tensors is a likely test input.
TEST(CheckpointReport, TheWorstHaveHistograms) {
  EXPECT_EQ(with_histograms({3, 1, 2}), (std::vector<bool>{true, true, true}));
  const auto count = [](const std::vector<bool>& shown) {
    return static_cast<std::size_t>(std::count(shown.begin(), shown.end(), true));
  };
  std::vector<double> sqnrs(kMaxHistograms + 500, 30.0);
  EXPECT_EQ(count(with_histograms(sqnrs)), kMaxHistograms);
  sqnrs.back() = 10;
  sqnrs[1400] = NAN;
  const std::vector<bool> shown = with_histograms(sqnrs);
  EXPECT_EQ(count(shown), kMaxHistograms);
  EXPECT_TRUE(shown.back() && shown[1400] && shown[0] && !shown[kMaxHistograms]);
}

// q and k would each have a preset of their own; together they have the one that helps the sum.
TEST(CheckpointReport, OneAdviceForWhatHasOneRecipe) {
  ErrorEstimate small{.elements = 100, .error2 = 1}, large{.elements = 300, .error2 = 99};
  small.gain = {NAN, 10, 2, 2, 2};
  small.bits = {0, 1, 1, 1, 1};
  large.gain = {NAN, 1, 2, 10, 2};
  large.bits = {0, 1, 1, 3, 1};
  const std::string alone = advice_for("mxfp4", {&small, 1});
  EXPECT_EQ(alone, "nvfp4 instead of mxfp4 gains 10 dB for 1.0 bits more");
  EXPECT_TRUE(advice_for("mxfp4", {&large, 1}).starts_with("fp8-block instead of mxfp4 gains 10"));
  // 10 log10(100 / (10^-0.2 + 99 / 10)) = 9.7 dB for (100 + 3 * 300) / 400 bits.
  const std::array both{small, large};
  EXPECT_EQ(
      advice_for("mxfp4", both),
      "fp8-block instead of mxfp4 gains 10 dB for 2.5 bits more, with the tensors that servers "
      "fuse with it");
  // What one of them cannot have is no advice for any.
  std::array without = both;
  without[0].gain[3] = NAN;
  EXPECT_TRUE(advice_for("mxfp4", without).starts_with("fp8-channel"));
}

}  // namespace
}  // namespace octavo
