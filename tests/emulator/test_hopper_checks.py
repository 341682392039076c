"""What the checks find in kernels with Hopper's asynchronous instructions: each fault of one small
pipeline, and faults that public kernels were shipped with."""

import re

import pytest
import torch

from kernelwright import emulator
from kernelwright.contract import CudaKernel, Launch, TensorMap, i32, packed
from kernelwright.dispatch import ladder, ladders
from kernelwright.emulator import hopper
from kernelwright.emulator.checks import CHECKS, Watch
from kernelwright.emulator.program import run as run_program
from kernelwright.workbench.binary_info import dissect
from kernelwright.workbench.sanitize import report
from kernelwright.workbench.verify.verify import here
from support.paths import FIXTURES

pytestmark = pytest.mark.skipif(
    bool(emulator.missing("watched")), reason="no checks on this machine"
)
SOURCE = FIXTURES / "emulated" / "hopper_faults.cu"
SLICES = 4


def watched(name, maps, tensors, numbers, *, block, grid=1, cluster=1, seed=0):
    """Whether a kernel finished, and what the checks found."""
    given = {m.tensor: t for m, t in maps.items()} | tensors
    step = Launch(CudaKernel(SOURCE, name, cluster), (grid, 1, 1),
                  (*maps, *tensors, *numbers), (block, 1, 1))  # fmt: skip
    values = [*(packed(hopper.encoded(m, t.data_ptr())) for m, t in maps.items()),
              *tensors.values(), *numbers]  # fmt: skip
    watch = Watch(tuple(CHECKS), seed)
    with watch.mode():
        run = emulator.launcher(step)
    done, _, findings = watch.call(lambda *_: run(None, step, values), given, ())
    return done, [f.text for f in findings]


def ring(fault=0, seed=0):
    """(Whether the product is right, findings)."""
    torch.manual_seed(1)
    a, b = (torch.randn(rows, 64 * SLICES).bfloat16() for rows in (64, 8))
    out = torch.zeros(64, 8)
    maps = {
        TensorMap(name, t.dtype, (64 * SLICES, len(t)), (t.stride(0) * 2,), (64, len(t)), 128): t
        for name, t in (("a", a), ("b", b))
    }
    done, findings = watched("ring", maps, {"out": out}, [i32(SLICES), i32(fault)], block=160,
                          seed=seed)  # fmt: skip
    return done and torch.allclose(out, 2 * a.float() @ b.float().T, atol=1e-3), findings


# The fence of the results may come after the barrier; one lane may arrive for its warp after
# __syncwarp.
@pytest.mark.parametrize("fault", [0, 22, 27])
def test_what_is_right_has_no_finding(fault):
    for seed in range(3):
        assert ring(fault, seed) == (True, []), seed


FAULTS = {
    1: r"counts bytes at the mbarrier in .* full, initialized .* with no fence\.mbarrier_init",
    2: r"uses the mbarrier in bytes 0 to 7 of empty, initialized .* with no barrier in between",
    3: r"arrives at an mbarrier that has all 1 of phase 0 and waits for 9216 bytes",
    4: r"deadlocked:(.|\n)*0 of 1 arrivals and -5120 bytes are missing\) at hopper.cuh:\d+",
    5: r"copies to bytes 8192 to 9215 of stages, copied by thread 128 .* with no wait for an mbarr",
    6: r"issues a product for the first time with no wgmma.fence",
    7: r"reads .* of stages, which no thread of its block has written",
    8: r"an asynchronous instruction read .* of stages, written by thread .* with no barrier",
    9: r"an asynchronous instruction read .* of stages, written by thread .* no fence.proxy",
    10: r"an asynchronous instruction read .* of stages, written by thread .* no fence.proxy",
    11: r"an asynchronous instruction read .* of stages, written by thread .* with no barrier",
    12: r"issues a product for the first time with no wgmma.fence",
    13: r"issues a product after its access to registers of D at hopper_faults.cu:\d+ with no wgmm",
    14: r"whose descriptor has a swizzle of 64 bytes, but the box that thread 128 .* has a swizzle "
    r"of 128 bytes: .* at unit 0 1 2 3 4 5 6 7, the product reads them at 0 1 2 3 0 1 2 3",
    15: r"whose descriptor has no swizzle, but .* 128 bytes",
    16: r"an asynchronous instruction read .* of stages, copied by .* no wait",
    17: r"reads a register of D while the product that it issued at hopper_faults.cu:\d+ may still",
    18: r"copies to bytes 0 to 8191 of stages, read by the asynchronous instruction .* no wait",
    19: r"reads a register of D while the product that it issued at hopper_faults.cu:\d+ may still",
    20: r"an asynchronous instruction read .* of result, written by thread 0 .* no fence.proxy",
    21: r"an asynchronous instruction read .* of result, written by thread .* with no barrier",
    23: r"begins a bulk store that no commit_group follows",
    24: r"writes .* of result, read by the asynchronous instruction .* with no wait for its end",
    25: r"reads out\[0\], copied by thread 0 of block 0 at hopper_faults.cu:\d+ with no wait",
    26: r"writes .* of result, read by the asynchronous instruction .* with no wait for its end",
    28: r"an asynchronous instruction read .* of stages, written by thread .* no fence.proxy",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault):
    findings = ring(fault)[1]
    assert any(re.search(FAULTS[fault], text) for text in findings), findings


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (0, None),
        (1, r"copies to .* of block 1, which may not have started"),
        (2, r"deadlocked(.|\n)*0 of 1 arrivals and 4096 bytes are missing"),
        (3, r"copies to block \(1, 0, 0\), which has ended"),
    ],
)
def test_a_block_loads_for_its_cluster(fault, said):
    tensor = torch.arange(32 * 64, dtype=torch.int16).view(torch.bfloat16).reshape(32, 64)
    map_ = TensorMap("x", tensor.dtype, (64, 32), (128,), (64, 32), 128)
    out = torch.zeros(2, 32, dtype=torch.int32)
    done, findings = watched("shared_load", {map_: tensor}, {"out": out}, [i32(fault)], block=32,
                          grid=2, cluster=2)  # fmt: skip
    if said is None:
        assert (done, findings) == (True, [])
        assert torch.equal(out[0], tensor.view(torch.int32)[0]) and torch.equal(*out)
    else:
        assert any(re.search(said, text) for text in findings), findings


