"""The measured limits of a machine: DRAM by mix of reads and writes, caches, arithmetic, launch.

A roof is the limit that a case is compared with. It is measured in the same run by moving the same
bytes in the same mix and size, with kernels that belong to no rung: `roofs.cu` on a GPU, PyTorch's
in-place operators on a CPU. The roof is the fastest of several configurations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from kernelwright import toolchain
from kernelwright.contract import (
    H200,
    Config,
    Cost,
    CudaKernel,
    Gpu,
    Launch,
    Operator,
    Plan,
    TensorSpec,
    i32,
    i64,
)
from kernelwright.contract.arithmetic import cdiv
from kernelwright.machine import clock, gpu_of, last_level_cache, random_state, slug
from kernelwright.machine.stats import median
from kernelwright.workbench.records.records import Record

SOURCE = Path(__file__).with_name("roofs.cu")
READS, WRITES = 4, 3  # maximum number of streams of the kernel
#: `waves` blocks per multiprocessor loop over the streams; 0: one block per tile.
CONFIGS: tuple[Config, ...] = (
    {"unroll": 4, "block": 256, "streaming": True, "waves": 0},
    {"unroll": 8, "block": 256, "streaming": True, "waves": 0},
    {"unroll": 2, "block": 512, "streaming": False, "waves": 0},
    {"unroll": 4, "block": 512, "streaming": False, "waves": 0},
    {"unroll": 8, "block": 128, "streaming": False, "waves": 0},
    {"unroll": 4, "block": 512, "streaming": True, "waves": 4},
)
MIB = 1 << 20
SIZES = (MIB, 16 * MIB, 64 * MIB, 256 * MIB, 2048 * MIB)


def parse(mix: str) -> tuple[int, int]:
    """(1, 2) from "r1w2"."""
    reads, writes = mix[1:].split("w")
    return int(reads), int(writes)


def nearest(mix: str, device: torch.device) -> str:
    """The mix with which the roof for work of `mix` is measured on a device: the same one or, if it
    has too many streams, the one with the nearest fraction of reads."""
    reads, writes = parse(mix)
    known = [f"r{r}w{w}" for r in range(READS + 1) for w in range(WRITES + 1) if r + w]
    if device.type != "cuda":
        known = list(_CPU)
    if mix in known or not reads + writes:
        return mix if mix in known else "r1w1"
    part = reads / (reads + writes)
    return min(known, key=lambda k: abs(parse(k)[0] / sum(parse(k)) - part))


def candidates(mix: str, nbytes: int, device: torch.device) -> list[clock.Candidate]:
    """Candidates for the roof of `nbytes` in total, moved in `mix`; call inside a session.

    Their names are "roof:r1w1 " and the configuration.
    """
    reads, writes = parse(mix)
    vectors = max(1, nbytes // (reads + writes) // 16)
    sets = clock.rotations(nbytes, device)
    if device.type != "cuda":
        inputs, outputs = (_buffers(max(n, 1), sets, vectors, device) for n in (reads, writes))
        return [
            clock.Candidate(
                f"roof:{mix} {name}",
                [partial(fn, i, o) for i, o in zip(inputs, outputs, strict=True)],
                nbytes,
            )
            for name, fn in _CPU[mix].items()
        ]
    inputs = _buffers(max(reads, 1), sets, vectors, device)
    gpu = gpu_of(device)
    assert gpu is not None
    listed = []
    for config in CONFIGS:
        run = _bind(reads, writes, vectors, gpu, config, device)
        calls = [partial(run, *i[: max(reads, 1)]) for i in inputs]
        listed.append(clock.Candidate(f"roof:{mix} {_show(config)}", calls, nbytes))
    if mix == "r1w1":
        calls = [i[0].clone for i in inputs]
        listed.append(clock.Candidate("roof:r1w1 torch.clone", calls, nbytes))
    return listed


@cache
def best(mix: str, nbytes: int, device: torch.device) -> tuple[str, ...]:
    """Names of the two configurations that a short run finds fastest at this size."""
    these = candidates(mix, nbytes, device)
    brief = clock.StoppingRule(least=3, most=4, candidate_s=0.01, seconds=0.2)
    times = clock.measure(these, device, brief).times
    good = [n for n, t in times.items() if t.cold]
    return tuple(sorted(good, key=lambda n: median(times[n].cold))[:2])


def roof_candidates(mix: str, nbytes: int, device: torch.device) -> list[clock.Candidate]:
    """The two candidates for a case's roof, to be timed with its rungs."""
    if device.type != "cuda":  # there are at most two
        return candidates(mix, nbytes, device)
    names = best(mix, nbytes, device)
    return [c for c in candidates(mix, nbytes, device) if c.name in names]


