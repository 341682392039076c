"""Models, trainer and decoder on a GPU beside a CPU, and losses beside PyTorch's over 500 steps.

python -m tools.experiments.gpt2_check
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch
from tools.experiments.plain_gpt2 import PlainGPT2

from kernelwright import models
from kernelwright.infer.generate import tokens
from kernelwright.infer.sampling import Sampling
from kernelwright.train import checkpoint, dataset, memory, run, schedule
from kernelwright.train.parallel import Processes
from kernelwright.train.settings import Settings
from kernelwright.train.trainer import Trainer
from kernelwright.workbench.profile import flame, trace, workload

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what determinism asks
GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
MODEL = "gpt2-124m"  # that is profiled
wrong: list[str] = []


def check(name: str, good: bool, facts: Any) -> None:
    print(f"{'ok   ' if good else 'WRONG'} {name}: {facts}", flush=True)
    if not good:
        wrong.append(name)


def losses(device: torch.device, steps: int = 8, **changes: Any) -> list[float]:
    settings = Settings(**{"model": "gpt2-tiny", "batch": 8, "lr": 1e-3, **changes})
    made = Trainer(settings, 256, Processes("none", 0, 1, CPU))
    weights = {n: p.detach().clone() for n, p in made.model.named_parameters()}
    made = Trainer(settings, 256, Processes("none", 0, 1, device))
    with torch.no_grad():
        for n, p in made.model.named_parameters():
            p.copy_(weights[n])
    torch.manual_seed(7)
    x = torch.randint(256, (steps, 8, made.model.config.context + 1)).to(device)
    return [float(made.step(b[:, :-1].contiguous(), b[:, 1:].contiguous(), 1e-3)[0]) for b in x]


def near(a: list[float], b: list[float], tolerance: float) -> bool:
    return all(abs(x - y) <= tolerance for x, y in zip(a, b, strict=True))


def training() -> None:
    for model in ("gpt2-tiny", "llama-tiny"):
        reference = losses(CPU, model=model)
        eager = losses(GPU, model=model)
        check(f"{model} float32", near(reference, eager, 1e-4), eager[-1] - reference[-1])
        for name, changes, tolerance in (
            ("micro 2", {"micro": 2}, 1e-4),
            ("graph", {"compile": "graph"}, 1e-5),
            ("selective", {"recompute": "selective"}, 1e-5),
            ("full", {"recompute": "full"}, 1e-5),
            ("autocast", {"precision": "autocast"}, 3e-2),
            ("bfloat16", {"precision": "bfloat16"}, 3e-2),
        ):
            found = losses(GPU, model=model, **changes)
            far = max(abs(a - b) for a, b in zip(eager, found, strict=True))
            check(f"{model} {name}", near(eager, found, tolerance), far)


def compiled() -> None:
    eager = losses(GPU)
    for how in ("block", "model"):
        found = losses(GPU, compile=how)
        check(f"compile {how}", near(eager, found, 1e-4), found[-1] - eager[-1])


def bad_steps() -> None:
    made = Trainer(Settings(batch=4), 256, Processes("none", 0, 1, GPU))
    x = torch.randint(256, (4, 64), device=GPU)
    made.step(x, x, 1e-3)
    handle = made.model.norm.register_forward_hook(lambda *_: None)
    handle.remove()
    before = [p.detach().clone() for p in made.model.parameters()]
    hook = made.model.tokens.register_hook(lambda g: g * float("nan"))
    made.step(x, x, 1e-3)
    hook.remove()
    same = all(torch.equal(a, b) for a, b in zip(before, made.model.parameters(), strict=True))
    check("a NaN skips the step", same and made.bad.item() == 1, made.bad.item())


def decoding() -> None:
    for name in ("gpt2-tiny", "llama-tiny"):
        torch.manual_seed(3)
        on_cpu = models.build(name).eval()
        for p in on_cpu.parameters():
            torch.nn.init.normal_(p, 0.0, 0.2)
        with GPU:
            on_gpu = models.build(name).eval()
        on_gpu.load_state_dict(on_cpu.state_dict())
        prompts = [[5, 9, 200], [7], [1, 2, 3, 4, 5, 6]]
        a, b = (list(tokens(m, prompts, 150)) for m in (on_cpu, on_gpu))
        equal = sum(x == y for x, y in zip(a, b, strict=True))
        check(f"{name}: greedy as on a CPU", equal == len(a), f"{equal} of {len(a)}")
        how = Sampling(temperature=0.9, top_k=40, top_p=0.9, min_p=0.01)
        first, again, other = (
            list(tokens(on_gpu, prompts, 60, how, seed=seed)) for seed in (1, 1, 2)
        )
        check(f"{name}: a seed's draws", first == again and first != other, first[:2])


def predicted() -> None:
    for policy in ("none", "light", "selective", "full"):
        settings = Settings(model="gpt2-124m", batch=8, recompute=policy, precision="bfloat16")
        alone = Processes("none", 0, 1, GPU)

        def build(settings: Settings = settings, alone: Processes = alone) -> Any:
            made = Trainer(settings, 50257, alone)
            x = torch.zeros(8, 1024, dtype=torch.int64, device=GPU)
            return made, lambda: made.step(x, x, 1e-3)

        guess = memory.predict(build)
        made, step = build()
        step()
        _, real = memory.measure(step, made.held(), GPU)
        ratio = guess.peak / real.peak
        facts = f"predicted {guess.peak / 2**30:.2f}, measured {real.peak / 2**30:.2f} GiB"
        check(f"memory, recompute {policy}", 0.85 < ratio < 1.15, facts)
        del made, step


def continued() -> None:
    """A run that is stopped half way and continues, beside one that is not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "text"
        text.write_text("".join(random.choices("abcdef \n", k=20000)))
        for compiled in ("none", "graph"):
            settings = Settings(data=str(text), steps=24, batch=4, save_every=12, dropout=0.1,
                                eval_every=10, compile=compiled, deterministic=True,
                                precision="bfloat16")  # fmt: skip
            run.begin(settings, folder / compiled, GPU)
            last = checkpoint.committed(folder / compiled)[-1]
            files = [checkpoint.MODEL, checkpoint.OPTIMIZER]
            before = [(last / f).read_bytes() for f in files]
            shutil.rmtree(last)
            run.resume(folder / compiled, {}, GPU)
            same = [(last / f).read_bytes() for f in files] == before
            check(f"continues bit for bit, {compiled}", same, "")
    torch.use_deterministic_algorithms(False)


