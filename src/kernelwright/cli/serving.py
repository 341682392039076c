"""Commands that serve a model, and measure how it is served."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.support.errors import GOOD, UsageError

from .options import Json, Wide, printing, waiting
from .training import Device, Threads, prepare

Served = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="A training run, one of its checkpoints, or a Hugging Face model."
    ),
]
Precision = Annotated[
    str, typer.Option(help="float32 or bfloat16 (default: bfloat16 on a GPU).", show_default=False)
]
Pages = Annotated[
    int, typer.Option(help="Pages of the cache, 16 tokens each (default: see --memory).")
]
Memory = Annotated[
    float,
    typer.Option(
        help="GiB of the cache (default: 80% of a GPU's free memory, 1 on a CPU; never more than "
        "all sequences can fill)."
    ),
]
StepTokens = Annotated[int, typer.Option(help="Tokens that a step computes at most.")]
Sequences = Annotated[int, typer.Option(help="Sequences that a step has at most.")]
Deterministic = Annotated[
    bool,
    typer.Option("--deterministic", help="Give an answer the same bits alone and in any batch."),
]
CacheDtype = Annotated[
    str, typer.Option(help="fp8 or int8 (default: the model's dtype).", show_default=False)
]


def serve(
    folder: Served,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 for other machines, too.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 for a free one.")] = 8000,
    api_key: Annotated[
        str,
        typer.Option(
            envvar="KW_API_KEY",
            help="What requests must present as 'Authorization: Bearer KEY'.",
            show_default=False,
        ),
    ] = "",
    precision: Precision = "",
    pages: Pages = 0,
    memory: Memory = 0.0,
    step_tokens: StepTokens = 512,
    sequences: Sequences = 64,
    deterministic: Deterministic = False,
    cache_dtype: CacheDtype = "",
    max_queue: Annotated[
        int, typer.Option(help="Requests that may wait for their first token; more get 429.")
    ] = 1024,
    timeout: Annotated[float, typer.Option(help="Seconds that an answer may take.")] = 600.0,
    threads: Threads = None,
    device: Device = None,
    as_json: Json = False,
) -> int:
    """Serve a model over HTTP, with OpenAI's interface.

    Routes: /v1/completions, /v1/chat/completions, /v1/models, /health, and /metrics for Prometheus.
    All requests share the model's steps and one cache of keys and values in pages. --json prints
    one document, with the address, as soon as requests are accepted.

    \b
    Examples:
      kernelwright serve runs/1
      kernelwright serve path/to/llama --port 8080 --memory 20
      KW_API_KEY=secret kernelwright serve path/to/qwen --host 0.0.0.0
    """
    with printing(as_json) as console:
        where = prepare(device, threads, False)
        module = _server()
        listening = module.listen(host, port)
        with waiting(f"loading {folder}", console):
            engine = _engine(pages, memory, step_tokens, sequences, deterministic, cache_dtype)
            settings = module.Settings(engine, precision, max_queue, timeout, api_key)
            loaded = module.load(folder, where, settings)

        def begun() -> None:
            from .render import serving

            url = serving.url(host, listening.getsockname()[1])
            if as_json:
                about = {"url": url, "model": loaded.model.name, "context": loaded.model.context}
                console.emit({**about, "pages": loaded.pages, "device": where})
                return
            for line in serving.welcome(loaded, where, url, bool(api_key)):
                console.print(line, markup=False, soft_wrap=True)

        module.run(loaded.app, listening, begun)
    return GOOD


def bench_serve(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            help="A training run, one of its checkpoints, or a Hugging Face model.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(help="Instead: a preset with random weights, llama-124m, ...", metavar="NAME"),
    ] = "",
    requests: Annotated[int, typer.Option(help="Number of requests of each run.")] = 256,
    lengths: Annotated[
        str,
        typer.Option(
            metavar="A:B",
            help="Tokens of a prompt, and of an answer: uniform from A to B (default: 100:1024; "
            "in proportion, if the model's context is shorter than 2048).",
            show_default=False,
        ),
    ] = "",
    rate: Annotated[
        list[float] | None,
        typer.Option(
            help="Requests that arrive per second. Repeatable (default: 25, 50, 75 and 100% of "
            "the throughput without waiting)."
        ),
    ] = None,
    first_limit: Annotated[
        float, typer.Option(help="Milliseconds to the first token that a good answer keeps.")
    ] = 500.0,
    token_limit: Annotated[
        float, typer.Option(help="Milliseconds between tokens that a good answer keeps.")
    ] = 50.0,
    seed: Annotated[int, typer.Option(help="Random seed of lengths, tokens and arrivals.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write serving.json and serving.svg into this folder."),
    ] = None,
    precision: Precision = "",
    pages: Pages = 0,
    memory: Memory = 0.0,
    step_tokens: StepTokens = 512,
    sequences: Sequences = 64,
    deterministic: Deterministic = False,
    cache_dtype: CacheDtype = "",
    threads: Threads = None,
    device: Device = None,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Benchmark serving a model: throughput, time to the first token, time per token.

    Random requests run through the engine in this process, without HTTP: first all at once, then
    arriving by a Poisson process at some rates. Goodput counts the requests per second that keep
    both limits. The roof is the least time of the run's steps: the bytes of the weights in every
    step and of the keys and values of every token, at the measured rate of the memory.

    \b
    Examples:
      kernelwright bench-serve runs/1 --requests 32
      kernelwright bench-serve --model llama-124m --lengths 16:64 --rate 1 --rate 4
      kernelwright bench-serve path/to/llama --out results --deterministic
    """
    with printing(as_json, wide) as console:
        where = prepare(device, threads, False)
        shortest, longest = _range(lengths)
        with waiting("loading", console) as say:
            from kernelwright.workbench.serving import result, serving

            from .render import serving as render

            limits = result.Limits(first_limit, token_limit)
            rates = tuple(rate or ())
            plan = serving.Plan(requests, shortest, longest, seed, rates, limits)
            settings = _engine(pages, memory, step_tokens, sequences, deterministic, cache_dtype)
            loaded = serving.load(folder, model, where, precision)
            name = str(folder) if folder else model
            measured = serving.bench(name, loaded, settings, plan, say)
        if as_json:
            console.emit(measured)
        else:
            console.print(render.benchmark(measured))
        if out is not None:
            for path in serving.write(measured, out):
                console.print(f"written: {path}", markup=False, soft_wrap=True)
    return GOOD


def _engine(
    pages: int,
    memory: float,
    step_tokens: int,
    sequences: int,
    deterministic: bool,
    cache_dtype: str,
) -> Any:
    from kernelwright.infer.serve.sizing import EngineSettings

    if not 0.0 <= memory < 1e6:
        raise UsageError(f"--memory: must be a number of GiB, is {memory}")
    size = int(memory * 2**30)
    return EngineSettings(pages, size, step_tokens, sequences, deterministic, cache_dtype)


def _range(lengths: str) -> tuple[int, int]:
    """(100, 1024) from "100:1024"; (0, 0) from ""."""
    if not lengths:
        return 0, 0
    parts = lengths.split(":")
    if len(parts) != 2 or not all(p.isdecimal() for p in parts):
        raise UsageError(f"--lengths: {lengths!r} is not of the form 100:1024")
    return int(parts[0]), int(parts[1])


def _server() -> Any:
    from kernelwright.support.extras import need

    for package in ("starlette", "uvicorn"):
        need(package, "serve", "a server")
    from kernelwright.infer.serve import server

    return server