def plan(
    reads: int, writes: int, vectors: int, config: Config, gpu: Gpu = H200
) -> tuple[Plan, Operator]:
    """A streaming kernel as a plan, and an operator that has its arguments and results."""
    ins = [f"x{i}" for i in range(max(reads, 1))]
    outs = [f"y{i}" for i in range(max(writes, 1))]
    spec = TensorSpec.contiguous((4 * vectors if writes else 4,), torch.int32)
    operator = Operator(
        name=f"stream_r{reads}w{writes}",
        schema=f"({', '.join(f'Tensor {i}' for i in ins)}) -> "
        f"({', '.join(f'Tensor {o}' for o in outs)})",
        reference=lambda **_: None,
        inputs=lambda case, device: {},
        cases=(),
        cost=lambda **_: Cost((), ()),
        outputs=lambda **_: (spec,) * len(outs),
    )
    block, tile = config["block"], config["block"] * config["unroll"]
    blocks = config["waves"] * gpu.sms or cdiv(vectors, tile)
    streaming = str(config["streaming"]).lower()
    launch = Launch(
        CudaKernel(SOURCE, f"stream<{reads}, {writes}, {config['unroll']}, {streaming}>"),
        grid=(blocks, 1, 1),
        block=(block, 1, 1),
        args=(*_fill(ins, READS), *_fill(outs, WRITES), i64(vectors)),
    )
    return Plan((launch,)), operator


def _bind(reads, writes, vectors, gpu: Gpu, config: Config, device) -> Callable:
    launches, operator = plan(reads, writes, vectors, config, gpu)
    spec = TensorSpec.contiguous((4 * vectors,), torch.int32)
    specs = {a.name: spec for a in operator.args}
    return toolchain.executor(launches, operator, specs, (), device)


def _fill(names: Sequence[str], count: int) -> list[str]:
    return [*names, *[names[0]] * (count - len(names))]


def _show(config: Config) -> str:
    return ",".join(f"{k}={v}" for k, v in config.items())


def _buffers(streams: int, sets: int, vectors: int, device) -> list[list[torch.Tensor]]:
    """Random streams of `vectors` 16-byte vectors for each set, in separate memory."""
    step = cdiv(4 * vectors, 128) * 128  # each starts a new cache line
    arena = torch.empty(sets * streams * step, dtype=torch.int32, device=device)
    if device.type == "cuda":
        arena.random_()
    else:  # random values would take as long as the timing: repeat a few numbers
        few = torch.empty(min(arena.numel(), 1 << 20), dtype=torch.int32).random_()
        for part in arena.split(few.numel()):
            part.copy_(few[: part.numel()])
    parts = [arena[i * step : i * step + 4 * vectors] for i in range(sets * streams)]
    return [parts[i * streams : (i + 1) * streams] for i in range(sets)]


