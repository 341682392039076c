"""The command that shows which kernels and functions take the time of a step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.support.errors import GOOD

from .names import known
from .options import Json, Wide, printing, waiting
from .training import Device, Threads, prepare


def _checked(what: str) -> str:
    return what if what in ("train", "generate") else known(what)


def profile(
    what: Annotated[
        str,
        typer.Argument(
            metavar="train | generate | OP",
            help="A training step, a step of generation, or an operator.",
            callback=_checked,
        ),
    ] = "train",
    model: Annotated[str, typer.Option(help="Model preset, for train and generate.")] = "gpt2-tiny",
    batch: Annotated[int, typer.Option(min=1, help="Sequences.")] = 8,
    context: Annotated[
        int, typer.Option(min=0, help="Tokens per sequence (0: the model's context).")
    ] = 0,
    swap: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OP=RUNG",
            help="Compare step time and loss with and without this rung. Repeatable.",
        ),
    ] = None,
    ncu: Annotated[
        bool, typer.Option("--ncu", help="Read hardware counters with Nsight Compute.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the output files.")] = Path("profile"),
    threads: Threads = None,
    device: Device = None,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Profile a training step, a generation step or an operator.

    Prints the kernels with their number of launches, time and operator. Writes a trace for
    Perfetto, a flame graph of Python stacks (one HTML file) and the memory over time.

    \b
    Examples:
      kernelwright profile train --model gpt2-124m --batch 32
      kernelwright profile generate --model llama-124m --batch 1
      kernelwright profile train --swap add_layer_norm=triton_row
      kernelwright profile softmax --ncu
    """
    with printing(as_json, wide) as console:
        with waiting("preparing", console) as say:
            from kernelwright.workbench.profile import ncu as counters
            from kernelwright.workbench.profile import profile as module
            from kernelwright.workbench.profile import swap as swaps
            from kernelwright.workbench.profile import workload

            from .render import profiles

            pairs = [swaps.parsed(text) for text in swap or []]
            where = prepare(device, threads, False)

            def make() -> Any:
                return workload.make(what, model, batch, context, where)

            say("profiling")
            profiled = module.profile(make(), where, out)
            say("timing with the other rung")
            swapped = [swaps.measure(make, op, rung, where) for op, rung in pairs]
            say("running Nsight Compute")
            counted = counters.measure(what, model, batch, context) if ncu else []
        if as_json:
            console.emit({"profile": profiled, "swaps": swapped, "ncu": counted})
            return GOOD
        console.print(profiles.profile(profiled), profiles.operators(profiled))
        if counted:
            console.print(profiles.counters(counted))
        lines = [*profiles.files(profiled), *(x for s in swapped for x in profiles.swap(s))]
        for line in lines:
            console.print(line, markup=False, soft_wrap=True)
    return GOOD
