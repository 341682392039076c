"""Parameter lists of real models, used to time operators on lists of tensors."""

from __future__ import annotations

_LAYER = (
    (768,), (768,), (2304, 768), (2304,), (768, 768), (768,),
    (768,), (768,), (3072, 768), (3072,), (768, 3072), (768,),
)  # fmt: skip
#: GPT-2 124M: embeddings, then per layer norms, attention and MLP, then the last norm.
GPT2 = ((50257, 768), (1024, 768), *_LAYER * 12, (768,), (768,))