# in-place and out= operators: a roof must not include page faults of new memory
_CPU: dict[str, dict[str, Callable[[list[torch.Tensor], list[torch.Tensor]], Any]]] = {
    "r1w0": {
        "int64 sum": lambda i, o: i[0].view(torch.int64).sum(),
        "float32 amax": lambda i, o: i[0].view(torch.float32).amax(),
    },
    "r2w0": {"float32 dot": lambda i, o: i[0].view(torch.float32).dot(i[1].view(torch.float32))},
    "r1w1": {"copy_": lambda i, o: o[0].copy_(i[0])},
    "r0w1": {"zero_": lambda i, o: o[0].zero_(), "fill_": lambda i, o: o[0].fill_(1)},
    "r2w1": {"bitwise xor": lambda i, o: torch.bitwise_xor(i[0], i[1], out=o[0])},
    "r3w1": {
        "float32 addcmul": lambda i, o: torch.addcmul(
            i[0].view(torch.float32),
            i[1].view(torch.float32),
            i[2].view(torch.float32),
            out=o[0].view(torch.float32),
        )
    },
}


# the machine's table of roofs


@random_state.preserved()
def measure_roofs(
    device: torch.device,
    run: str,
    *,
    quick: bool = False,
    on_record: Callable[[Record], None] | None = None,
) -> list[Record]:
    """All roofs of a machine as records of the operator "roofs": memory by mix and size, caches,
    matrix products by dtype, launch. Takes about 10 s; `quick` measures two sizes in 2 s."""
    records: list[Record] = []

    def add(rung: str, case: str, times: clock.Times, nbytes=0, flops=0, config=None):
        record = Record(
            operator="roofs", rung=f"roof:{rung}", case=case, machine=slug(device), run=run,
            outcome="error" if times.error else "pass", why=times.error, cold=times.cold,
            host=times.host, bytes=nbytes, flops=flops, config=config or {},
        )  # fmt: skip
        records.append(record)
        if on_record:
            on_record(record)

    rule = clock.QUICK if quick else clock.StoppingRule(seconds=0.5)
    if device.type != "cuda":
        rule = clock.CPU_QUICK if quick else clock.StoppingRule(5, 16, 0.05, 0.5, 3.0)
    with clock.session(device):
        for nbytes in _sizes(device, quick):
            for mix in ("r1w0", "r1w1", "r2w1", "r0w1"):
                times = clock.measure(roof_candidates(mix, nbytes, device), device, rule).times
                name, fastest = _fastest(times)
                add(mix, _size(nbytes), fastest, nbytes, config={"kernel": name})
        for case, candidate, flops in _matmuls(device):
            times = clock.measure([candidate], device, rule).times
            add("matmul", case, times[candidate.name], flops=flops)
        for rung, case, candidate, nbytes in _on_chip(device):
            times = clock.measure([candidate], device, rule).times
            add(rung, case, times[candidate.name], nbytes=nbytes)
        empty = launch_candidate(device)
        add("launch", "empty", clock.measure([empty], device, rule).times[empty.name])
    return records


def launch_candidate(device: torch.device) -> clock.Candidate:
    """The minimum cost of a call: an empty kernel; on a CPU, PyTorch on one element."""
    one = torch.zeros(4, dtype=torch.int32, device=device)
    if device.type != "cuda":
        return clock.Candidate("launch", [one.neg_], host=True)
    kernel = Launch(CudaKernel(SOURCE, "empty"), grid=(1, 1, 1), block=(32, 1, 1), args=())
    run = _bind_on_chip(Plan((kernel,)), one, device)
    return clock.Candidate("launch", [partial(run, one)] * 64, host=True)


