// Settings of a run, and its report at the end: files in the folder that KERNELWRIGHT_RUN names.
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "host.h"

namespace kw::program {
namespace {

std::mutex lock;

std::string folder() {
  const char *named = getenv("KERNELWRIGHT_RUN");
  return named ? named : "";
}

}  // namespace

std::string setting(const char *name, const char *otherwise) {
  std::ifstream file(folder() + "/" + name);
  std::string value;
  return std::getline(file, value) ? value : otherwise;
}

void note(const char *kind, const std::string &text) {
  std::lock_guard<std::mutex> hold(lock);
  if (folder().empty()) {
    fprintf(stderr, "%s: %s\n", kind, text.c_str());
    return;
  }
  std::ofstream file(folder() + "/notes", std::ios::app);
  file << kind << '\t' << text << '\0';
}

}  // namespace kw::program
