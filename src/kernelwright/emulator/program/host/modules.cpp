// Modules of the driver API and NVRTC. A module is a shared library that program/module.py builds
// while the program runs; its image, where a GPU has PTX or machine code, is a text with its path.
#include <cuda.h>
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "graphs.h"
#include "modules.h"
#include "nvrtc.h"

extern char **environ;

using namespace kw::program;

namespace {

const std::string kImage = "// kernelwright module: ";

struct Module;
struct Function {
  std::string name;
  const void *kernel;
  Module *module;
};
struct Module {
  void *library;
  kw::emulator::Library shared;  // its shared memory
  std::map<std::string, std::unique_ptr<Function>> functions;
  const Entry *entries;
};

std::string text_of(const std::filesystem::path &file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Asks program/module.py for a library. Returns its path, or an empty one and why.
std::string built(const std::map<std::string, std::string> &request, std::string *why) {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "kernelwright-XXXXXX").string();
  const std::string python = setting("python", "");
  if (python.empty() || !mkdtemp(folder.data())) {
    *why = "modules need the command kernelwright run";
    return "";
  }
  const auto put = [&](const std::string &name, const std::string &text) {
    const fs::path file = fs::path(folder) / name;
    std::error_code ignored;
    fs::create_directories(file.parent_path(), ignored);
    std::ofstream(file) << text;
  };
  put("kind", setting("kind", "fast"));
  for (const auto &[name, text] : request) put(name, text);
  const std::string path = "PYTHONPATH=" + setting("packages", "");
  std::vector<char *> variables;
  for (char **each = environ; *each; ++each)
    if (std::strncmp(*each, "PYTHONPATH=", 11) != 0) variables.push_back(*each);
  variables.push_back(const_cast<char *>(path.c_str()));
  variables.push_back(nullptr);
  const char *const command[] = {python.c_str(), "-m", "kernelwright.emulator.program.module",
                                 folder.c_str(), nullptr};
  fflush(nullptr);
  pid_t child;
  int status = -1;
  if (!posix_spawn(&child, python.c_str(), nullptr, nullptr, const_cast<char *const *>(command),
                   variables.data()))
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  const std::string image = text_of(fs::path(folder) / "image");
  *why = text_of(fs::path(folder) / "log");
  if (image.empty() && why->empty()) *why = "the module could not be built";
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return image;
}

// What the driver API says of an image that is none of the emulator's.
CUresult refused(const char *function, const std::string &why) {
  note("failed", std::string(function) + ": " + why);
  return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult load(CUmodule *handle, const std::string &path, const char *function) {
  auto m = std::make_unique<Module>();
  m->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!m->library) return refused(function, dlerror());
  const auto dynamic = reinterpret_cast<const void *(*)()>(dlsym(m->library, "kw_dynamic_shared"));
  const auto entries = reinterpret_cast<const Entry *(*)()>(dlsym(m->library, "kw_module_entries"));
  if (!dynamic || !entries) return refused(function, path + " is no module");
  kw_library(reinterpret_cast<const void *>(entries), dynamic(), &m->shared);
  m->entries = entries();
  dl_iterate_phdr(
      [](dl_phdr_info *its, size_t, void *wanted) {
        if (std::strcmp(static_cast<const char *>(wanted), its->dlpi_name) != 0) return 0;
        size_t end = 0;
        for (int i = 0; i < its->dlpi_phnum; ++i)
          if (its->dlpi_phdr[i].p_type == PT_LOAD)
            end = std::max<size_t>(end, its->dlpi_phdr[i].p_vaddr + its->dlpi_phdr[i].p_memsz);
        const auto *first = reinterpret_cast<const char *>(its->dlpi_addr);
        loaded(first, first + end, its->dlpi_name);
        return 1;
      },
      const_cast<char *>(path.c_str()));
  *handle = reinterpret_cast<CUmodule>(m.release());
  return CUDA_SUCCESS;
}

// The symbol at an address in a library, or its name in the table of entries.
std::string symbol_of(const Entry &e) {
  Dl_info its;
  return dladdr(e.at, &its) && its.dli_sname && its.dli_saddr == e.at ? its.dli_sname : e.name;
}

// The emulator's builds have nothing to say.
void clear_logs(unsigned count, const CUjit_option *options, void **values) {
  const auto value_of = [&](CUjit_option which) -> void * {
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == which) return values[i];
    return nullptr;
  };
  const auto clear = [&](CUjit_option buffer, CUjit_option bytes) {
    char *const text = static_cast<char *>(value_of(buffer));
    if (text && value_of(bytes)) *text = 0;
  };
  clear(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
  clear(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
}

CUresult of(cudaError_t e) { return static_cast<CUresult>(e); }
// Of a launch: what happens to the kernel is known when the host waits for it.
CUresult launched() { return poisoned() ? CUDA_SUCCESS : of(cudaPeekAtLastError()); }
Function *function_of(CUfunction f) { return reinterpret_cast<Function *>(f); }

}  // namespace

namespace kw::program {

std::string image_of_file(const char *file, std::string *why) {
  const std::string path = built({{"file", file}, {"program", setting("source", "")}}, why);
  return path.empty() ? "" : kImage + path + "\n";
}

std::string module_lines(std::string text) {
  for (size_t at = 0; (at = text.find("@0x", at)) != text.npos;) {
    const size_t end = text.find('@', at + 1);
    if (end == text.npos) break;
    const auto address = std::strtoull(text.c_str() + at + 1, nullptr, 16);
    Dl_info its;
    const bool known = dladdr(reinterpret_cast<void *>(address - 1), &its) && its.dli_fname;
    if (!known || !std::strstr(its.dli_fname, "/module.so")) {
      at = end + 1;
      continue;
    }
    char inside[32];
    snprintf(inside, sizeof inside, "@0x%llx",
             address - reinterpret_cast<unsigned long long>(its.dli_fbase));
    const std::string other = "@" + std::string(its.dli_fname) + inside;
    text.replace(at, end - at, other);
    at += other.size() + 1;
  }
  return text;
}

}  // namespace kw::program

extern "C" {

// ---- modules

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            CUjit_option *options, void **values) {
  clear_logs(count, options, values);
  const char *text = static_cast<const char *>(image);
  if (std::strncmp(text, kImage.c_str(), kImage.size()) != 0)
    return refused("cuModuleLoadData", "PTX and machine code are not emulated");
  text += kImage.size();
  return load(module, std::string(text, std::strcspn(text, "\n")), "cuModuleLoadData");
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
CUresult cuModuleLoad(CUmodule *module, const char *file) {
  std::string why;
  std::string image = text_of(file);
  if (image.compare(0, kImage.size(), kImage) != 0) image = image_of_file(file, &why);
  if (image.empty()) {
    note("failed", "cuModuleLoad: " + why);
    return CUDA_ERROR_FILE_NOT_FOUND;
  }
  return cuModuleLoadData(module, image.c_str());
}
CUresult cuModuleUnload(CUmodule module) {
  // its library stays: launches of it may be recorded in graphs
  delete reinterpret_cast<Module *>(module);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  Module &m = *reinterpret_cast<Module *>(module);
  auto &known = m.functions[name];
  for (const Entry *e = m.entries; e->name && !known; ++e) {
    const std::string given = e->name;
    const bool same = given == name || given.substr(given.rfind(':') + 1) == name;
    if (!e->bytes && (same || symbol_of(*e) == name))
      known = std::make_unique<Function>(Function{name, e->at, &m});
  }
  *function = reinterpret_cast<CUfunction>(known.get());
  return known ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
CUresult cuModuleGetGlobal(CUdeviceptr *at, size_t *bytes, CUmodule module, const char *name) {
  Module &m = *reinterpret_cast<Module *>(module);
  const void *address = dlsym(m.library, name);
  size_t size = 0;
  for (const Entry *e = m.entries; e->name && !address; ++e)
    if (e->bytes && (e->name + 1 == std::string(name) || symbol_of(*e) == name))
      address = e->at, size = e->bytes;
  if (!address) return CUDA_ERROR_NOT_FOUND;
  Dl_info its;
  const ElfW(Sym) *symbol = nullptr;
  if (!size &&
      dladdr1(address, &its, reinterpret_cast<void **>(const_cast<ElfW(Sym) **>(&symbol)),
              RTLD_DL_SYMENT) &&
      symbol)
    size = symbol->st_size;
  if (at) *at = reinterpret_cast<CUdeviceptr>(address);
  if (bytes) *bytes = size;
  return CUDA_SUCCESS;
}

// ---- kernels

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CUstream stream,
                        void **arguments, void **extra) {
  const Function *its = function_of(f);
  if (!its) return CUDA_ERROR_INVALID_HANDLE;
  if (extra) return refused("cuLaunchKernel", "parameters in a buffer (extra) are not emulated");
  if (cudaError_t e = poisoned()) return of(e);
  Job job;
  Config config({gx, gy, gz}, {bx, by, bz}, shared, reinterpret_cast<cudaStream_t>(stream));
  config.where = HERE;
  if (auto e = bound(its->kernel, arguments, config, &job)) return of(give(e));
  static std::map<std::string, bool> names;  // as long as jobs may need them
  job.name = names.emplace(its->name, true).first->first.c_str();
  job.library = &its->module->shared;
  submit(job);
  return launched();
}
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                   unsigned by, unsigned bz, unsigned shared, CUstream stream,
                                   void **arguments) {
  const Function *its = function_of(f);
  Job job;
  Config config({gx, gy, gz}, {bx, by, bz}, shared, reinterpret_cast<cudaStream_t>(stream));
  config.where = HERE;
  config.cooperative = true;
  if (auto e = bound(its->kernel, arguments, config, &job)) return of(give(e));
  job.library = &its->module->shared;
  submit(job);
  return launched();
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value) {
  if (what != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
  return of(cudaFuncSetAttribute(function_of(f)->kernel,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, value));
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute what, CUfunction f) {
  cudaFuncAttributes its;
  cudaFuncGetAttributes(&its, function_of(f)->kernel);
  switch (what) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = its.maxThreadsPerBlock;
      break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(function_of(f)->module->shared.dynamic);
      break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = its.numRegs;
      break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = its.ptxVersion;
      break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = its.maxDynamicSharedSizeBytes;
      break;
    default:
      *value = 0;
  }
  return CUDA_SUCCESS;
}
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads,
                                                     size_t shared) {
  return of(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function_of(f)->kernel, threads,
                                                          shared));
}
CUresult cuOccupancyMaxPotentialBlockSize(int *blocks, int *threads, CUfunction f,
                                          CUoccupancyB2DSize bytes, size_t shared, int most) {
  *threads = most > 0 ? std::min(most, 1024) : 1024;
  int each = 0, units = 0;
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, 0);
  const CUresult e = cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, f, *threads,
                                                                 bytes ? bytes(*threads) : shared);
  *blocks = each * units;
  return e;
}

