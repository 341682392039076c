"""Launches of the kernels of emulated/primitives.cu on the CPU."""

import torch

from kernelwright.contract import CudaKernel, Launch, Scalar
from kernelwright.emulator import Schedule, build, launch
from support.paths import FIXTURES

PRIMITIVES = FIXTURES / "emulated" / "primitives.cu"


def run(name, *args, grid=1, block=32, shared=0, source=PRIMITIVES, kind="fast", **how):
    """Launch a kernel of primitives.cu on tensors and Scalars."""
    triple = [(*s, 1, 1)[:3] if isinstance(s, tuple) else (s, 1, 1) for s in (grid, block)]
    names = tuple(a if isinstance(a, Scalar) else "x" for a in args)
    step = Launch(CudaKernel(source, name), triple[0], names, triple[1], shared)
    kernel = launch.bound(step, kind)
    observer = how.pop("observer", None)
    launch.run(kernel, step, args, Schedule(**how), observer)


def build_together():
    """Most kernels of primitives.cu, in one library."""
    plain = """indices shared_memory block_votes votes diverged ended active integer_atomics
        add_pairs pairs bits maths hints groups hand_over chain last_one says asserts stops
        waits_for_ever loops_for_ever reaches_nowhere divides misaligned not_in_its_mask
        overflows_its_stack scales meets"""
    names = plain.split()
    for t in ("int", "float", "double", "long long", "__half", "__nv_bfloat16"):
        names.append(f"shuffles<{t}>")
    for t in ("int", "unsigned", "long long", "unsigned long long", "float", "double"):
        names.append(f"atomics<{t}>")
    for t in ("__half", "__nv_bfloat16"):
        names += [f"{k}<{t}>" for k in ("arithmetic", "to_and_from", "from_double")]
        names.append(f"add_atomically<{t}>")
    build.ensure([CudaKernel(PRIMITIVES, n) for n in names])


def ints(*shape):
    return torch.zeros(shape, dtype=torch.int32)
