// The HTML report: every section, well-formed, nothing of the data escapes into the page, nothing is loaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "halfbyte/error.h"
#include "io/json.h"
#include "report/assets.h"
#include "report/escape.h"
#include "report/report.h"
#include "tests/report/sample.h"

namespace halfbyte {
namespace {

std::size_t occurrences(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// The page without what stands in <style> and <script>: our own fixed files and the JSON, which are looked at apart.
std::string markup_of(std::string text) {
  for (const std::string name : {"style", "script"})
    for (std::size_t at = 0; (at = text.find("<" + name, at)) != std::string::npos;) {
      const std::size_t begin = text.find('>', at) + 1, end = text.find("</" + name + ">", begin);
      text.erase(begin, end - begin);
      at = begin;
    }
  return text;
}

std::string charts_of(const std::string& html) {
  const std::string open = "<script type=\"application/json\" id=\"charts\">";
  const std::size_t begin = html.find(open) + open.size();
  return html.substr(begin, html.find("</script>", begin) - begin);
}

// Empty where every tag is closed by its own and attributes are in double quotes; else what is wrong.
std::string tag_error(const std::string& html) {
  const std::set<std::string> empty{"meta", "link", "br"};
  std::vector<std::string> open;
  for (std::size_t at = 0; (at = html.find('<', at)) != std::string::npos;) {
    if (html.compare(at, 9, "<!DOCTYPE") == 0) {
      at = html.find('>', at);
      continue;
    }
    const bool closing = html[at + 1] == '/';
    std::size_t end = at + 1 + closing;
    std::string name;
    while (end < html.size() && std::isalnum(static_cast<unsigned char>(html[end]))) name += html[end++];
    if (name.empty()) return "a bare < at " + html.substr(at, 40);
    for (bool quoted = false; end < html.size() && (quoted || html[end] != '>'); ++end) {
      if (html[end] == '"') quoted = !quoted;
      if (html[end] == '<') return "a < inside of " + html.substr(at, 80);
    }
    if (end >= html.size()) return "a tag without end: " + html.substr(at, 40);
    if (closing) {
      if (open.empty() || open.back() != name)
        return "</" + name + "> closes " + (open.empty() ? "nothing" : open.back());
      open.pop_back();
    } else if (!empty.contains(name)) {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty() ? "" : "not closed: " + open.back();
}

TEST(Html, HasEverySectionWithData) {
  const std::string html = render_html(make_report(test::sample_inputs()));
  for (const char* id : {"results", "perplexity", "findings", "residuals", "errors", "histograms", "bound",
                         "bytes", "times", "options", "reproduce"}) {
    EXPECT_EQ(occurrences(html, std::string("<section id=\"") + id + "\""), 1u) << id;
    EXPECT_EQ(occurrences(html, std::string("href=\"#") + id + "\""), 1u) << id;
  }
  const Json charts = parse_json(charts_of(html), "charts");
  EXPECT_EQ(charts.size(), occurrences(html, "<canvas data-chart="));
  EXPECT_GE(charts.size(), 12u);
  // Every chart has its figures as a table too.
  EXPECT_EQ(occurrences(html, "<summary>Figures</summary>"), charts.size());
  EXPECT_EQ(tag_error(markup_of(html)), "");
}

TEST(Html, AChainSaysWhatEachStepTakesOff) {
  ReportInputs inputs = test::sample_inputs();
  inputs.chain = true;
  CheckpointCard rtn{.dir = "nvfp4",
                     .weights = "",
                     .activations = "",
                     .precisions = {},
                     .tool = "",
                     .options = {},
                     .checksums = {}},
      arc = rtn;
  arc.dir = "arc";
  rtn.options = {{"method", "rtn"}, {"keep", "lm_head"}};
  arc.options = {{"method", "arc"}, {"keep", "lm_head"}, {"residual", "tau=3"}};
  inputs.checkpoints = {rtn, arc};
  std::string text = render_markdown(make_report(inputs));
  text = text.substr(text.find("## What each step gives"));
  text = text.substr(0, text.find("##", 2));
  std::erase(text, ' ');
  EXPECT_NE(text.find("whatchanged"), std::string::npos);
  EXPECT_NE(text.find("|nvfp4|0.4800|-|-|43.800|"), std::string::npos) << text;
  EXPECT_NE(text.find("|arc|0.3100|0.1700|35.4|36.200|"), std::string::npos) << text;
  EXPECT_NE(text.find("methodrtn-"), std::string::npos) << text;
  EXPECT_NE(text.find("residualtau=3"), std::string::npos) << text;
  EXPECT_EQ(text.find("keep"), std::string::npos) << "what is alike is no change";
  EXPECT_NE(charts_of(render_html(make_report(inputs))).find("waterfall"), std::string::npos);

  inputs.evals[2].windows = 4;
  EXPECT_THROW(make_report(inputs), Error) << "evaluations of other windows";
  inputs.evals.pop_back();
  EXPECT_THROW(make_report(inputs), Error) << "one evaluation with a KL makes no chain";
  inputs.chain = false;
  EXPECT_EQ(render_html(make_report(inputs)).find("id=\"ingredients\""), std::string::npos);
}

TEST(Html, LeavesOutSectionsWithoutData) {
  ReportInputs inputs = test::sample_inputs();
  inputs.analyses.clear();
  inputs.checkpoints.clear();
  const std::string html = render_html(make_report(inputs));
  for (const char* id : {"results", "perplexity", "times", "reproduce"})
    EXPECT_NE(html.find(std::string("<section id=\"") + id), std::string::npos) << id;
  for (const char* id : {"findings", "errors", "bytes", "options"})
    EXPECT_EQ(html.find(std::string("<section id=\"") + id), std::string::npos) << id;
  EXPECT_EQ(tag_error(markup_of(render_html(make_report({})))), "");
}

TEST(Html, NothingOfTheDataBecomesMarkup) {
  const std::string evil =
      "</script><script>alert(1)</script><!--\"'><img src=x "
      "onerror=alert(1)>|{{script}}&amp;\x01\x7f\xff\xe2\x80\xae\n]]>";
  const std::string html = render_html(make_report(test::sample_inputs(evil)));
  const std::string plain = render_html(make_report(test::sample_inputs()));
  const std::string markup = markup_of(html);
  EXPECT_EQ(tag_error(markup), "");
  EXPECT_EQ(occurrences(html, "<script"), occurrences(plain, "<script"));
  EXPECT_EQ(occurrences(html, "</script"), occurrences(plain, "</script"));
  EXPECT_EQ(occurrences(html, "<!--"), occurrences(plain, "<!--"));
  EXPECT_EQ(occurrences(markup, "<img"), 0u);
  // What was put in is shown: {{script}} is text, not filled in again.
  EXPECT_GT(occurrences(markup, "{{script}}"), 0u);
  EXPECT_GT(occurrences(markup, "&lt;img src=x onerror=alert(1)&gt;"), 0u);
  for (const char c : html)
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n') << static_cast<int>(c);
  EXPECT_EQ(printable(html), html);  // valid UTF-8 without control characters
  const std::string data = charts_of(html);
  EXPECT_EQ(data.find_first_of("<>&"), std::string::npos);
  EXPECT_NE(data.find("\\u003c/script\\u003e"), std::string::npos);
  EXPECT_NE(parse_json(data, "charts").dump().find("</script>"), std::string::npos);
}

TEST(Html, LoadsNothing) {
  const std::string html = render_html(make_report(test::sample_inputs()));
  const std::string markup = markup_of(html);
  EXPECT_EQ(markup.find("http:"), std::string::npos);
  EXPECT_EQ(markup.find("https:"), std::string::npos);
  EXPECT_EQ(markup.find(" src="), std::string::npos);
  EXPECT_NE(markup.find("default-src 'none'"), std::string::npos);
  for (const std::string_view part : {report_style(), report_script(), report_template()})
    for (const char* load : {"http:", "https:", "@import", "url(", "fetch(", "import(", "XMLHttpRequest"})
      EXPECT_EQ(part.find(load), std::string_view::npos) << load;
  // The library's licence stays with it.
  EXPECT_NE(html.find("Chart.js v"), std::string::npos);
  EXPECT_NE(html.find("Released under the MIT License"), std::string::npos);
  EXPECT_EQ(chart_library().find("</script"), std::string_view::npos);
}

TEST(Html, SameInputSameBytes) {
  EXPECT_EQ(render_html(make_report(test::sample_inputs())), render_html(make_report(test::sample_inputs())));
}

TEST(Html, ChartsHoldTheFigures) {
  Chart chart{.kind = Chart::Kind::line,
              .title = "t",
              .x_label = "layer",
              .y_label = "y",
              .categories = {"0", "1"},
              .series = {{"a", {1.5, std::nullopt}}, {"b", {2.0, 1e-9}}}};
  const Table table = table_of(chart);
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[1], (std::vector<std::string>{"1", "-", "1e-09"}));
  const std::string html = render_html({.title = "x", .subtitle = "", .sections = {{"s", "S", {chart}}}});
  const Json json = parse_json(charts_of(html), "charts");
  EXPECT_EQ(json[0]["series"][0]["y"].dump(), "[1.5,null]");
  EXPECT_EQ(json[0]["series"][1]["y"][1].get<double>(), 1e-9);
  EXPECT_EQ(json[0]["categories"].dump(), "[\"0\",\"1\"]");
}

TEST(Markdown, EscapesWhatItWouldRead) {
  const std::string evil = "a|b\n# c <b>`*";
  const std::string text = render_markdown(make_report(test::sample_inputs(evil)));
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    EXPECT_NE(line.substr(0, 3), "# c");
    if (line.starts_with("    ")) continue;  // a command, as it is
    EXPECT_EQ(line.find("<b>"), std::string::npos) << line;
    EXPECT_EQ(line.find("a|b"), std::string::npos) << line;
  }
}

TEST(Escape, ShellWordsAreReadBackByAShell) {
  EXPECT_EQ(shell_word("out/bf16"), "out/bf16");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("it's $HOME;`x`"), "'it'\\''s $HOME;`x`'");
}

TEST(Escape, PrintableReplacesWhatCannotBeShown) {
  EXPECT_EQ(printable("a\tb\nc"), "a b\nc");
  EXPECT_EQ(printable("\x1b[31m"), "\xEF\xBF\xBD[31m");
  EXPECT_EQ(printable("\xc3\xa9\xff\xc3"), "\xc3\xa9\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(printable("\xc2\x85|\xe2\x80\xae|\xf0\x9f\x98\x80"),
            "\xEF\xBF\xBD|\xEF\xBF\xBD|\xf0\x9f\x98\x80");
}

}  // namespace
}  // namespace halfbyte
