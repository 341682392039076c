#include "host.h"
#include "program/ptx.h"
namespace kw::ptx {
const Code *parsed(const char *text, const char *file, int line) { return reinterpret_cast<const Code *>(text); }
void execute(const Code *c, Operand *, unsigned count) { kw_fail("PTX %s", reinterpret_cast<const char *>(c)); }
}
