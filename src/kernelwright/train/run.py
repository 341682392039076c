"""A training run from its data to its last checkpoint."""

from __future__ import annotations

import contextlib
import json
import math
import platform
import time
from pathlib import Path
from typing import Any

import torch

import kernelwright
from kernelwright.models import pretrained
from kernelwright.support import durable
from kernelwright.support.errors import WRONG, UsageError, UserError

from . import (
    checkpoint,
    dataset,
    log,
    memory,
    parallel,
    results,
    roof,
    schedule,
    selected,
    state,
)
from .events import Result, Silent, Start, Step, Watcher
from .memory import Memory
from .parallel import Processes
from .settings import Settings
from .trainer import Trainer

#: Steps whose losses are read together, because reading waits for the GPU.
_READ_EVERY = {"cpu": 1, "cuda": 10}
#: Settings that may differ when a run continues.
CHANGEABLE = (
    "steps", "save_every", "keep", "eval_every", "eval_batches", "max_bad_steps", "parallel",
    "micro", "recompute", "compile",
)  # fmt: skip


class BadSteps(UserError, RuntimeError):
    """Too many steps had gradients that are not finite."""

    exit_code = WRONG


def begin(
    settings: Settings, folder: Path, device: torch.device, watcher: Watcher | None = None
) -> Result:
    """Train from new weights.

    Args:
        folder: the run's folder; must be empty or not exist.

    Raises:
        UserError: the settings do not fit together or with the data, the folder is not empty, a
            file cannot be written, or too many gradients were not finite.
    """
    with parallel.joined(settings.parallel, device) as processes:
        taken = processes.agree(folder.is_dir() and any(folder.iterdir()))
        if taken:
            raise UsageError(
                f"out: {folder} is not empty; continue that run with --resume {folder}, or give "
                "another folder"
            )
        return _run(settings, folder, processes, watcher, None)


def resume(
    path: Path, changes: dict[str, Any], device: torch.device, watcher: Watcher | None = None
) -> Result:
    """Continue a run from its newest checkpoint, or from the checkpoint `path`.

    Args:
        changes: settings that differ; only those in CHANGEABLE.

    Raises:
        UserError: see `begin`; also if the checkpoint is damaged or does not fit the data.
    """
    for name in changes:
        if name not in CHANGEABLE:
            raise UsageError(
                f"{name}: cannot change when a run continues; only {', '.join(CHANGEABLE)} can"
            )
    source = checkpoint.find(path)
    saved = checkpoint.check(source)
    settings = Settings(**{**saved["settings"], "parallel": "none", **changes})
    with parallel.joined(settings.parallel, device) as processes:
        folder = source.parent.parent
        return _run(settings, folder, processes, watcher, (source, saved))


def _run(
    settings: Settings,
    folder: Path,
    processes: Processes,
    watcher: Watcher | None,
    saved: tuple[Path, dict[str, Any]] | None,
) -> Result:
    """The run, with deterministic algorithms if it asks for them, and afterwards with the process's
    own choice of algorithms."""
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    if settings.deterministic:
        torch.use_deterministic_algorithms(True)
    try:
        return _Run(settings, folder, processes, watcher or Silent(), saved).go()
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


