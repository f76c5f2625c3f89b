// The fixed parts of an HTML report, put into the program by the build.
#pragma once

#include <string_view>

namespace halfbyte {

std::string_view report_template();  // report.html, with {{NAME}} for what is filled in
std::string_view report_style();     // report.css
std::string_view report_script();    // report.js
std::string_view chart_library();    // Chart.js as Debian packages it, its licence notice included

}  // namespace halfbyte
