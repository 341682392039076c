// Settings of a run, and its report at the end: files in the folder that KERNELWRIGHT_RUN names.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "host.h"
#include "modules.h"

namespace kw::program {
namespace {

std::mutex lock;

std::string folder() {
  const char *named = getenv("KERNELWRIGHT_RUN");
  return named ? named : "";
}

std::vector<std::string> &left() {
  static auto *const all = new std::vector<std::string>;
  return *all;
}
std::atomic<bool> results_read{false};
std::string &first_launch() {
  static auto *const text = new std::string;
  return *text;
}
__attribute__((destructor)) void report_unseen() {
  for (const std::string &text : left()) note("api", text);
  left().clear();
  if (!results_read && !first_launch().empty() && !poisoned())
    note("warning", first_launch() +
                        ": warning: the program copies nothing that its kernels have written to "
                        "the host");
}
thread_local bool noted = false;  // the last call that failed

}  // namespace

void unseen(const std::string &text) {
  if (!noted && !poisoned()) {
    std::lock_guard<std::mutex> hold(lock);
    left().push_back(text);
  }
  noted = false;
}
void read_back() { results_read = true; }
void not_read_back(const Job &job) {
  std::lock_guard<std::mutex> hold(lock);
  if (results_read || !first_launch().empty()) return;
  const Config &c = job.config;
  first_launch() = line_of(c.file, c.line, c.where) + ": the launch of " + job.name;
}
void seen() {
  std::lock_guard<std::mutex> hold(lock);
  left().clear();
}
std::string line_of(const char *file, int line, const void *where) {
  char text[32];
  snprintf(text, sizeof text, "@%p@", where);
  if (!file) return text;
  const char *slash = strrchr(file, '/');
  return std::string(slash ? slash + 1 : file) + ":" + std::to_string(line);
}
void unchecked(const Unchecked &u, long long status, const char *name, const char *text) {
  std::string said = line_of(u.file, u.line, nullptr) + ": " + u.function + " returns ";
  said += *name ? std::string(name) + " (" + text + ")" : "the status " + std::to_string(status);
  unseen(said + ", which the program does not check");
}

std::string setting(const char *name, const char *otherwise) {
  std::ifstream file(folder() + "/" + name);
  std::string value;
  return std::getline(file, value) ? value : otherwise;
}

void loaded(const void *first, const void *end, const char *path) {
  if (folder().empty()) return;
  std::ofstream(folder() + "/modules", std::ios::app) << first << ' ' << end << ' ' << path << '\n';
}

void note(const char *kind, const std::string &text) {
  std::lock_guard<std::mutex> hold(lock);
  if (!strcmp(kind, "api")) noted = true;
  if (folder().empty()) {
    fprintf(stderr, "%s: %s\n", kind, text.c_str());
    return;
  }
  std::ofstream file(folder() + "/notes", std::ios::app);
  file << kind << '\t' << module_lines(text) << '\0';
}

}  // namespace kw::program