class _Run:
    def __init__(
        self,
        settings: Settings,
        folder: Path,
        processes: Processes,
        watcher: Watcher,
        saved: tuple[Path, dict[str, Any]] | None,
    ):
        self.begun = time.perf_counter()
        self.settings, self.folder, self.processes = settings, folder, processes
        self.watcher = watcher if processes.first else Silent()
        s = settings
        self.data = dataset.open_(s.data, s.tokenizer, s.vocabulary, self.watcher.said)
        self.trainer = Trainer(s, self.data.vocabulary, processes)
        self.config = self.trainer.model.config
        self.order = dataset.Order(self.data.train, self.config.context, s.seed)
        self.held_out = _held_out(self.data, self.config.context)
        self.saver: checkpoint.Saver | None = None
        self.log: log.Log | None = None
        self.notes: list[str] = []
        self.rungs: selected.Rungs = {}
        self.rungs_before: selected.Rungs = {}
        self.step = self.bad_before = log_bytes = 0
        if saved is not None:
            log_bytes = self._restore(*saved)
        if processes.first:
            folder.mkdir(parents=True, exist_ok=True)
            self.saver = checkpoint.Saver(folder, s.keep)
            self.log = log.Log(folder, log_bytes)
        self.loss = math.nan
        self.last_validation: float | None = None
        self.measured: Memory | None = None
        self._pending: list[tuple[int, float, torch.Tensor, torch.Tensor]] = []
        self._since = (0.0, 0)

    def go(self) -> Result:
        start = self._start()
        self._since = time.perf_counter(), self.step
        while self.step < self.settings.steps:
            self._take()
            if self.step % _READ_EVERY[self.processes.device.type] == 0:
                self._read(start)
            if self._due(self.settings.eval_every):
                self._read(start)
                self._evaluate()
            if self._due(self.settings.save_every) and self.step < self.settings.steps:
                self._read(start)
                self._save()
        self._read(start)
        return self._finish()

    # before the first step

    def _start(self) -> Start:
        s, p = self.settings, self.processes
        states = state.random_states(p.device)
        rate = roof.products(p.device, s.precision) * p.count if p.first else 0.0
        predicted = self._predict() if p.first else None
        state.set_random_states(states, p.device)  # as before measuring and predicting
        differ = selected.changes(self.rungs_before, self.rungs) if self.rungs_before else []
        if differ and p.first:
            self.notes.append(f"continues, but with other rungs: {', '.join(differ)}")
        if self.held_out is None:
            self.notes.append("too few tokens are held out to validate on")
        start = Start(
            settings=s,
            folder=self.folder,
            data=self.data.name,
            train_tokens=sum(len(x.tokens) for x in self.data.train),
            vocabulary=self.data.vocabulary,
            parameters=sum(x.numel() for x in self.trainer.model.parameters()),
            processes=p.count,
            device=p.device.type,
            first=self.step,
            predicted=None if p.kind == "fsdp" else predicted,
            roof=rate,
            of_token=roof.of_token(self.trainer.model),
            notes=tuple(self.notes),
        )
        self.watcher.started(start)
        if self.log is not None and not self.step:
            self.log.write("start", settings=s.as_json(), data=self.data.name,
                           parameters=start.parameters)  # fmt: skip
        return start

    def _predict(self) -> Memory:
        """Predict a step's memory on tensors without storage; record which rungs it dispatches."""
        s, device, vocabulary = self.settings, self.processes.device, self.data.vocabulary
        alone = Processes("none", 0, 1, device)
        micro, _ = s.micro_batch(self.processes.count)
        plain = Settings(
            **{**s.as_json(), "compile": "none", "recompute": self.trainer.recompute,
               "batch": micro, "micro": micro}
        )  # fmt: skip
        noted = selected.Selected()

        def build() -> tuple[Any, Any]:
            trainer = Trainer(plain, vocabulary, alone)
            tokens = torch.zeros(micro, self.config.context, dtype=torch.int64, device=device)

            def step() -> None:
                # every step dispatches the same rungs
                with contextlib.nullcontext() if noted.calls else noted:
                    trainer.step(tokens, tokens, s.lr)

            return trainer, step

        predicted = memory.predict(build)
        self.rungs = noted.rungs()
        if s.deterministic:
            noted.check()
        return predicted

    # steps

    def _take(self) -> None:
        s = self.settings
        lr = s.lr * schedule.rate(self.step, s.steps, s.warm_up, s.schedule)
        inputs, targets = self._batch(self.order, self.step * s.batch, s.batch)
        if self.measured is None and self.step > 0:
            (loss, norm), self.measured = memory.measure(
                lambda: self.trainer.step(inputs, targets, lr),
                self.trainer.held(),
                self.processes.device,
            )
        else:
            loss, norm = self.trainer.step(inputs, targets, lr)
        self.step += 1
        self._pending.append((self.step, lr, loss, norm))

    def _batch(self, order: dataset.Order, first: int, count: int) -> Any:
        """This process's part of `count` sequences, on the device."""
        share = count // self.processes.count
        both = order.batch(first + self.processes.rank * share, share)
        device = self.processes.device
        if device.type == "cpu":
            return both
        return tuple(t.pin_memory().to(device, non_blocking=True) for t in both)

    def _read(self, start: Start) -> None:
        """Read the losses of the steps since the last call, and report them."""
        if not self._pending:
            return
        losses = self.processes.mean(torch.stack([loss for _, _, loss, _ in self._pending]))
        norms = torch.stack([norm.float() for *_, norm in self._pending])
        both = torch.stack([losses, norms]).tolist()
        bad = self.bad_before + int(self.trainer.bad.item())
        now = time.perf_counter()
        steps = self.step - self._since[1]
        per_s = steps * self.settings.batch * self.config.context / (now - self._since[0])
        for (number, lr, *_), loss, norm in zip(self._pending, *both, strict=True):
            share = per_s * start.of_token / start.roof if start.roof else 0.0
            self.watcher.stepped(Step(number, loss, norm, lr, bad, per_s, share))
            if self.log is not None:
                self.log.write("step", step=number, loss=_finite(loss), norm=_finite(norm), lr=lr,
                               bad=bad, tokens_per_s=round(per_s))  # fmt: skip
        self._pending.clear()
        self.loss = both[0][-1]
        self._since = now, self.step
        if bad >= self.settings.max_bad_steps:
            self._save(background=False)
            raise BadSteps(
                f"{bad} steps had gradients that are not finite and were skipped "
                f"(max_bad_steps {self.settings.max_bad_steps}); the state is saved in "
                f"{self.folder}. A smaller --lr, or --clip, may help"
            )

    def _due(self, every: int) -> bool:
        return bool(every) and self.step % every == 0

    @torch.no_grad()
    def _evaluate(self) -> None:
        if self.held_out is None:
            return
        s, model = self.settings, self.trainer.model
        model.eval()
        total = torch.zeros((), device=self.processes.device)
        for i in range(s.eval_batches):
            inputs, targets = self._batch(self.held_out, i * s.batch, s.batch)
            parts = list(zip(inputs.split(self.trainer.micro), targets.split(self.trainer.micro),
                             strict=True))  # fmt: skip
            for x_BT, y_BT in parts:
                total += self.trainer.loss(x_BT, y_BT) / (len(parts) * s.eval_batches)
        model.train()
        parallel.settle(self.trainer.called, self.processes)
        self.last_validation = float(self.processes.mean(total))
        self.watcher.evaluated(self.step, self.last_validation)
        if self.log is not None:
            self.log.write("validation", step=self.step, loss=_finite(self.last_validation))
        self._since = time.perf_counter(), self.step

    # checkpoints

    def _save(self, background: bool = True) -> None:
        if self.log is not None:
            self.log.write("checkpoint", step=self.step)
        randoms = self.processes.gather(state.random_states(self.processes.device))
        document = {
            "format": 1,
            "step": self.step,
            "settings": self.settings.as_json(),
            "data": {"name": self.data.name, "fingerprint": self.data.fingerprint()},
            "random": randoms,
            "bad": self.bad_before + int(self.trainer.bad.item()),
            "log_bytes": self.log.position() if self.log is not None else 0,
            "rungs": self.rungs,
            "environment": self._environment(),
        }
        files = {
            checkpoint.STATE: json.dumps(document, indent=1).encode(),
            pretrained.CONFIG: pretrained.document(self.config),
            **(self.data.tokenizer.files() if self.data.tokenizer else {}),
        }
        if self.processes.kind == "fsdp":
            self._save_shards(files)
        elif self.saver is not None:
            weights = pretrained.theirs(self.config, self.trainer.model.state_dict())
            tensors = {
                checkpoint.MODEL: state.on_cpu(weights),
                checkpoint.OPTIMIZER: state.on_cpu(state.optimizer_tensors(self.trainer)),
            }
            snapshot = checkpoint.Snapshot(self.step, tensors, files)
            self.saver.save(snapshot, background=background)
        self.watcher.saved(self.step)
        self._since = time.perf_counter(), self.step

    def _save_shards(self, files: dict[str, bytes]) -> None:
        """Every process writes its shards; the first one commits the checkpoint."""
        aside = self.processes.agree(self.saver.begin(self.step) if self.saver else None)
        state.save_shards(self.trainer, aside)
        self.processes.gather(None)  # wait until all have written
        if self.saver is not None:
            sums = {n: durable.write(aside / n, [c]) for n, c in files.items()}
            shards = [p for p in (aside / checkpoint.SHARDS).rglob("*") if p.is_file()]
            sums |= {str(p.relative_to(aside)): durable.sha256(p) for p in shards}
            self.saver.commit(self.step, aside, sums)

    def _restore(self, path: Path, saved: dict[str, Any]) -> int:
        if saved["data"]["fingerprint"] != self.data.fingerprint():
            raise UsageError(
                f"data: the tokens of {self.data.name} are not those that {path} was trained on"
            )
        state.restore(self.trainer, path)
        randoms = saved["random"]
        self.step, self.bad_before = saved["step"], saved["bad"]
        self.rungs_before = saved["rungs"]
        then, now = saved["environment"], self._environment()
        if len(randoms) == self.processes.count:
            state.set_random_states(randoms[self.processes.rank], self.processes.device)
        differ = [f"{k} {then.get(k)} to {now[k]}" for k in now if then.get(k) != now[k]]
        if differ:
            self.notes.append(f"continues, but not bit for bit: {', '.join(differ)}")
        return saved["log_bytes"]

    def _environment(self) -> dict[str, Any]:
        device = self.processes.device
        gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
        return {
            "kernelwright": kernelwright.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "gpu": gpu,
            "threads": torch.get_num_threads(),
            "processes": self.processes.count,
            "parallel": self.processes.kind,
        }

    # at the end

    def _finish(self) -> Result:
        if not self._due(self.settings.eval_every):
            self._evaluate()
        self._save(background=False)
        weights = state.whole(self.trainer)
        samples: tuple[str, ...] = ()
        if self.saver is not None and self.log is not None:
            self.saver.finish()
            self.log.close()
            self.watcher.said("sampling")
            samples = results.write(
                self.folder, self.config, weights, self.data.tokenizer, self.processes.device,
                self.settings.seed,
            )  # fmt: skip
        seconds = time.perf_counter() - self.begun
        return Result(
            self.folder, self.step, self.loss, self.last_validation, self.measured, samples, seconds
        )


def _held_out(data: dataset.Dataset, context: int) -> dataset.Order | None:
    fits = any(len(s.tokens) > context for s in data.validation)
    return dataset.Order(data.validation, context, 0) if fits else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
