"""The process in which subprocess_runner.py launches kernels. It imports only kernel_library.py of
this package, so that it starts quickly and has little memory to corrupt.

    python -I -S subprocess_main.py MEMORY SIZE ADDRESS ANSWERS

Requests arrive on standard input as JSON, one per line: the number of bytes of the memory in use,
and the arguments of `kernel_library.launch`. Its results are written to the file ANSWERS.
"""

import ctypes
import json
import mmap
import os
import sys

TAKEN = 3  # the exit code if something else is mapped at ADDRESS
MAP_FIXED_NOREPLACE = 0x100000


def main(memory: int, size: int, address: int, answers: int) -> None:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import kernel_library

    libc = ctypes.CDLL(None)
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    libc.mmap.restype = ctypes.c_void_p
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    how = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | MAP_FIXED_NOREPLACE
    if libc.mmap(address, size, *how, memory, 0) != address:
        sys.exit(TAKEN)
    with os.fdopen(answers, "w") as out:
        print(json.dumps("ready"), file=out, flush=True)
        for used, request in map(json.loads, sys.stdin):
            # no memory after it can be accessed
            libc.mprotect(address, used, mmap.PROT_READ | mmap.PROT_WRITE)
            libc.mprotect(address + used, size - used, 0)
            wrong = kernel_library.launch(**request)
            libc.fflush(None)  # output of the kernel
            print(json.dumps(wrong), file=out, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