def test_dissect_counts_copies_and_products():
    lad = ladder("matmul")
    case = next(c for c in lad.operator.cases if c.id == "64x64-bf16-n=64")
    dissection = dissect.dissect(lad, lad.rung("cuda_wgmma_tma"), case)
    # two warp groups, four times 16 along k; boxes of 64 x 64, two of b for 128 columns
    assert (dissection.products, dissection.copied) == (8, 3 * 64 * 64 * 2)
    assert dissection.conflicts == 0
    # per product: 8 times 8 rows of A and 16 of B, two units of 16 bytes each
    (line,) = (x for x in dissect.lines(dissection) if x.kind == "wgmma")
    assert line.passes == line.requests * (8 + 16) * 2


PROGRAM = FIXTURES / "programs" / "hopper.cu"


@pytest.mark.long
@pytest.mark.parametrize("name", ["hopper.cu", "hopper_barrier.cu", "hopper_styles.cu"])
def test_a_program_with_tensor_maps(name, capfd):
    done = run_program(PROGRAM.with_name(name), check=tuple(CHECKS))
    assert (done.code, done.findings, capfd.readouterr().out) == (0, (), "passed\n")
    assert run_program(PROGRAM.with_name(name)).code == 0


@pytest.mark.long
def test_what_older_toolkits_and_larger_clusters_need(tmp_path, capfd):
    (tmp_path / "a.cu").write_text(
        "#include <cudaTypedefs.h>\n#include <cuda/barrier>\n#include <cstdio>\n"
        "#ifndef __CUDA_ARCH_FEAT_SM90_ALL\n#error not sm_90a\n#endif\n"
        "PFN_cuTensorMapEncodeTiled encode = cuTensorMapEncodeTiled;\n"
        "__global__ void __cluster_dims__(1, 2, 1) k() {}\n"
        'int main() { usleep(1); k<<<dim3(1, 2), 32>>>(); printf("%d", cudaGetLastError()); }\n'
    )
    done = run_program(tmp_path / "a.cu")
    out, err = capfd.readouterr()
    assert (done.code, out) == (0, "801")
    assert "k: clusters with several blocks along y or z, which have no emulation" in err


@pytest.mark.long
def test_a_libcu_barrier_is_waited_for_by_threads_that_run_one_by_one():
    assert run_program(FIXTURES / "right" / "cuda_barrier.cu").code == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");',
            "",
            r"hopper.cu:\d+: .* written by .* with no fence.proxy.async",
        ),
        ("wgmma.wait_group.sync.aligned %0", "wgmma.wait_group.sync.aligned 1", "register of D"),
        ("(M + N) * K * 2)\n", "M * K * 2)\n", "copies to block .* which has ended"),
        ("1ull << 62", "2ull << 62", "a swizzle of 64 bytes, but the box"),
        ("wait(&full, 0);", "", "with no wait for an mbarrier"),
    ],
)
def test_a_fault_of_a_program_is_found(tmp_path, old, new, said):
    text = PROGRAM.read_text()
    assert old in text
    (tmp_path / "hopper.cu").write_text(text.replace(old, new))
    done = run_program(tmp_path / "hopper.cu", check=tuple(CHECKS))
    messages = [x.text for x in (*done.findings, *done.notes)]
    assert any(re.search(said, text) for text in messages), messages


# matmul's split rung takes no case that is small enough; linear's has the same kernel
RUNGS = [
    (lad, rung)
    for lad in ladders()
    for rung in lad.rungs
    if re.search(r"wgmma|_stream$|promoted", rung.name)
    and (lad.name, rung.name) != ("matmul", "cuda_wgmma_split")
]


@pytest.mark.long
@pytest.mark.skipif(here() == "cuda", reason="compute-sanitizer answers on a GPU")
@pytest.mark.parametrize(("lad", "rung"), RUNGS, ids=[f"{a.name}.{b.name}" for a, b in RUNGS])
def test_a_hopper_rung_has_no_findings(lad, rung):
    """Tiles of a rung that overlap store the same values there."""
    runs = report.emulated_runs(lad, rung)[0]
    calls = [report.call_of(lad, rung, config, case) for config, case in runs]
    good = [call for call in calls if not isinstance(call, str)]
    assert good
    for call in (good[0], good[-1]):
        findings = call.watched(tuple(CHECKS), 1)[1]
        assert [f.text for f in findings if not f.same] == []
