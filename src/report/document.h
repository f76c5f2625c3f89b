// A report as data: sections of text, lists, tables and charts, from which HTML and Markdown are made.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace halfbyte {

struct Column {
  std::string name;
  bool number = true;  // set to the right
};

struct Table {
  std::string caption;  // may be empty
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // as long as columns
};

struct Series {
  std::string name;
  std::vector<std::optional<double>> y;  // a value a category, or the points of a scatter
  std::vector<double> x = {};            // scatter only, as long as y
};

struct Chart {
  // stacked: horizontal bars; waterfall: one series, each bar from the value before (the first from 0) to its own
  enum class Kind { line, bar, stacked, scatter, waterfall };
  Kind kind = Kind::line;
  std::string title, x_label, y_label;
  bool log_y = false;                   // values that are not positive are left out
  std::vector<std::string> categories;  // of the x axis; empty for scatter
  std::vector<Series> series;
};

struct Text {
  std::string text;
};
struct Bullets {
  std::vector<std::string> items;
};
struct Code {
  std::string text;  // lines
};

using Block = std::variant<Text, Bullets, Table, Chart, Code>;

struct Section {
  std::string id, title;  // id: a name for links, a-z and -
  std::vector<Block> blocks;
};

struct Document {
  std::string title, subtitle;
  std::vector<Section> sections;
};

// The numbers of a chart: a row a category or point.
Table table_of(const Chart& chart);

// Four significant digits: "0.01234", "12350", "1.2e-09"; "-" for nothing.
std::string number_text(std::optional<double> value);

// Columns lined up with spaces, without the caption.
std::string render_text(const Table& table);

// Tables, lists and texts; charts are left out, their figures are in the HTML report. What would be read as Markdown or
// HTML in the data is escaped.
std::string render_markdown(const Document& document);

// One file with everything in it that loads nothing (html.cc, report.html, report.css, report.js, Chart.js). The same
// document gives the same bytes.
std::string render_html(const Document& document);

}  // namespace halfbyte
