"""Generation for many requests at once over a cache in pages.

from kernelwright.infer.engine import Engine, Request
engine = Engine(model, pages=256)
engine.add(Request(prompt=[1, 2, 3], max_tokens=20))
while engine.busy:
    for output in engine.step():
        print(output.id, output.token)
"""

from __future__ import annotations

from .engine import Engine as Engine
from .engine import Statistics as Statistics
from .request import Output as Output
from .request import Request as Request
from .request import Score as Score
