// Modules that a program builds or loads while it runs.
#pragma once
#include <string>

namespace kw::program {
// The image of a file of machine code: that of its source. An empty text, and why, if there is
// none.
std::string image_of_file(const char *file, std::string *why);
// Notes where a module is, for the lines of findings (report.cpp).
void loaded(const void *first, const void *end, const char *path);
// A message in which addresses in modules are those of the modules' files.
std::string module_lines(std::string text);
}  // namespace kw::program
