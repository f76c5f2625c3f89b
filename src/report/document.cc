#include "report/document.h"

#include <fmt/core.h>

namespace halfbyte {

std::string number_text(std::optional<double> value) { return value ? fmt::format("{:.4g}", *value) : "-"; }

Table table_of(const Chart& chart) {
  Table table;
  if (chart.kind == Chart::Kind::scatter) {
    table.columns = {{"model", false}, {chart.x_label}, {chart.y_label}};
    for (const Series& series : chart.series)
      for (std::size_t i = 0; i < series.y.size(); ++i)
        table.rows.push_back({series.name, number_text(series.x[i]), number_text(series.y[i])});
    return table;
  }
  table.columns = {{chart.x_label, false}};
  for (const Series& series : chart.series) table.columns.push_back({series.name});
  for (std::size_t i = 0; i < chart.categories.size(); ++i) {
    std::vector<std::string> row{chart.categories[i]};
    for (const Series& series : chart.series) row.push_back(number_text(series.y[i]));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace halfbyte
