"""Runs what a user runs, and all tests, on this machine's GPU, within eight minutes on 16 cores.

    python -m tools.gpu_check                       everything; a new seed each time
    python -m tools.gpu_check --seed 7 --only functions operators
    python -m tools.gpu_check --record FILE --commit 1a2b3c4d

Five parts run side by side:

functions   every public function in a random sequence of sizes, dtypes and layouts, the first size
            again at the end, with gradients, beside PyTorch and float64
operators   what is dispatched for every operator on random shapes, in the same kind of sequence
patched     models patched by `kw.patch`, eager and compiled: loss, gradients and a step of the
            optimizer beside the unpatched model; the random states are unchanged
commands    each command as it is typed
tests       the tests of `make test`

The end is a table and the names of what failed. --record appends the counts and names to FILE
(records/suite.jsonl, or one that `kernelwright ledger --merge` reads), where `kernelwright ledger`
finds them. The exit code is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "fixtures")]

PARTS = ("functions", "operators", "patched", "commands", "tests")
PROCESSES = {"functions": 2, "operators": 5, "patched": 2}
LARGEST, LONGEST = 1 << 26, 3e11  # bytes of an operator's largest tensor; its operations
FAMILIES = ("Llama", "Qwen 3", "Gemma 2", "GPT-2", "Mixtral")
COLUMNS = (1, 7, 8, 16, 33, 64, 96, 128, 250, 256, 768, 1000, 1024, 3072, 4096)
ROWS = (1, 2, 3, 5, 8, 16, 17, 33, 64)
TRAIN = ("train", "--steps", "20", "--batch", "8", "--eval-every", "20", "--eval-batches", "1")
PROMPTS = ("def main(", "class A:\n    def __init__(self", "#", "import os, ", "x = [", "return",
           "a b c d e f g h i j", "if ")  # fmt: skip
#: Commands by name, in sequences that run side by side in one folder.
COMMANDS: tuple[dict[str, tuple[str, ...]], ...] = ({
    "train": (*TRAIN, "--out", "eager", "--compile", "none"),
    "generate, 1 prompt": ("generate", "eager", *PROMPTS[:1], "--tokens", "32"),
    "train with a CUDA graph": (*TRAIN, "--out", "graph", "--compile", "graph"),
    "generate, 3 prompts": ("generate", "graph", *PROMPTS[:3], "--tokens", "32"),
}, {
    "train compiled": (*TRAIN, "--out", "compiled", "--compile", "model"),
    "generate, 8 prompts": ("generate", "compiled", *PROMPTS, "--tokens", "32"),
}, {
    "profile a step": ("profile", "train", "--out", "profile"),
    "profile an operator": ("profile", "rms_norm", "--out", "profile"),
    "bench": ("bench", "softmax", "--quick", "--case", "gpt-2"),
    "tune": ("tune", "bias_gelu", "--quick"),
    "judge": ("judge", f"{ROOT}/tests/fixtures/judged/user.py:softmax", "--as", "softmax",
              "--quick"),
    "run on the GPU": ("run", f"{ROOT}/tests/fixtures/right/vadd.cu", "--gpu"),
    "run in the emulator": ("run", f"{ROOT}/tests/fixtures/right/vadd.cu", "--check", "all"),
    "verify": ("verify", "softmax.cuda_warp", "linear.native"),
})  # fmt: skip
#: Seconds after which what is not over is ended, and has failed.
LIMIT, OF_COMMAND = 470, 240


@dataclass
class Outcome:
    """What a part came to. `failures`: what failed, and why."""

    part: str
    passed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu_check")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--seed", type=int, help="of the random sequences (default: a new one)")
    parser.add_argument(
        "--seconds", type=float, default=60,
        help="draw again after every function and operator has been checked, until then",
    )  # fmt: skip
    parser.add_argument("--record", type=Path, metavar="FILE", help="append the result to FILE")
    parser.add_argument("--commit", help="of --record, where git cannot tell")
    parser.add_argument("--worker", nargs=3, metavar=("PART", "I", "N"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        part, share, of = asked.worker[0], int(asked.worker[1]), int(asked.worker[2])
        work(part, share, of, asked.seed, time.monotonic() + asked.seconds)
        return
    import torch

    if not torch.cuda.is_available():
        sys.exit("gpu_check: this machine has no GPU; `make test` is the check without one")
    seed = random.SystemRandom().randrange(2**31) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    outcomes = run_parts(asked.only, seed, asked.seconds, asked.commit)
    shown(outcomes, seed)
    if asked.record:
        recorded(outcomes, asked.record, asked.commit)
    sys.exit(any(o.failures for o in outcomes))


def run_parts(parts: list[str], seed: int, seconds: float, commit: str | None) -> list[Outcome]:
    """All parts side by side."""

    def run(part: str) -> Outcome:
        begun = time.monotonic()
        outcome = (
            commands() if part == "commands"
            else tests(commit) if part == "tests"
            else workers(part, seed, seconds)
        )  # fmt: skip
        outcome.seconds = time.monotonic() - begun
        failed = "".join(f"\nFAILED {n} - {why[:500]}" for n, why in outcome.failures.items())
        print(f"{part}: {outcome.passed} passed, {len(outcome.failures)} failed, "
              f"{outcome.seconds:.0f} s{failed}", flush=True)  # fmt: skip
        return outcome

    with ThreadPoolExecutor(len(parts)) as pool:
        return list(pool.map(run, parts))


# --- parts of other processes -------------------------------------------------------------------


def workers(part: str, seed: int, seconds: float) -> Outcome:
    """A part divided among processes, which print a line of JSON for each thing that they check."""
    count = PROCESSES[part]
    command = [sys.executable, "-m", "tools.gpu_check", "--seed", str(seed), "--seconds",
               str(seconds), "--worker", part]  # fmt: skip
    with ThreadPoolExecutor(count) as pool:
        ended = list(pool.map(lambda i: _ended([*command, str(i), str(count)]), range(count)))
    outcome = Outcome(part)
    for i, (code, out, err) in enumerate(ended):
        lines = [json.loads(line) for line in out.splitlines() if line.startswith('{"name"')]
        begun = [line["name"] for line in lines if "why" not in line]
        for line in lines:
            if line.get("why"):
                outcome.failures[f"{part}: {line['name']}"] = line["why"]
            elif "why" in line:
                outcome.passed += 1
        if code:
            outcome.failures[f"{part}: process {i}"] = (
                f"{code} in {begun[-1] if begun else 'its start'}: {_last(err)}"
            )
    return outcome


def _ended(command: list[str], limit: float = LIMIT, **how: Any) -> tuple[str, str, str]:
    """How a process ended ("" if well), and what it printed."""
    try:
        done = subprocess.run(
            command, **{"cwd": ROOT, **how}, capture_output=True, text=True, errors="replace",
            timeout=limit,
        )  # fmt: skip
    except subprocess.TimeoutExpired as e:
        out, err = ((x or b"").decode(errors="replace") for x in (e.stdout, e.stderr))
        return f"not over after {limit:.0f} s", out, err
    code = f"exit code {done.returncode}" if done.returncode else ""
    return code, done.stdout, done.stderr


def _last(text: str) -> str:
    """The last line about an error, else the last line."""
    lines = [x for x in text.strip().splitlines() if "TORCH_USE_CUDA_DSA" not in x] or [""]
    return next((x for x in reversed(lines) if "error" in x.lower()), lines[-1])


def commands() -> Outcome:
    """The commands of COMMANDS, whose exit code must be 0."""
    outcome = Outcome("commands")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(COMMANDS)) as pool:
        environment = {**os.environ, "KW_RECORDS": f"{folder}/records"}

        def run(sequence: dict[str, tuple[str, ...]]) -> None:
            for name, words in sequence.items():
                command = [sys.executable, "-m", "kernelwright", *words]
                code, out, err = _ended(command, OF_COMMAND, cwd=folder, env=environment)
                if code:
                    outcome.failures[f"commands: {name}"] = f"{code}: {_last(err or out)}"
                else:
                    outcome.passed += 1

        list(pool.map(run, COMMANDS))
    return outcome


def tests(commit: str | None) -> Outcome:
    """`make test`'s tests, in a process per core: the other parts end earlier, and mostly wait for
    the GPU."""
    from kernelwright.workbench.records import suite

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / suite.FILE
        command = [sys.executable, "-m", "pytest", "-q", "-n", str(os.cpu_count() or 2),
                   "--dist", "worksteal", "--record-suite", str(file)]  # fmt: skip
        command += ["--commit", commit] if commit else []
        wide = {**os.environ, "COLUMNS": "600"}  # pytest cuts reasons to the width of the terminal
        code, out, err = _ended(command, env=wide)
        if not (runs := suite.load(file)):
            return Outcome("tests", failures={"tests: pytest": f"{code}: {_last(out or err)}"})
        why = _reasons(out)
        return Outcome(
            "tests", runs[0].passed, runs[0].skipped,
            failures={name: why.get(name, "") for name in runs[0].failures},
        )  # fmt: skip


def _reasons(text: str) -> dict[str, str]:
    """The reason that pytest's summary gives for each failure."""
    lines = (x.split(" ", 1)[1] for x in text.splitlines() if x.startswith(("FAILED ", "ERROR ")))
    return {name: why for name, _, why in (line.partition(" - ") for line in lines)}


