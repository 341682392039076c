"""Faults planted in cuda/*.cu: the check that must name each, its lines and its threads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from kernelwright.contract import NULL, CudaKernel, Launch, Scalar, i32
from kernelwright.toolchain import emulator
from kernelwright.toolchain.emulator.checks import CHECKS, Finding, Watch
from kernelwright.workbench.solo import apart

CUDA = Path(__file__).parent / "cuda"


@dataclass(frozen=True)
class Planted:
    """A kernel with one fault.

    Attributes:
        check: that must find it; "" for a kernel without a fault.
        lines: the source lines of both sides of the finding, as they begin.
        says: words that the finding must have.
    """

    file: str
    kernel: str
    args: tuple
    check: str
    lines: tuple[str, ...]
    says: str
    grid: int = 1
    block: int = 64
    shared: int = 0
    fresh: tuple[str, ...] = ("y",)
    cluster: int = 1

    @property
    def source(self) -> Path:
        return CUDA / f"{self.file}.cu"

    def line(self, begins: str) -> str:
        """ "races.cu:8" for the line of the kernel that begins so."""
        text = self.source.read_text().splitlines()
        at = next(i for i, t in enumerate(text) if f" {self.kernel}(" in t)
        number = next(i for i in range(at, len(text)) if text[i].strip().startswith(begins)) + 1
        return f"{self.source.name}:{number}"

    def found(self, seed: int = 1, checks: tuple[str, ...] = tuple(CHECKS)) -> list[Finding]:
        tensors = {f"a{i}": a for i, a in enumerate(self.args) if isinstance(a, torch.Tensor)}
        if "y" in self.fresh and tensors:
            tensors["y"] = tensors.pop(list(tensors)[-1])
        names = {id(t): n for n, t in tensors.items()}
        args = tuple(a if isinstance(a, Scalar) else names[id(a)] for a in self.args)
        step = Launch(
            CudaKernel(self.source, self.kernel, self.cluster), (self.grid, 1, 1), args,
            (self.block, 1, 1), self.shared,
        )  # fmt: skip
        watch = Watch(checks, seed)
        with watch.mode():
            run = emulator.bind(step)
        values = [a if isinstance(a, Scalar) else apart(a, "cpu", 4096) for a in self.args]
        return watch.call(lambda: run(None, step, values), {}, self.fresh)[2]


def f(n: int) -> torch.Tensor:
    return torch.arange(n, dtype=torch.float32)


def ints(n: int) -> torch.Tensor:
    return torch.zeros(n, dtype=torch.int32)


def right(kernel: str, *args, grid: int = 1, block: int = 64, fresh=("y",)) -> Planted:
    return Planted("right", kernel, args, "", (), "", grid, block, fresh=fresh)


def pair(kernel: str, check: str, lines: tuple[str, ...], says: str) -> Planted:
    """Two clusters of two blocks."""
    args = f(4), f(256)
    return Planted("clusters", kernel, args, check, lines, says, 4, cluster=2, fresh=())


SEND = "if (i < 2) box.send(&s[rank], x[blockIdx.x], i)"
READ = "y[blockIdx.x * blockDim.x + i] = s[0] + s[1]"
PLANTED = (
    pair("exchange", "", (), ""),
    pair("exchange_in_turns", "", (), ""),
    pair("not_ready", "bounds", (SEND,), "which may not have started: no barrier of the cluster"),
    Planted("clusters", "opened_unseen", (f(4), ints(1), f(64)), "races",
            ("box.send(&s, x[0], 1)", "box.open(sizeof(s))"),
            "counts bytes at the mbarrier", 2, cluster=2, fresh=()),
    pair("nobody_waits", "bounds", (SEND,), "ended"),
    pair("wrong_parity", "races", (SEND, READ), "with no wait for an mbarrier in between"),
    pair("one_box_for_all_turns", "races",
         ("if (i < 2) box.send(&s[rank], x[blockIdx.x] + 1", READ),
         "with no wait for an mbarrier in between"),
    pair("not_opened_again", "divergence", ("box.wait(1)",),
         "waits for ever:"),
    pair("opened_twice", "divergence", ("box.expect(sizeof(s))",),
         "arrives at an mbarrier that has all 1 of phase 0 and waits for 8 bytes"),
    pair("beyond_the_cluster", "bounds", ("if (threadIdx.x == 0) box.send",),
         "asks for block 2 of a cluster that has 2"),
    Planted("clusters", "beyond_the_slots", (f(4), f(64)), "bounds",
            ("if (threadIdx.x == 0) box.send",), "of shared memory, of which it has",
            2, shared=8, cluster=2, fresh=()),
    pair("waits_without_arriving", "divergence", ("kw::Mailbox::ready()",),
         "waits at the cluster's barrier, where it has not arrived"),
    pair("arrives_twice", "divergence", ("box.open(4);  // again",),
         "arrives at the cluster's barrier again before it has waited there"),
    pair("barriers_of_two_lines", "divergence", ("box.ready()", "kw::Mailbox::ready()"),
         "waits at this barrier while"),
    pair("written_over", "divergence", ("box.wait()",), "which was written over"),
    right("counted_with_fences", f(3), f(3), ints(1), f(1), grid=3),
    right("chain", f(3), ints(3), f(3), f(1), grid=3),
    right("warp_to_warp", f(1), f(1)),
    right("two_halves", f(32), f(32), block=32),
    right("histogram", ints(64), ints(4)),
    right("bytes", ints(16).view(torch.uint8), ints(16).view(torch.uint8)),
    right("copies_bytes", ints(16).view(torch.uint8), ints(16).view(torch.uint8)),
    Planted("races", "read_before_written", (f(64), f(64)), "races",
            ("y[i] = s[63 - i]", "s[i] = x[i]"), "no barrier in between"),
    Planted("races", "written_before_read", (f(64), f(64)), "races",
            ("const float other = s[63 - i]", "s[i] = other + 1"), "no barrier in between"),
    Planted("races", "written_twice", (f(64), f(64)), "races",
            ("s[i / 32 + i % 32] = x[i]",) * 2, "of s, written by thread"),
    Planted("races", "lockstep", (f(64), f(64)), "races",
            ("s[i] = s[i] + s[i + 16]", "s[i] = s[i] + s[i + 32]"), "no __syncwarp in between"),
    Planted("races", "shuffle_is_no_barrier", (f(32), f(32)), "races",
            ("y[i] = s[31 - i] + sum", "s[i] = x[i]"), "no __syncwarp in between", block=32),
    Planted("races", "half_a_mask", (f(32), f(32)), "races",
            ("y[i] = s[31 - i]", "s[i] = x[i]"), "no __syncwarp in between", block=32),
    Planted("races", "counter", (ints(1),), "races",
            ("if (threadIdx.x == 0) *count",) * 2, "order the blocks", grid=2, fresh=()),
    Planted("races", "counted_without_fence", (f(3), f(3), ints(1), f(1)), "races",
            ("for (unsigned b = 0", "parts[blockIdx.x] = x"), "order the blocks", grid=3),
    Planted("races", "half_atomic", (ints(1),), "races",
            ("*count = 1", "atomicAdd(count, 1)"), "updated by", fresh=()),
    Planted("bounds", "reads_one_more", (f(64), f(64), i32(64)), "bounds",
            ("if (i < n) y[i] = x[i] + x[i + 1]",), "reads 4 bytes that end 4 bytes behind a0"),
    Planted("bounds", "writes_one_more", (f(50), f(50), i32(50)), "bounds",
            ("if (i <= n) y[i]",), "writes 4 bytes that end 4 bytes behind y"),
    Planted("bounds", "reads_one_before", (f(64), f(64), i32(64)), "bounds",
            ("if (i < n) y[i] = x[i - 1]",), "that start 4 bytes before a0"),
    Planted("bounds", "reads_between_rows", (f(80).view(2, 40)[:, :32], f(64), i32(32), i32(40)),
            "bounds", ("y[row * cols + col] = x",), "between the elements of a0", 2, 32),
    Planted("bounds", "misaligned_vector", (f(256), f(256), i32(256)), "bounds",
            ("if (i + 3 < n)",), "reads 16 bytes at once at an address that is no multiple of 16"),
    Planted("bounds", "beyond_static_shared", (f(32), f(32)), "bounds",
            ("s[i + 1] = x[i]",), "at byte 128 of the shared variable s, which has 128", 1, 32),
    Planted("bounds", "beyond_dynamic_shared", (f(32), f(32)), "bounds",
            ("y[i] = dynamic[i + 1]",), "at byte 128 of dynamic shared memory, which has 128",
            1, 32, 128),
    Planted("bounds", "null", (NULL, f(1)), "bounds",
            ("if (threadIdx.x == 3)",), "through a null pointer"),
    Planted("init", "shared_never_written", (f(64), f(64)), "init",
            ("y[i] = s[i]",), "of s, which no thread of its block has written"),
    Planted("init", "adds_to_its_result", (f(64), f(64)), "init",
            ("y[i] += x",), "which no kernel of this call has written"),
    Planted("divergence", "barrier_in_a_branch", (f(64), f(64)), "divergence",
            ("__syncthreads();", "__syncthreads();  // another"), "waits at this barrier while"),
    Planted("divergence", "ended_before_the_barrier", (f(64), f(64)), "", (), ""),
    Planted("divergence", "barrier_and_shuffle", (f(64), f(64)), "divergence",
            ("__syncthreads()", "v = __shfl_xor_sync"), "waits for ever"),
    Planted("divergence", "lanes_that_never_come", (f(64), f(64)), "divergence",
            ("if (i < 16) __syncwarp", "__syncthreads()"), "waits for ever"),
    Planted("divergence", "mask_without_itself", (f(64), f(64)), "divergence",
            ("__syncwarp(0x0000ffffu)",), "which its own mask"),
    Planted("divergence", "shuffle_from_an_ended_lane", (f(64), f(64)), "divergence",
            ("y[i] = x[i] + __shfl_down",), "lane 16 by a shuffle"),
)  # fmt: skip
