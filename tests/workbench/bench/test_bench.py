"""A bench of a real ladder, small; host costs; tuned tables."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from kernelwright.cli.render import timings
from kernelwright.contract import H200, Peer, case
from kernelwright.dispatch import ladder, ladders, specs_of
from kernelwright.emulator import EmulationError
from kernelwright.machine import clock, slug
from kernelwright.workbench.bench import (
    case_bench,
    cpu_verification,
    host_time,
    roofs,
    tune,
    workload,
)
from kernelwright.workbench.bench.bench import bench
from kernelwright.workbench.bench.bottleneck import bound
from kernelwright.workbench.bench.case_bench import CaseBench
from kernelwright.workbench.bench.result import BenchResult, Skipped
from kernelwright.workbench.listing import UnknownCase
from kernelwright.workbench.records import records
from kernelwright.workbench.verify import large_tensors
from kernelwright.workbench.verify.candidate import Expected

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def benched():
    """A bench of softmax on a small case: two PyTorch rungs, a wrong one, and one that raises."""
    whole = ladder("softmax")
    manual, native = whole.rung("manual"), whole.rung("native")
    wrong = replace(native, name="wrong", entry="torch_rungs:native", dispatchable=False)
    raises = replace(native, name="raises", dispatchable=False)
    small = replace(
        whole, rungs=(manual, native, wrong, raises, whole.rung("triton_row")), peers=None
    )
    entries = {"wrong": lambda x, dim: torch.softmax(x, dim) * 1.01, "raises": lambda x, dim: 1 / 0}
    real = case_bench.launcher
    patch = pytest.MonkeyPatch()
    patch.setattr(
        case_bench,
        "launcher",
        lambda lad, args, rung, config=None: entries.get(rung) or real(lad, args, rung, config),
    )
    events, steps = [], []
    result = bench(
        [small],
        cases=["4x1000-f32-dim=-1"],
        quick=True,
        on_case=lambda lad, c, r: events.append(r),
        on_step=steps.append,
    )
    patch.undo()
    assert events == [result]
    assert steps[0].startswith("1 of 1: softmax 4x1000-f32-dim=-1: ") and len(steps) == 7
    return result


def by_rung(result):
    return {r.rung: r for r in result.records}


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a CPU does")
def test_bench_times_only_what_is_right(benched):
    found = by_rung(benched)
    assert found["native"].outcome == found["manual"].outcome == "pass"
    assert found["native"].cold and found["native"].error
    assert found["wrong"].outcome == "wrong" and not found["wrong"].cold
    assert "error" in found["wrong"].why
    assert found["raises"].outcome == "error" and "ZeroDivisionError" in found["raises"].why
    assert benched.exit_code == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a CPU does")
def test_bench_has_a_control_and_a_roof_of_the_same_bytes(benched):
    found = by_rung(benched)
    assert found["control"].cold
    assert found["roof:r1w1"].bytes == found["native"].bytes == 2 * 4 * 4000
    (noise,) = benched.noise.values()
    assert noise >= 0
    assert benched.compare(found["native"], found["control"]).verdict in ("same", "ambiguous")


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a CPU does")
def test_bench_says_where_a_gpu_rung_was_timed(benched):
    (skipped,) = [s for s in benched.skipped if s.rung == "triton_row"]
    assert skipped.why.startswith("verified here on ")
    assert "timed on nvidia-h200" in skipped.why
    assert "triton_row" not in by_rung(benched)


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a CPU does")
def test_bench_records_survive_their_file(benched, tmp_path):
    records.save(benched.records, benched.environment, tmp_path)
    path = tmp_path / slug(CPU) / "softmax.jsonl"
    assert len(path.read_text().splitlines()) == len({r.key for r in benched.records})
    assert (tmp_path / slug(CPU) / "runs.jsonl").read_text().count(benched.run) >= 1


def test_no_case_of_that_name():
    with pytest.raises(UnknownCase, match="softmax has 32768x256"):
        bench([ladder("softmax")], cases=["7x7-f32"])


def test_a_cpu_times_the_shapes_of_two_models():
    chosen = workload.cpu_cases(ladder("softmax"))
    assert {c.label for c in chosen} == {"GPT-2 attention scores", "Llama 3 attention scores"}
    assert {c.dtype for c in chosen} == {torch.float32, torch.bfloat16}
    assert all(2 * c.numel * c.dtype.itemsize < workload.CPU_BYTES for c in chosen)


def test_a_quick_bench_on_a_cpu_takes_each_model_in_its_own_type():
    for name in ("softmax", "gelu", "gelu.backward"):
        chosen = workload.chosen([ladder(name)], ["gpt-2", "llama-3"], CPU, quick=True)
        types = {"GPT-2": torch.float32, "Llama 3": torch.bfloat16}
        assert [next(t for m, t in types.items() if m in c.label) for _, c in chosen] == [
            c.dtype for _, c in chosen
        ]
        assert len(chosen) == 2


def test_quick_takes_each_shape_in_one_dtype_on_a_gpu():
    cuda, softmax = torch.device("cuda"), ladder("softmax")
    work = [c for _, c in workload.chosen([softmax], ["gpt-2", "llama-3"], cuda, quick=True)]
    every = [c for _, c in workload.chosen([softmax], ["gpt-2", "llama-3"], cuda)]
    assert {c.dtype for c in work} == {torch.bfloat16} < {c.dtype for c in every}
    assert {(c.shape, c.label) for c in work} == {(c.shape, c.label) for c in every}
    assert len(work) == len({(c.shape, c.label) for c in work})


def test_a_case_is_named_by_its_model_too():
    work = workload.chosen([ladder("softmax")], ["gpt2"], CPU)
    assert work and all("GPT-2" in c.label for _, c in work)


def test_a_case_that_does_not_fit_memory_is_skipped():
    big = case((1 << 40,), torch.float32, use="bench")
    assert "needs about" in (workload.unfit(big, CPU) or "")
    assert workload.unfit(case((1 << 10,), torch.float32), CPU) is None


def test_a_case_that_fits_in_a_gpus_cache_is_skipped(monkeypatch):
    """Tens of thousands of sets would be drawn and captured for each rung."""
    monkeypatch.setattr(workload, "gpu_of", lambda device: H200)
    monkeypatch.setattr(workload, "gpu_facts", lambda index: SimpleNamespace(memory=1 << 37))
    monkeypatch.setattr(clock, "last_level_cache", lambda device: H200.l2_bytes)
    gpu = torch.device("cuda", 0)
    assert "would not exceed the cache" in (workload.unfit(case((5, 33), torch.float32), gpu) or "")
    for op in (lad.operator for lad in ladders()):
        assert all(workload.unfit(c, gpu, op) is None for c in op.cases if c.use == "bench")


@pytest.mark.parametrize(
    ("cold", "roof", "launch", "limit"),
    [(3.0, 2.0, 2.0, "launch"), (100.0, 90.0, 2.0, "bandwidth"), (100.0, 20.0, 2.0, "")],
)
def test_what_limits_a_launch(cold, roof, launch, limit):
    assert bound(cold, roof, launch, material_cost(), CPU) == limit


def material_cost():
    x = torch.empty(4, 8)
    return ladder("softmax").operator.cost(x=x, dim=-1)


def test_peers_are_skipped_by_name_when_not_installed(monkeypatch):
    peer = Peer("nobody", "softmax", lambda x, dim: lambda: x, "no_such_library")
    monkeypatch.setattr(case_bench, "peers_of", lambda lad: (peer,))
    one = CaseBench(
        ladder("softmax"), case((2, 3), torch.float32, dim=-1), CPU, clock.CPU_QUICK, 0.0,
        BenchResult("run", {}), {},
    )  # fmt: skip
    assert list(one._peers(True)) == []
    assert one.result.skipped[0].why == "no_such_library is not installed"


def test_a_random_peer_is_held_to_shape_and_dtype():
    lad = ladder("softmax")
    c = case((2, 3), torch.float32, dim=-1)
    result = BenchResult("run", {})
    one = CaseBench(lad, c, CPU, clock.CPU_QUICK, 0.0, result, {})
    want = Expected(lad.operator, lambda x, dim: torch.softmax(x, dim), c, "cpu")
    one.cost = lad.operator.cost(**want.args)
    outcome = {}
    for name, make in {
        "other values": lambda x, dim: lambda: torch.rand_like(x),
        "other shape": lambda x, dim: lambda: torch.rand(3, 2),
        "other dtype": lambda x, dim: lambda: torch.rand(2, 3).half(),
    }.items():
        peer = Peer(name, "softmax", make, "torch", random=True)
        outcome[name] = one._peer(peer, want, [want.args])[0].outcome
    assert outcome == {"other values": "pass", "other shape": "wrong", "other dtype": "wrong"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU's memory")
def test_workspace_is_what_a_call_holds_beyond_its_results():
    gpu = torch.device("cuda", 0)
    x = torch.empty(1 << 20, device=gpu)
    one = CaseBench(
        ladder("gelu"), case((2, 3), torch.float32, approximate="none"), gpu, clock.QUICK, 0.0,
        BenchResult("run", {}), {},
    )  # fmt: skip
    assert one._workspace(lambda: torch.relu(x)) == 0
    assert one._workspace(lambda: x.exp().sin()) == x.nbytes


# host, tune, env


@pytest.mark.parametrize(
    "name", ["rms_norm", "layer_norm", "add_rms_norm", "cross_entropy", "embedding", "rope"]
)
def test_host_cost_of_what_its_public_function_takes_otherwise(name):
    """With gradients only of the arguments, and from all results, that have one."""
    lad = ladder(name)
    first = next(c for c in lad.operator.cases if 0 < c.numel < 2**12 and c.dtype == torch.float32)
    found = host_time.host_records(lad, first, CPU, "run")
    assert {r.rung for r in found} == {
        "host:kw", "host:kw+backward", "host:torch", "host:torch+backward",
    }  # fmt: skip


@pytest.mark.parametrize("lad", [x for x in ladders() if "." not in x.name], ids=lambda x: x.name)
def test_host_cost_calls_a_public_function_with_what_it_takes(lad):
    operator = lad.operator
    first = min((c for c in operator.cases if c.use != "big" and c.numel), key=lambda c: c.numel)
    args = operator.with_defaults(operator.inputs(replace(first, use="bench"), "cpu"))
    for function in host_time._functions(lad, args).values():
        function(args)()


def test_host_cost_is_of_public_functions_of_the_same_arguments():
    lad = ladder("softmax")
    found = host_time.host_records(lad, case((4, 8), torch.float32, dim=-1), CPU, "run")
    assert [r.rung for r in found] == [
        "host:kw", "host:kw+backward", "host:torch", "host:torch+backward",
    ]  # fmt: skip
    assert all(r.host and not r.cold and r.outcome == "pass" for r in found)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_tune_needs_a_gpu():
    with pytest.raises(tune.NoGpu, match="needs a GPU"):
        tune.tune(ladder("softmax"))


def test_a_tuned_table_takes_what_is_fastest_on_all_of_a_bucket(tmp_path):
    result = tune.TuneResult("softmax", (9, 0), seconds=12.34)
    a, b = {"rows": 1}, {"rows": 2}
    result.tried = [
        tune.Tried("c1", "small", "x", a, 10.0),
        tune.Tried("c1", "small", "x", b, 5.0),
        tune.Tried("c1", "small", "y", {}, 2.0),
        tune.Tried("c2", "small", "x", a, 10.0),
        tune.Tried("c2", "small", "x", b, 8.0),
        tune.Tried("c2", "small", "y", {}, None, "does not fit"),
    ]
    tune.decide(result, {"c1": 10.0, "c2": 10.0})
    assert result.buckets["small"]["rung"] == "x"
    assert result.buckets["small"]["configs"]["x"] == b
    assert result.gains["small"] == pytest.approx((100 / 40) ** 0.5)
    assert result.gain == pytest.approx((100 / 40) ** 0.5)
    path = result.write(tmp_path)
    assert path.name == "softmax.sm_90.json"
    assert '"cost_seconds": 12.3' in path.read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="times them instead")
@pytest.mark.parametrize("rung", ["cuda_warp", "cuda_cluster"])
@pytest.mark.parametrize(
    ("missing", "words"), [(None, "verified here on"), ("no compiler", "compiled here for")]
)
def test_without_a_gpu_cuda_is_emulated_where_it_can_be(monkeypatch, rung, missing, words):
    softmax = ladder("softmax")
    if missing:
        monkeypatch.setattr(cpu_verification.availability, "missing", lambda *_: missing)
    assert cpu_verification.stand_in(softmax, softmax.rung(rung), torch.device("cpu")).startswith(
        words
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a CPU does")
def test_the_summary_says_what_was_done_what_is_wrong_and_what_more_there_is(benched):
    lad = ladder("softmax")
    out = io.StringIO()
    shown = timings.summary([lad], benched, quick=True, seconds=7.0)
    Console(file=out, width=200).print(shown, soft_wrap=True)
    said = " ".join(out.getvalue().split())
    assert "timed here 2 rungs on 1 case, all verified, in 7 s" in said
    assert "verified here 1 GPU rung on one small case each, interpreted or emulated" in said
    assert "wrong softmax.wrong: " in said and "softmax.raises: ZeroDivisionError" in said
    assert "next kernelwright verify softmax: " in said
    more = "float32 and bfloat16 of each shape, up to 12 s of samples per case instead of 4"
    cases = len(workload.chosen([lad], None, torch.device("cpu"), quick=False))
    assert f"without --quick: {more}: {cases} cases, about {cases * (7 + 12 - 4)} s" in said


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a CPU does")
def test_a_gpu_rung_that_is_wrong_or_raises_fails_the_bench(monkeypatch):
    def raises(*_):
        raise EmulationError("k: the process that ran it was killed by SIGABRT")

    monkeypatch.setattr(cpu_verification, "launcher", raises)
    softmax = ladder("softmax")
    done = cpu_verification.stand_in(softmax, softmax.rung("cuda_warp"), CPU)
    assert done == "WRONG here: EmulationError: k: the process that ran it was killed by SIGABRT"
    skipped = Skipped("softmax", "cuda_warp", "4x1000-f32-dim=-1", done)
    timed = records.Record(
        "softmax", "native", "4x1000-f32-dim=-1", "cpu", "r", "pass", cold=(1.0,)
    )  # fmt: skip
    assert BenchResult("r", {}, [timed]).exit_code == 0
    assert BenchResult("r", {}, [timed], [skipped]).exit_code == 1


def test_pytorchs_error_is_found_once_for_all_rungs_of_a_case(monkeypatch):
    calls = []

    def counted(*args):
        calls.append(args[0])
        return largest(*args)

    lad = ladder("softmax")
    c = case((600, 600), torch.float32, dim=-1)
    want = Expected(lad.operator, lambda x, dim: torch.softmax(x, dim), c, "cpu")
    largest = large_tensors._largest
    monkeypatch.setattr(large_tensors, "_largest", counted)
    near = want.native[0] * (1 + 2**-23)
    for _ in range(3):
        assert large_tensors.right(lad.operator, want, (near,)).ok
        assert large_tensors.right(lad.operator, want, (want.native[0].clone(),)).ok
    assert sum(t is want.native[0] for t in calls) == 1 and len(calls) == 4


def test_roofs_of_a_cpu_are_allocated_once(monkeypatch):
    made = []
    buffers = roofs._buffers

    def counted(streams, *rest):
        made.append(streams)
        return buffers(streams, *rest)

    monkeypatch.setattr(roofs, "_buffers", counted)
    monkeypatch.setattr(clock, "last_level_cache", lambda device: 1 << 16)
    found = roofs.roof_candidates("r2w1", 3 << 20, CPU)
    assert [c.name for c in found] == ["roof:r2w1 bitwise xor"] and made == [2, 1]


@pytest.mark.parametrize("peer", [False, True])
def test_what_does_not_fit_memory_is_skipped_and_is_no_error(peer, monkeypatch):
    def hungry(*args, **named):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 49.00 GiB")

    monkeypatch.setattr(case_bench, "launcher", hungry)
    softmax, shown = ladder("softmax"), case((3, 5), torch.float32, use="bench", dim=-1)
    result, want = BenchResult("r", {}), Expected(softmax.operator, torch.softmax, shown, "cpu")
    one = CaseBench(softmax, shown, CPU, clock.QUICK, 0.0, result, {})
    one.specs = specs_of(want.args)
    one.cost = softmax.operator.cost(x=want.args["x"], dim=-1)
    if peer:
        found = one._peer(Peer("torch", "softmax", hungry, "torch"), want, [want.args])
    else:
        found = one._rung(softmax.rung("manual"), want)
    assert found[0] is None and not found[1]
    (skipped,) = result.skipped
    assert skipped.why.startswith("not run: memory. ") and "49.00 GiB" in skipped.why