# --- what a worker checks -----------------------------------------------------------------------


def work(part: str, share: int, of: int, seed: int, until: float) -> None:
    """Check one share of a part, and again with other draws while time is left."""
    import torch

    from support import shared_gpu

    if torch.cuda.is_available():
        shared_gpu.wait_without_spinning()
    for turn in range(1 if part == "patched" else 100):
        for name, check in list(_checks(part).items())[share::of]:
            if turn and time.monotonic() > until:
                return
            of_turn = f"{name}, turn {turn}" if turn else name
            print(json.dumps({"name": of_turn}), flush=True)
            why = _why(check, random.Random(f"{seed} {turn} {name}"))
            torch.cuda.empty_cache()  # other processes share the GPU's memory
            print(json.dumps({"name": of_turn, "why": why}), flush=True)


def _why(check: Callable[[random.Random], None], rng: random.Random) -> str:
    """Why a check fails, "" if it passes."""
    import torch

    try:
        check(rng)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # an error of a kernel belongs to this check
    except Exception as e:  # noqa: BLE001 - whatever is raised is the finding
        where = traceback.extract_tb(e.__traceback__)[-1]
        lines = " ".join(traceback.format_exception_only(e)[-1].split())  # if str(e) raises, too
        name, _, said = lines.partition(": ")
        said = f"{name.rpartition('.')[2]}: {said[:300]}"
        return f"{said} ({Path(where.filename).name}:{where.lineno})"
    return ""


