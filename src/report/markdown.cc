// Documents and tables as text: Markdown for files, aligned columns for the terminal.
#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "report/document.h"
#include "report/escape.h"

namespace halfbyte {

namespace {

// Signs a cell takes on a terminal, roughly: code points.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string one_line(std::string_view text) {
  std::string line = printable(text);
  std::ranges::replace(line, '\n', ' ');
  return line;
}

// Cells padded to their column, joined by `between`; with `rule` a line of dashes under the head.
std::string lines(const Table& table, const std::string& before, const std::string& between,
                  const std::string& after, bool rule, std::string (*escape)(std::string_view)) {
  std::vector<std::vector<std::string>> cells(1);
  for (const Column& column : table.columns) cells[0].push_back(escape(column.name));
  for (const auto& row : table.rows) {
    cells.emplace_back();
    for (const std::string& cell : row) cells.back().push_back(escape(cell));
  }
  std::vector<std::size_t> widths(table.columns.size(), rule ? 3 : 0);
  for (const auto& row : cells)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string text;
  for (std::size_t l = 0; l < cells.size(); ++l) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string pad(widths[i] - width_of(cells[l][i]), ' ');
      line += (i ? between : before) + (table.columns[i].number ? pad + cells[l][i] : cells[l][i] + pad);
    }
    line += after;
    while (line.ends_with(' ')) line.pop_back();
    text += line + "\n";
    if (l > 0 || !rule) continue;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const bool number = table.columns[i].number;
      text += (i ? between : before) + std::string(widths[i] - number, '-') + (number ? ":" : "");
    }
    text += after + "\n";
  }
  return text;
}

struct Markdown {
  std::string& out;

  void operator()(const Text& text) const { out += "\n" + escape_markdown(text.text) + "\n"; }
  void operator()(const Bullets& bullets) const {
    out += "\n";
    for (const std::string& item : bullets.items) out += "- " + escape_markdown(item) + "\n";
  }
  void operator()(const Table& table) const {
    if (!table.caption.empty()) out += "\n" + escape_markdown(table.caption) + "\n";
    out += "\n" + lines(table, "| ", " | ", " |", true, escape_markdown);
  }
  void operator()(const Code& code) const {
    out += "\n";
    // Indented, so that nothing inside ends the block.
    const std::string text = printable(code.text);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      out += "    " + text.substr(begin, end - begin) + "\n";
      begin = end + 1;
    }
  }
  void operator()(const Chart&) const {}
};

}  // namespace

std::string render_text(const Table& table) { return lines(table, "", "  ", "", false, one_line); }

std::string render_markdown(const Document& document) {
  std::string out = "# " + escape_markdown(document.title) + "\n";
  if (!document.subtitle.empty()) out += "\n" + escape_markdown(document.subtitle) + "\n";
  for (const Section& section : document.sections) {
    if (std::ranges::all_of(section.blocks, [](const Block& b) { return std::holds_alternative<Chart>(b); }))
      continue;
    out += "\n## " + escape_markdown(section.title) + "\n";
    for (const Block& block : section.blocks) std::visit(Markdown{out}, block);
  }
  return out;
}

}  // namespace halfbyte
