// Documents as one HTML file: text and tables are written here, charts by report.js from the data that is left for it.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/fail.h"
#include "io/json.h"
#include "report/assets.h"
#include "report/document.h"
#include "report/escape.h"

namespace halfbyte {

namespace {

const char* kind_name(Chart::Kind kind) {
  switch (kind) {
    case Chart::Kind::line:
      return "line";
    case Chart::Kind::bar:
      return "bar";
    case Chart::Kind::stacked:
      return "stacked";
    case Chart::Kind::waterfall:
      return "waterfall";
    case Chart::Kind::scatter:
      break;
  }
  return "scatter";
}

// What report.js draws.
Json to_json(const Chart& chart) {
  Json json = {{"kind", kind_name(chart.kind)},      {"xLabel", printable(chart.x_label)},
               {"yLabel", printable(chart.y_label)}, {"logY", chart.log_y},
               {"categories", Json::array()},        {"series", Json::array()}};
  for (const std::string& category : chart.categories) json["categories"].push_back(printable(category));
  for (const Series& series : chart.series) {
    Json values = Json::array();
    for (const auto& y : series.y) values.push_back(y ? Json(*y) : Json(nullptr));
    json["series"].push_back({{"name", printable(series.name)}, {"x", series.x}, {"y", std::move(values)}});
  }
  return json;
}

class Page {
 public:
  explicit Page(const Document& document) {
    for (const Section& section : document.sections) {
      navigation_ += fmt::format("<li><a href=\"#{}\">{}</a></li>\n", escape_html(section.id),
                                 escape_html(section.title));
      body_ += fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n", escape_html(section.id),
                           escape_html(section.title));
      bool in_charts = false;
      for (const Block& block : section.blocks) {
        // Charts that follow each other share a grid.
        if (std::holds_alternative<Chart>(block) != in_charts) {
          body_ += in_charts ? "</div>\n" : "<div class=\"charts\">\n";
          in_charts = !in_charts;
        }
        std::visit(*this, block);
      }
      body_ += in_charts ? "</div>\n</section>\n" : "</section>\n";
    }
  }

  void operator()(const Text& text) { body_ += "<p>" + escape_html(text.text) + "</p>\n"; }
  void operator()(const Bullets& bullets) {
    body_ += "<ul>\n";
    for (const std::string& item : bullets.items) body_ += "<li>" + escape_html(item) + "</li>\n";
    body_ += "</ul>\n";
  }
  void operator()(const Code& code) {
    body_ += "<pre class=\"scroll\" tabindex=\"0\"><code>" + escape_html(code.text) + "</code></pre>\n";
  }
  void operator()(const Table& table) {
    constexpr std::size_t kLong = 40;  // rows from which a table opens folded
    const bool folded = table.rows.size() > kLong;
    const std::string caption = escape_html(table.caption);
    if (folded)
      body_ += fmt::format("<details><summary>{} ({} rows)</summary>\n", caption.empty() ? "Table" : caption,
                           table.rows.size());
    else if (!caption.empty())
      body_ += "<p class=\"caption\">" + caption + "</p>\n";
    add_rows(table, caption.empty() ? "Table" : caption);
    if (folded) body_ += "</details>\n";
  }
  void operator()(const Chart& chart) {
    const std::string title = escape_html(chart.title);
    // A bar needs its height; everything else has one size.
    const std::string style = chart.kind == Chart::Kind::stacked
                                  ? fmt::format(" style=\"height:{}rem\"",
                                                std::min<std::size_t>(60, 7 + 3 * chart.categories.size()))
                                  : "";
    body_ += fmt::format(
        "<figure>\n<figcaption>{0}</figcaption>\n<div class=\"canvas\"{1}>"
        "<canvas data-chart=\"{2}\" role=\"img\" aria-label=\"{0}; the figures are in the table below\">"
        "</canvas></div>\n<details><summary>Figures</summary>\n",
        title, style, charts_.size());
    add_rows(table_of(chart), title);
    body_ += "</details>\n</figure>\n";
    charts_.push_back(to_json(chart));
  }

  const std::string& navigation() const { return navigation_; }
  const std::string& body() const { return body_; }
  std::string data() const { return escape_script(dump_json(charts_, -1)); }

 private:
  // name: of the box that scrolls, for those who hear it, escaped.
  void add_rows(const Table& table, const std::string& name) {
    body_ += "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"" + name +
             "\"><table>\n<thead><tr>";
    for (const Column& column : table.columns)
      body_ += fmt::format("<th scope=\"col\"{}>{}</th>", column.number ? " class=\"n\"" : "",
                           escape_html(column.name));
    body_ += "</tr></thead>\n<tbody>\n";
    for (const auto& row : table.rows) {
      body_ += "<tr>";
      for (std::size_t i = 0; i < row.size(); ++i)
        body_ += i == 0 ? "<th scope=\"row\">" + escape_html(row[i]) + "</th>"
                        : fmt::format("<td{}>{}</td>", table.columns[i].number ? " class=\"n\"" : "",
                                      escape_html(row[i]));
      body_ += "</tr>\n";
    }
    body_ += "</tbody>\n</table></div>\n";
  }

  std::string navigation_, body_;
  Json charts_ = Json::array();
};

// The template with every {{NAME}} replaced, in one pass: what is put in is not looked at again.
std::string filled(std::string_view text,
                   const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string out;
  for (;;) {
    const std::size_t open = text.find("{{");
    out += text.substr(0, open);
    if (open == std::string_view::npos) return out;
    const std::size_t close = text.find("}}", open);
    const std::string_view name = text.substr(open + 2, close - open - 2);
    const auto value = std::ranges::find(values, name, &std::pair<std::string_view, std::string_view>::first);
    HB_DCHECK(close != std::string_view::npos && value != values.end());
    out += value->second;
    text.remove_prefix(close + 2);
  }
}

}  // namespace

std::string render_html(const Document& document) {
  Page page(document);
  const std::string title = escape_html(document.title), subtitle = escape_html(document.subtitle),
                    data = page.data();
  return filled(report_template(), {{"title", title},
                                    {"subtitle", subtitle},
                                    {"style", report_style()},
                                    {"navigation", page.navigation()},
                                    {"body", page.body()},
                                    {"data", data},
                                    {"chart-library", chart_library()},
                                    {"script", report_script()}});
}

}  // namespace halfbyte
