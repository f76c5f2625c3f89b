// Puts files into the program as they are. CMakeLists.txt names them and makes this file depend on them.
#include "report/assets.h"

// Defines `begin` and `end` around the bytes of a file.
#define HB_EMBED(name, file)                                \
  asm(".pushsection .rodata\n"                              \
      ".global hb_" #name "_begin\nhb_" #name               \
      "_begin:\n"                                           \
      ".incbin \"" file                                     \
      "\"\n"                                                \
      ".global hb_" #name "_end\nhb_" #name                 \
      "_end:\n"                                             \
      ".popsection\n");                                     \
  extern "C" {                                              \
  extern const char hb_##name##_begin[], hb_##name##_end[]; \
  }

HB_EMBED(template, HALFBYTE_REPORT_ASSETS "/report.html")
HB_EMBED(style, HALFBYTE_REPORT_ASSETS "/report.css")
HB_EMBED(script, HALFBYTE_REPORT_ASSETS "/report.js")
HB_EMBED(chart, HALFBYTE_CHART_JS)

namespace halfbyte {

std::string_view report_template() { return {hb_template_begin, hb_template_end}; }
std::string_view report_style() { return {hb_style_begin, hb_style_end}; }
std::string_view report_script() { return {hb_script_begin, hb_script_end}; }
std::string_view chart_library() { return {hb_chart_begin, hb_chart_end}; }

}  // namespace halfbyte