// ---- links: of one image

CUresult cuLinkCreate(unsigned count, CUjit_option *options, void **values, CUlinkState *library) {
  clear_logs(count, options, values);
  *library = reinterpret_cast<CUlinkState>(new std::vector<std::string>);
  return CUDA_SUCCESS;
}
CUresult cuLinkAddData(CUlinkState state, CUjitInputType, void *data, size_t, const char *,
                       unsigned, CUjit_option *, void **) {
  if (std::strncmp(static_cast<char *>(data), kImage.c_str(), kImage.size()) != 0)
    return refused("cuLinkAddData", "PTX and machine code are not emulated");
  reinterpret_cast<std::vector<std::string> *>(state)->push_back(static_cast<char *>(data));
  return CUDA_SUCCESS;
}
CUresult cuLinkAddFile(CUlinkState state, CUjitInputType, const char *file, unsigned,
                       CUjit_option *, void **) {
  std::string why, image = image_of_file(file, &why);
  if (image.empty()) return refused("cuLinkAddFile", why);
  reinterpret_cast<std::vector<std::string> *>(state)->push_back(image);
  return CUDA_SUCCESS;
}
CUresult cuLinkComplete(CUlinkState state, void **image, size_t *bytes) {
  auto &all = *reinterpret_cast<std::vector<std::string> *>(state);
  if (all.size() != 1)
    return refused("cuLinkComplete", "modules of several parts are not emulated");
  *image = all[0].data();
  if (bytes) *bytes = all[0].size() + 1;
  return CUDA_SUCCESS;
}
CUresult cuLinkDestroy(CUlinkState state) {
  delete reinterpret_cast<std::vector<std::string> *>(state);
  return CUDA_SUCCESS;
}
}

