// The functions that programs use from the header of this name in NVIDIA's samples: arguments.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifndef EXIT_WAIVED
#define EXIT_WAIVED 2
#endif
#define STRCASECMP strcasecmp
#define STRNCASECMP strncasecmp
#define STRCPY(to, bytes, from) strcpy(to, from)
#define FOPEN(file, name, mode) (file = fopen(name, mode))
#define FOPEN_FAIL(result) (result == nullptr)
#define SSCANF sscanf
#define SPRINTF sprintf

inline int stringRemoveDelimiter(char delimiter, const char *text) {
  int at = 0;
  while (text[at] == delimiter) ++at;
  return at;
}
// The text after -name= or --name=; null if no argument has the name.
inline const char *kw_argument(int argc, const char **argv, const char *name) {
  size_t length = strlen(name);
  if (length && name[length - 1] == '=') --length;
  for (int i = 1; i < argc; ++i) {
    const char *its = argv[i];
    if (*its != '-') continue;
    while (*its == '-') ++its;
    if (strncasecmp(its, name, length)) continue;
    if (its[length] == '=') return its + length + 1;
    if (!its[length]) return its + length;
  }
  return nullptr;
}
inline bool checkCmdLineFlag(int argc, const char **argv, const char *name) {
  return kw_argument(argc, argv, name);
}
template <typename T>
inline bool getCmdLineArgumentValue(int argc, const char **argv, const char *name, T *value) {
  const char *text = kw_argument(argc, argv, name);
  if (text) *value = static_cast<T>(atoi(text));
  return text;
}
inline int getCmdLineArgumentInt(int argc, const char **argv, const char *name) {
  const char *text = kw_argument(argc, argv, name);
  return text ? atoi(text) : 0;
}
inline float getCmdLineArgumentFloat(int argc, const char **argv, const char *name) {
  const char *text = kw_argument(argc, argv, name);
  return text ? static_cast<float>(atof(text)) : 0;
}
inline bool getCmdLineArgumentString(int argc, const char **argv, const char *name, char **value) {
  const char *text = kw_argument(argc, argv, name);
  *value = const_cast<char *>(text);
  return text;
}
inline char *sdkFindFilePath(const char *name, const char *) {
  for (const char *folder : {"./", "./data/", "../data/", "../../data/", "../../../Common/data/"}) {
    char path[4096];
    snprintf(path, sizeof path, "%s%s", folder, name);
    if (FILE *file = fopen(path, "rb")) {
      fclose(file);
      return strdup(path);
    }
  }
  return nullptr;
}