def _checks(part: str) -> dict[str, Callable[[random.Random], None]]:
    from functools import partial

    import kernelwright.ops.every  # noqa: F401
    from kernelwright.dispatch import ladders
    from support.publics import PUBLIC

    if part == "functions":
        return {name: partial(function, public) for name, public in PUBLIC.items()}
    if part == "operators":
        return {lad.name: partial(operator, lad) for lad in ladders()}
    return {
        f"{f}, {how}": partial(patched, f, how) for f in FAMILIES for how in ("eager", "compiled")
    }


def function(public: Any, rng: random.Random) -> None:
    """A public function, its gradients included, in a sequence of sizes."""
    import torch

    from support.publics import LAYOUT, agree_with_exact, with_gradients

    shapes = [(rng.randint(1, 5), rng.choice(ROWS), rng.choice(COLUMNS)) for _ in range(3)]
    for shape in (*shapes, shapes[0]):
        dtype = rng.choice((torch.float32, torch.bfloat16, torch.float16))
        layout = rng.choice((None, *LAYOUT))
        tensors = public.tensors(shape, dtype)
        if layout:
            tensors[0] = LAYOUT[layout](tensors[0])
        try:
            agree_with_exact(with_gradients, public, tensors, dtype)
        except Exception as e:
            raise type(e)(f"{tuple(shape)} {dtype} {layout or 'contiguous'}: {e}") from e


