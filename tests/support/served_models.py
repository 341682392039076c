"""Small random models in folders that a server can serve, and a server's app."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from kernelwright import models
from kernelwright.infer.serve import server
from kernelwright.infer.serve.sizing import EngineSettings
from kernelwright.models import tokenizer

TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
WORDS = ["the cat sat on the mat", "a dog ate the cat's hat", "höher, höher", "你好 👩‍👩‍👧"]
VOCABULARY = 290
ENDS = (7, 11)


def saved(folder: Path, *, seed: int = 0, chat: bool = True) -> Path:
    """A Llama with byte pairs; its vocabulary is padded, and it has two end tokens."""
    torch.manual_seed(seed)
    model = models.build(models.preset("llama-tiny", layers=1, vocabulary=VOCABULARY + 8)).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, 0.0, 0.2)
    models.save_pretrained(model, folder)
    tokenizer.save(tokenizer.BytePairs.trained(WORDS, VOCABULARY), folder)
    if chat:
        config = {"chat_template": TEMPLATE, "eos_token": "<|endoftext|>"}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ENDS}))
    return folder


def loaded(folder: Path, pages: int = 0, **settings) -> server.Loaded:
    """A server of the folder's model on the CPU."""
    return server.load(
        folder, torch.device("cpu"), server.Settings(EngineSettings(pages), **settings)
    )