def profiled() -> None:
    work = workload.make("train", MODEL, 4, 0, GPU)
    found = trace.record(work.step, GPU)
    total = sum(k.us for k in found.kernels)
    unknown = sum(k.us for k in found.kernels if k.operator == "unknown")
    for row in found.operators()[:24]:
        print(f"      {row.us / total:6.1%} {row.count:5} {row.operator}")
    check("kernels have operators", found.on_gpu and unknown < 0.02 * total, unknown / total)
    drawn = flame.frames(found).us
    check("the flame graph is of all kernels", abs(drawn / total - 1) < 0.05, drawn / total)


def final_losses(steps: int = 500) -> None:
    """Mean loss of the last 50 steps, three seeds."""
    data = dataset.open_(None)
    config = models.preset("gpt2-mini", dropout=0.0, context=128)
    found: dict[str, list[float]] = {"PyTorch": [], "ours": [], "ours, bfloat16": []}
    for seed in range(3):
        order = dataset.Order(data.train, 128, seed)
        for name in found:
            torch.manual_seed(seed)
            precision = "bfloat16" if "bfloat16" in name else "autocast"
            s = Settings(model="gpt2-mini", context=128, dropout=0.0, batch=16, seed=seed,
                         precision=precision)  # fmt: skip
            trainer = Trainer(s, 256, Processes("none", 0, 1, GPU))
            with GPU:
                plain = PlainGPT2(config)
            optimizer = torch.optim.AdamW(plain.parameters(), 1e-3, (0.9, 0.99), fused=True)
            last = []
            for i in range(steps):
                lr = 1e-3 * schedule.rate(i, steps, 50, "cosine")
                x, y = (t.to(GPU) for t in order.batch(i * 16, 16))
                if name != "PyTorch":
                    last.append(trainer.step(x, y, lr)[0])
                    continue
                optimizer.param_groups[0]["lr"] = lr
                with torch.autocast("cuda", torch.bfloat16):
                    loss = plain(x, y)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                last.append(loss.detach())
            found[name].append(torch.stack(last[-50:]).mean().item())
    spread = max(found["PyTorch"]) - min(found["PyTorch"])
    middle = statistics.mean(found["PyTorch"])
    for name in ("ours", "ours, bfloat16"):
        off = abs(statistics.mean(found[name]) - middle)
        check(
            f"loss after {steps} steps, {name}",
            off <= spread,
            f"{found[name]}, spread {spread:.4f}",
        )
    print("PyTorch", found["PyTorch"])


def main() -> int:
    parts = (training, bad_steps, decoding, continued, profiled, predicted, compiled, final_losses)
    for part in parts:
        try:
            part()
        except Exception as e:  # noqa: BLE001 - the other parts are looked at all the same
            traceback.print_exc()
            check(part.__name__, False, f"{type(e).__name__}: {e}")
    print("wrong:", wrong or "nothing")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
