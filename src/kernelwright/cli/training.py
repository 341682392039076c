"""Commands that train models and generate text with them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.support.errors import GOOD, UsageError

from .options import Json, printing

Text = str | None
Int = int | None
Float = float | None
Device = Annotated[Text, typer.Option(help="cuda or cpu (default: cuda if there is a GPU).")]
Threads = Annotated[Int, typer.Option(help="CPU threads (default: PyTorch's choice).")]


def train(
    data: Annotated[
        Text,
        typer.Option(
            help="A text file, a folder of texts, a URL, or token shards of this library, llm.c or "
            "nanoGPT (default: the sources of Python's standard library)."
        ),
    ] = None,
    tokenizer: Annotated[
        Text,
        typer.Option(
            help="bytes (default), chars, bpe (trained on the data), or a folder with GPT-2's "
            "vocab.json and merges.txt, or a tokenizer.json."
        ),
    ] = None,
    vocabulary: Annotated[
        Int, typer.Option(help="Vocabulary size of a BPE trained on the data.")
    ] = None,
    model: Annotated[
        Text, typer.Option(help="A preset: gpt2-tiny (default), gpt2-124m, llama-124m, ...")
    ] = None,
    context: Annotated[Int, typer.Option(help="Tokens per sequence.")] = None,
    dropout: Annotated[
        Float, typer.Option(help="Dropout probability (default: the model's).")
    ] = None,
    steps: Annotated[Int, typer.Option(help="Number of optimizer steps.")] = None,
    batch: Annotated[Int, typer.Option(help="Sequences per step, over all processes.")] = None,
    micro: Annotated[
        Int,
        typer.Option(help="Sequences per forward pass (micro-batch); gradients are accumulated."),
    ] = None,
    lr: Annotated[Float, typer.Option(help="Maximum learning rate.")] = None,
    schedule: Annotated[
        Text, typer.Option(help="Learning rate schedule: cosine, wsd or constant.")
    ] = None,
    warm_up: Annotated[Int, typer.Option(help="Warmup steps of the learning rate.")] = None,
    weight_decay: Annotated[
        Float, typer.Option(help="Weight decay of the weight matrices.")
    ] = None,
    beta2: Annotated[Float, typer.Option(help="AdamW's beta2.")] = None,
    clip: Annotated[
        Float, typer.Option(help="Maximum norm of the gradients (0: no clipping).")
    ] = None,
    precision: Annotated[
        Text,
        typer.Option(
            help="float32, autocast (products in bfloat16), or bfloat16 (parameters too, with "
            "float32 copies in the optimizer)."
        ),
    ] = None,
    compile: Annotated[
        Text, typer.Option(help="none, block or model (torch.compile), or graph (a CUDA graph).")
    ] = None,
    recompute: Annotated[
        Text,
        typer.Option(
            help="Activation checkpointing: none, light, selective or full "
            "(default: light on a GPU, none on a CPU and under torch.compile)."
        ),
    ] = None,
    parallel: Annotated[Text, typer.Option(help="Under torchrun: ddp or fsdp.")] = None,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic", help="Raise an error for operations that are not deterministic."
        ),
    ] = False,
    seed: Annotated[
        Int, typer.Option(help="Random seed of the initial weights, the data order and dropout.")
    ] = None,
    save_every: Annotated[Int, typer.Option(help="Steps between checkpoints.")] = None,
    keep: Annotated[Int, typer.Option(help="Number of checkpoints to keep.")] = None,
    eval_every: Annotated[Int, typer.Option(help="Steps between validations.")] = None,
    eval_batches: Annotated[Int, typer.Option(help="Batches per validation.")] = None,
    max_bad_steps: Annotated[
        Int, typer.Option(help="Stop after this many steps with gradients that are not finite.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder (default: runs/N).")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Continue a run from its newest checkpoint, or from a given checkpoint."),
    ] = None,
    threads: Threads = None,
    device: Device = None,
    as_json: Json = False,
) -> int:
    """Train a GPT-2 or Llama model on text, on a CPU or GPU.

    Under torchrun, it trains on several GPUs or machines. The run's folder contains log.jsonl,
    checkpoints/, model/ (a Hugging Face checkpoint), samples.txt and loss.svg. --resume
    continues an interrupted run, bit for bit with --deterministic.

    \b
    Examples:
      kernelwright train
      kernelwright train --data shakespeare.txt --tokenizer chars --steps 2000
      kernelwright train --data tokens/ --model gpt2-124m --batch 512 --micro 32
      kernelwright train --resume runs/1 --steps 4000
      torchrun --nproc-per-node 2 -m kernelwright train --parallel fsdp
    """
    given: dict[str, Any] = {
        "data": data, "tokenizer": tokenizer, "vocabulary": vocabulary, "model": model,
        "context": context, "dropout": dropout, "steps": steps, "batch": batch, "micro": micro,
        "lr": lr, "schedule": schedule, "warm_up": warm_up, "weight_decay": weight_decay,
        "beta2": beta2, "clip": clip, "precision": precision, "compile": compile,
        "recompute": recompute, "parallel": parallel, "deterministic": deterministic or None,
        "seed": seed, "save_every": save_every, "keep": keep, "eval_every": eval_every,
        "eval_batches": eval_batches, "max_bad_steps": max_bad_steps,
    }  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    with printing(as_json) as console:
        if out is not None and resume is not None:
            raise UsageError("--out: a resumed run continues in its own folder; omit it")
        where = prepare(device, threads, deterministic)
        from kernelwright.train import results, run
        from kernelwright.train.settings import Settings

        from .render.training import Display

        with Display(console) as display:
            if resume is not None:
                result = run.resume(resume, given, where, display)
            else:
                result = run.begin(Settings(**given), out or _free(), where, display)
            first = os.environ.get("RANK", "0") == "0"
            if as_json and first:
                console.emit(result)
            elif first:
                display.finished(result, result.folder / results.PICTURE)
    return GOOD


def generate(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="A training run, one of its checkpoints, or a Hugging Face model.",
        ),
    ],
    prompts: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT", help="Texts to continue (default: a new line)."),
    ] = None,
    tokens: Annotated[int, typer.Option(help="New tokens per prompt.")] = 200,
    temperature: Annotated[
        float, typer.Option(help="Sampling temperature (0: always the most likely token).")
    ] = 0.8,
    top_k: Annotated[
        int, typer.Option(help="Sample from the k most likely tokens (0: from all).")
    ] = 0,
    top_p: Annotated[
        float,
        typer.Option(help="Sample from the most likely tokens whose probabilities reach this sum."),
    ] = 1.0,
    min_p: Annotated[
        float,
        typer.Option(
            help="Sample from tokens with at least this share of the largest probability."
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Random seed of sampling.")] = 0,
    precision: Annotated[
        str, typer.Option(help="float32 or bfloat16 (default: bfloat16 on a GPU).")
    ] = "",
    threads: Threads = None,
    device: Device = None,
    as_json: Json = False,
) -> int:
    """Generate text with a trained model.

    Text is printed as it is generated. Several prompts are processed as one batch and printed
    one after the other.

    \b
    Examples:
      kernelwright generate runs/1
      kernelwright generate runs/1 "def main(" "class " --tokens 300 --top-p 0.9
      kernelwright generate path/to/gpt2 "Once upon a time" --temperature 0
    """
    with printing(as_json) as console:
        where = prepare(device, threads, False)
        from kernelwright.infer import folder as folders
        from kernelwright.infer import generate as module
        from kernelwright.infer.sampling import Sampling

        how = Sampling(temperature, top_k, top_p, min_p)
        texts = prompts or ["\n"]
        model, tokenizer = folders.load(folder, where, precision)
        written = list(texts)
        if len(texts) == 1 and not as_json:
            console.print(texts[0], end="", markup=False, soft_wrap=True)
        for parts in module.texts(model, tokenizer, texts, tokens, how, seed):
            written = [text + part for text, part in zip(written, parts, strict=True)]
            if len(texts) == 1 and not as_json:
                console.print(parts[0], end="", markup=False, soft_wrap=True)
        if as_json:
            console.emit(written)
        elif len(texts) == 1:
            console.print()
        else:
            for i, text in enumerate(written):
                console.print(f"--- {i + 1} ---", style="bold")
                console.print(text, markup=False, soft_wrap=True)
    return GOOD


def prepare(device: str | None, threads: int | None, deterministic: bool) -> Any:
    """The requested device; applies settings that must precede PyTorch's first computation."""
    if deterministic:  # cuBLAS reads it when it is first called
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    from kernelwright.machine import here

    if threads is not None:
        if threads < 1:
            raise UsageError(f"--threads: must be at least 1, is {threads}")
        torch.set_num_threads(threads)
    if device is None:
        return here()
    if device not in ("cpu", "cuda"):
        raise UsageError(f"--device: {device!r} is neither cpu nor cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device: PyTorch finds no GPU here; use --device cpu")
    return torch.device(device)


def _free() -> Path:
    """The first of runs/1, runs/2, ... that does not exist."""
    number = 1
    while Path("runs", str(number)).exists():
        number += 1
    return Path("runs", str(number))