def _on_chip(device: torch.device) -> list[tuple[str, str, clock.Candidate, int]]:
    """(rung, case, candidate, bytes) of the roofs above DRAM. The candidates have no byte counts,
    because DRAM's peak does not apply to them."""
    gpu = gpu_of(device)
    if gpu is None:
        nbytes = last_level_cache(device) // 4
        x = torch.empty(nbytes // 8, dtype=torch.int64).random_()
        return [("cache", _size(nbytes), clock.Candidate("cache", [x.sum]), nbytes)]
    # a quarter of L2: each of its two partitions may hold copies of the other's lines
    vectors = 1 << ((gpu.l2_bytes // 64).bit_length() - 1)
    blocks, passes, steps = 128, 32, 4096
    x = torch.empty(4 * vectors, dtype=torch.int32, device=device).random_()
    one = x[:4]
    l2 = Launch(
        CudaKernel(SOURCE, "cache_read"),
        grid=(blocks, 1, 1),
        block=(1024, 1, 1),
        args=("x0", "y0", i32(vectors), i32(passes)),
    )
    shared = Launch(
        CudaKernel(SOURCE, "shared_read"),
        grid=(2 * gpu.sms, 1, 1),
        block=(1024, 1, 1),
        args=("y0", i32(steps)),
    )
    ran = [(_bind_on_chip(Plan((k,)), a, device), a) for k, a in ((l2, x), (shared, one))]
    l2_call, shared_call = (clock.Candidate("on chip", [partial(run, a)]) for run, a in ran)
    return [
        ("l2", f"{_size(16 * vectors)}", l2_call, 16 * vectors * passes),
        ("shared", "16KiB a block", shared_call, 2 * gpu.sms * 1024 * 16 * steps),
    ]


def _bind_on_chip(planned: Plan, x: torch.Tensor, device: torch.device) -> Callable:
    _, operator = plan(1, 0, x.numel() // 4, CONFIGS[0])
    return toolchain.executor(planned, operator, {"x0": TensorSpec.of(x)}, (), device)


def _matmuls(device: torch.device):
    """(case, candidate, flops) of the products in the machine's table."""
    gpu = gpu_of(device)
    kinds = [("f32", 1024)]
    if gpu is not None:
        kinds = [("bf16", 8192), ("f16", 8192), ("tf32", 4096), ("f32", 4096)]
        if gpu.capability >= (8, 9):
            kinds.append(("fp8_e4m3", 8192))
    for kind, n in kinds:
        yield f"{n}x{n}x{n}-{kind}", _product(kind, n, device), 2 * n**3


def product_candidates(kinds: Iterable[str], device: torch.device) -> list[clock.Candidate]:
    """The roofs of matrix products, one for each kind in `Cost.products`: the library's product at
    a size at which it is fastest."""
    return [_product(kind, product_size(device), device) for kind in kinds]


def product_size(device: torch.device) -> int:
    return 8192 if device.type == "cuda" else 1024


def _product(kind: str, n: int, device: torch.device) -> clock.Candidate:
    """A square product of random data, because zeros would draw less power."""
    dtype, product = _PRODUCTS[kind]
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    return clock.Candidate(f"roof:{kind} {n}x{n}x{n}", [partial(product, a, b)])


def _tf32_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return a @ b
    finally:
        torch.set_float32_matmul_precision(before)


def _fp8_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    one = _one(a.device)
    return torch._scaled_mm(  # pyright: ignore[reportPrivateImportUsage]
        a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


@cache
def _one(device: torch.device) -> torch.Tensor:
    return torch.ones((), device=device)


_PRODUCTS: dict[str, tuple[torch.dtype, Callable[..., Any]]] = {
    "f64": (torch.float64, torch.matmul),
    "f32": (torch.float32, torch.matmul),
    "tf32": (torch.float32, _tf32_matmul),
    "bf16": (torch.bfloat16, torch.matmul),
    "f16": (torch.float16, torch.matmul),
    "fp8_e4m3": (torch.float8_e4m3fn, _fp8_matmul),
}


def _fastest(times: dict[str, clock.Times]) -> tuple[str, clock.Times]:
    good = {n: t for n, t in times.items() if t.cold}
    if not good:
        return next(iter(times.items()))
    name = min(good, key=lambda n: median(good[n].cold))
    return name.split(" ", 1)[1], good[name]


def _sizes(device: torch.device, quick: bool) -> tuple[int, ...]:
    sizes = SIZES if device.type == "cuda" else (MIB, 16 * MIB, 256 * MIB)
    return (sizes[-3], sizes[-1]) if quick and len(sizes) > 3 else sizes[-1:] if quick else sizes


def _size(nbytes: int) -> str:
    return f"{nbytes // MIB}MiB" if nbytes >= MIB else f"{nbytes // 1024}KiB"