// ---- NVRTC

#pragma GCC visibility push(default)
struct _nvrtcProgram {
  std::string source, name, log, image;
  std::map<std::string, std::string> headers;
  std::vector<std::string> expressions, lowered;
  bool compiled = false;
};

extern "C" {
const char *nvrtcGetErrorString(nvrtcResult result) {
  static const char *const names[] = {"NVRTC_SUCCESS",
                                      "NVRTC_ERROR_OUT_OF_MEMORY",
                                      "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                      "NVRTC_ERROR_INVALID_INPUT",
                                      "NVRTC_ERROR_INVALID_PROGRAM",
                                      "NVRTC_ERROR_INVALID_OPTION",
                                      "NVRTC_ERROR_COMPILATION",
                                      "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
                                      "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
                                      "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
                                      "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
                                      "NVRTC_ERROR_INTERNAL_ERROR"};
  const auto i = static_cast<size_t>(result);
  return i < sizeof names / sizeof *names ? names[i] : "NVRTC_ERROR unknown";
}
nvrtcResult nvrtcVersion(int *major, int *minor) {
  *major = 13, *minor = 0;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetNumSupportedArchs(int *count) {
  *count = 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int *all) {
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  *all = 10 * major + minor;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *name,
                               int count, const char *const *headers, const char *const *names) {
  if (!program || !source || count < 0 || (count && (!headers || !names)))
    return NVRTC_ERROR_INVALID_INPUT;
  auto p = std::make_unique<_nvrtcProgram>();
  p->source = source;
  p->name = name && *name ? name : "default_program";
  for (int i = 0; i < count; ++i) p->headers[names[i]] = headers[i];
  *program = p.release();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram *p) {
  if (!p || !*p) return NVRTC_ERROR_INVALID_PROGRAM;
  delete *p;
  *p = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcAddNameExpression(nvrtcProgram p, const char *expression) {
  if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
  if (p->compiled) return NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
  if (!expression) return NVRTC_ERROR_INVALID_INPUT;
  if (std::find(p->expressions.begin(), p->expressions.end(), expression) == p->expressions.end())
    p->expressions.push_back(expression);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int count, const char *const *options) {
  if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
  const auto lines = [](const std::vector<std::string> &all) {
    std::string contents;
    for (const std::string &each : all) contents += each + "\n";
    return contents;
  };
  std::map<std::string, std::string> request;
  for (const auto &[name, text] : p->headers) request["code/" + name] = text;
  const std::string name = std::filesystem::path(p->name).filename().string();
  request["code/" + name] = p->source;
  request["name"] = name;
  std::vector<std::string> given(options, options + count);
  // headers beside the source, as NVRTC searches them, too
  const auto beside = std::filesystem::absolute(p->name).parent_path().string();
  given.push_back("-I" + beside);
  request["options"] = lines(given);
  request["expressions"] = lines(p->expressions);
  p->compiled = true;
  const std::string path = built(request, &p->log);
  if (path.empty())
    return p->log.find("NVRTC has no such option") != p->log.npos ? NVRTC_ERROR_INVALID_OPTION
                                                                  : NVRTC_ERROR_COMPILATION;
  p->image = kImage + path + "\n";
  CUmodule loaded;
  if (load(&loaded, path, "nvrtcCompileProgram")) return NVRTC_ERROR_INTERNAL_ERROR;
  const Entry *const entries = reinterpret_cast<Module *>(loaded)->entries;
  for (size_t i = 0; i < p->expressions.size(); ++i) p->lowered.push_back(symbol_of(entries[i]));
  cuModuleUnload(loaded);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetLoweredName(nvrtcProgram p, const char *expression, const char **name) {
  if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
  if (!p->compiled) return NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION;
  const auto &all = p->expressions;
  const size_t i = std::find(all.begin(), all.end(), expression) - all.begin();
  if (i >= p->lowered.size()) return NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
  *name = p->lowered[i].c_str();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *bytes) {
  if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
  *bytes = p->log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *to) {
  if (!p) return NVRTC_ERROR_INVALID_PROGRAM;
  std::memcpy(to, p->log.c_str(), p->log.size() + 1);
  return NVRTC_SUCCESS;
}
#define KW_IMAGE(what)                                              \
  nvrtcResult nvrtcGet##what##Size(nvrtcProgram p, size_t *n) {     \
    if (!p || p->image.empty()) return NVRTC_ERROR_INVALID_PROGRAM; \
    *n = p->image.size() + 1;                                       \
    return NVRTC_SUCCESS;                                           \
  }                                                                 \
  nvrtcResult nvrtcGet##what(nvrtcProgram p, char *to) {            \
    if (!p || p->image.empty()) return NVRTC_ERROR_INVALID_PROGRAM; \
    std::memcpy(to, p->image.c_str(), p->image.size() + 1);         \
    return NVRTC_SUCCESS;                                           \
  }
KW_IMAGE(PTX)
KW_IMAGE(CUBIN)
KW_IMAGE(LTOIR)
#undef KW_IMAGE
}

// ---- files that do not exist: machine code, and the toolkit's headers

namespace {
// The emulator's header of this name, if it has one.
std::string header(const char *path) {
  const std::filesystem::path name = std::filesystem::path(path).filename();
  const std::string own = setting("packages", "") + "/kernelwright/emulator/";
  for (const char *folder : {"include/program/", "libraries/include/", "include/"})
    if (name.extension() == ".h" && !access((own + folder + name.string()).c_str(), R_OK))
      return own + folder + name.string();
  return "";
}
bool ends_in(const char *path, const char *extension) {
  const char *dot = std::strrchr(path, '.');
  return dot && !std::strcmp(dot, extension);
}
bool of_machine_code(const char *path) {
  return ends_in(path, ".ptx") || ends_in(path, ".cubin") || ends_in(path, ".fatbin");
}
using Open = FILE *(*)(const char *, const char *);
FILE *opened(const char *symbol, const char *path, const char *mode) {
  const auto plain = reinterpret_cast<Open>(dlsym(RTLD_NEXT, symbol));
  FILE *file = plain(path, mode);
  if (file || errno != ENOENT || *mode != 'r') return file;
  if (ends_in(path, ".h")) {
    const std::string own = header(path);
    errno = ENOENT;
    return own.empty() ? nullptr : plain(own.c_str(), mode);
  }
  errno = ENOENT;
  if (!of_machine_code(path)) return nullptr;
  std::string why;
  const std::string image = image_of_file(path, &why);
  FILE *image_file = image.empty() ? nullptr : tmpfile();
  if (!image_file) {
    if (!why.empty()) note("warning", why);
    errno = ENOENT;
    return nullptr;
  }
  fwrite(image.c_str(), 1, image.size() + 1, image_file);
  rewind(image_file);
  return image_file;
}
}  // namespace

extern "C" {
FILE *fopen(const char *path, const char *mode) { return opened("fopen", path, mode); }
#undef fopen64
FILE *fopen64(const char *path, const char *mode) { return opened("fopen64", path, mode); }
}
#pragma GCC visibility pop
