"""Compares the engine with transformers' continuous batching: tokens per second of the same
requests with the same model, all requests at once.

The model has Qwen3-0.6B's sizes and random weights. Lengths of prompts and answers are uniform in
a range, as in the offline benchmarks of small servers; the end of the text is ignored.

    python -m benchmarks.continuous_batching --requests 256 -o DIRECTORY
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import kernelwright as kw
from kernelwright import models
from kernelwright.infer.engine import Engine, Request

SIZES = {
    "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 40960, "tie_word_embeddings": True,
}  # fmt: skip
TINY = SIZES | {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


@dataclass(frozen=True)
class Work:
    """A prompt and the number of tokens of its answer."""

    prompt: list[int]
    count: int


def drawn(requests: int, low: int, high: int, vocabulary: int, seed: int) -> list[Work]:
    """Requests with lengths that are uniform in a range."""
    rng = random.Random(seed)
    return [
        Work([rng.randrange(vocabulary) for _ in range(rng.randint(low, high))],
             rng.randint(low, high))
        for _ in range(requests)
    ]  # fmt: skip


def engine(model: Any, work: Sequence[Work], **settings: Any) -> Callable[[], list[list[int]]]:
    """Runs the requests in an engine of ours with a new cache."""
    pages = sum(-(-(len(w.prompt) + w.count) // 16) for w in work)

    def run() -> list[list[int]]:
        served = Engine(model, pages=pages, step_tokens=2048, sequences=256, **settings)
        answers = {served.add(Request(w.prompt, w.count)): list[int]() for w in work}
        while served.busy:
            for output in served.step():
                if output.token is not None:
                    answers[output.id].append(output.token)
        return list(answers.values())

    return run


def transformers(model: Any, name: str, work: Sequence[Work]) -> Callable[[], list[list[int]]]:
    """Runs the requests in transformers' continuous batching, with an attention of that name."""
    import transformers as hf

    def run() -> list[list[int]]:
        model.set_attn_implementation(name)
        # every request has its own number of tokens, so they are added one by one
        how = hf.GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
        answers: dict[str, list[int]] = {}
        with model.continuous_batching_context_manager(generation_config=how) as manager:
            names = [
                manager.add_request(w.prompt, request_id=str(i), max_new_tokens=w.count)
                for i, w in enumerate(work)
            ]
            while len(answers) < len(names):
                result = manager.get_result(timeout=1)
                if result is not None and result.is_finished():
                    answers[result.request_id] = list(result.generated_tokens)
        return [answers[name] for name in names]

    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--low", type=int, default=100)
    parser.add_argument("--high", type=int, default=1024)
    parser.add_argument("--only", default="", help="names of what is run, separated by commas")
    parser.add_argument("--tiny", action="store_true", help="a model for a CPU")
    parser.add_argument("-o", type=Path, help="a file for the result")
    asked = parser.parse_args()
    import transformers as hf

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(0)
    theirs = hf.AutoModelForCausalLM.from_config(hf.Qwen3Config(**(TINY if asked.tiny else SIZES)))
    theirs = theirs.to(device, dtype).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = models.from_pretrained(folder, device=device, dtype=dtype)
    work = drawn(asked.requests, asked.low, asked.high, theirs.config.vocab_size, seed=0)
    runs = {
        "engine": engine(ours, work),
        "engine, deterministic": engine(ours, work, deterministic=True),
        "transformers, kernelwright": transformers(theirs, kw.register_attention(), work),
        "transformers, sdpa": transformers(theirs, "sdpa", work),
    }
    tokens, rows = sum(w.count for w in work), []
    first: list[list[int]] = []
    for name, run in runs.items():
        if asked.only and name not in asked.only.split(";"):
            continue
        _warm_up(run, name)
        start = time.perf_counter()
        answers = run()
        seconds = time.perf_counter() - start
        first = first or answers
        wrong = sum(len(a) != w.count for a, w in zip(answers, work, strict=True))
        same = sum(a == b for a, b in zip(answers, first, strict=True)) / len(work)
        rows.append(
            {
                "name": name,
                "tokens_per_second": round(tokens / seconds, 1),
                "of_wrong_length": wrong,
                "same_answers": round(same, 3),
            }
        )
        print(rows[-1], flush=True)
    if asked.o is not None:
        about = {
            "device": str(device),
            "requests": asked.requests,
            "range": [asked.low, asked.high],
        }
        if device.type == "cuda":
            about["gpu"] = torch.cuda.get_device_name()
        asked.o.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    return 0


def _warm_up(run: Callable[[], object], name: str) -> None:
    """The first run compiles kernels."""
    start = time.perf_counter()
    run()
    print(f"{name}: first run {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