def operator(lad: Any, rng: random.Random) -> None:
    """What is dispatched for an operator, on sampled shapes, the first of them again."""
    from kernelwright.dispatch import binding, entry_of
    from kernelwright.machine import here
    from kernelwright.workbench.bench.sampling import sample
    from kernelwright.workbench.listing import specs_of
    from kernelwright.workbench.verify.candidate import all_results, copy_of, expected, map_tensors
    from kernelwright.workbench.verify.large_tensors import right

    operator, device = lad.operator, here()
    cases: list[Any] = []
    while not cases:
        drawn = sample(operator, 2, rng.randrange(2**31), LARGEST)
        cases = [c for _, c in drawn if operator.cost(**specs_of(lad, c)).flops < LONGEST]
    native = entry_of(lad, lad.rung("native"))
    for case in (*cases, *cases[:1]):
        want = expected(operator, native, case, device.type)
        args = map_tensors(want.args, copy_of)
        results = binding._caches[lad.name].now(*args.values(), None)
        verdict = right(operator, want, all_results(operator, args, results))
        if not verdict.ok:
            raise AssertionError(f"{case.id}: {verdict.why}")


def patched(family: str, how: str, rng: random.Random) -> None:
    """A patched model beside the unpatched one, and the random states after patching."""
    import torch

    import kernelwright as kw
    from support.patched_models import batch, make

    plain, ours = make(family).cuda(), make(family).cuda()
    torch.manual_seed(rng.randrange(2**31))
    before = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
    kw.patch(ours)
    after = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
    assert all(map(torch.equal, before, after)), "kw.patch changes a random state"
    if how == "compiled":
        torch.compiler.reset()
    ids, labels = (t.cuda() for t in batch())
    steps = [_step(model, ids, labels, how) for model in (plain, ours)]
    for (name, theirs), (_, mine) in zip(*(s.items() for s in steps), strict=True):
        error = (mine - theirs).norm() / theirs.norm().clamp_min(1e-20)
        assert error < 1e-4, f"{name}: relative error {error.item():.2g}"


def _step(model: Any, ids: Any, labels: Any, how: str) -> dict[str, Any]:
    """Loss, gradients and the parameters after a step of AdamW."""
    import torch

    call = torch.compile(model) if how == "compiled" else model
    # an eps at which a step is a smooth function of the gradient
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, eps=1.0)
    loss = call(input_ids=ids, labels=labels).loss
    loss.backward()
    named = {n: p for n, p in model.named_parameters() if p.grad is not None}
    gradients = {f"gradient of {n}": p.grad.clone() for n, p in named.items()}
    optimizer.step()
    return {"loss": loss.detach(), **gradients, **{n: p.detach() for n, p in named.items()}}


# --- the result ---------------------------------------------------------------------------------


def shown(outcomes: list[Outcome], seed: int) -> None:
    print(f"{'part':<12}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for o in outcomes:
        print(f"{o.part:<12}{o.passed:>8}{len(o.failures):>8}{o.skipped:>9}{o.seconds:>9.0f}")
    print(f"seed {seed}")


def recorded(outcomes: list[Outcome], path: Path, commit: str | None) -> None:
    """Append one line about all parts that ran."""
    from kernelwright.machine import facts, here, slug
    from kernelwright.workbench.records import suite
    from support.recorded import commit as of_git

    known = facts(here())
    suite.append(
        suite.SuiteRun(
            commit=commit or of_git(),
            when=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            machine=slug(here()),
            python=known["python"],
            torch=known["torch"],
            triton=known["triton"],
            driver=known["gpu"]["driver"],
            scope=suite.CHECK
            if len(outcomes) == len(PARTS)
            else "+".join(o.part for o in outcomes),
            part="1/1",
            passed=sum(o.passed for o in outcomes),
            failed=sum(len(o.failures) for o in outcomes),
            skipped=sum(o.skipped for o in outcomes),
            seconds=round(max(o.seconds for o in outcomes), 1),
            failures=tuple(_plain(name) for o in outcomes for name in o.failures),
        ),
        path,
    )


def _plain(name: str) -> str:
    """A failure's name without the turn in which it was seen."""
    return name.partition(", turn ")[0]


if __name__ == "__main__":
    main()
