"""Commands that serve a model, and measure how it is served."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.support.errors import GOOD, UsageError

from .options import printing, waiting
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
) -> int:
    """Serve a model over HTTP, with OpenAI's interface.

    Routes: /v1/completions, /v1/chat/completions, /v1/models, /health, and /metrics for Prometheus.
    All requests share the model's steps and one cache of keys and values in pages.

    \b
    Examples:
      kernelwright serve runs/1
      kernelwright serve path/to/llama --port 8080 --memory 20
      KW_API_KEY=secret kernelwright serve path/to/qwen --host 0.0.0.0
    """
    with printing(False) as console:
        where = prepare(device, threads, False)
        module = _server()
        listening = module.listen(host, port)
        with waiting(f"loading {folder}", console):
            settings = module.Settings(
                precision=precision,
                pages=pages,
                memory=_bytes(memory),
                step_tokens=step_tokens,
                sequences=sequences,
                deterministic=deterministic,
                cache_dtype=cache_dtype,
                max_queue=max_queue,
                timeout=timeout,
                api_key=api_key,
            )
            loaded = module.load(folder, where, settings)

        def begun() -> None:
            from .render import serving

            address = host, listening.getsockname()[1]
            for line in serving.welcome(loaded, where, address, bool(api_key)):
                console.print(line, markup=False, soft_wrap=True)

        module.run(loaded.app, listening, begun)
    return GOOD


def _server() -> Any:
    from kernelwright.support.extras import need

    for package in ("starlette", "uvicorn"):
        need(package, "serve", "a server")
    from kernelwright.infer.serve import server

    return server


def _bytes(gib: float) -> int:
    if not 0.0 <= gib < 1e6:
        raise UsageError(f"--memory: must be a number of GiB, is {gib}")
    return int(gib * 2**30)
