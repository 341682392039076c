"""Figures that are derived from records."""

import io
import re

from rich.console import Console

from kernelwright.cli.render import results
from kernelwright.dispatch import ladder
from kernelwright.workbench.records import metrics
from kernelwright.workbench.records.records import Record


def timed(rung, cold):
    return Record("softmax", rung, "5x33-f32-dim=-1", "cpu", "run", "pass", cold=(cold,) * 5)


def printed(noise):
    records = [timed("manual", 2.0), timed("native", 1.0), timed("triton_row", 0.5)]
    table = metrics.table(ladder("softmax"), "cpu", "5x33-f32-dim=-1", records, noise)
    out = io.StringIO()
    Console(file=out, width=300).print(results.ladder(table, {}, None, noise))
    return out.getvalue()


def test_a_noisy_run_ranks_nothing():
    quiet, noisy = printed(0.02), printed(0.23)
    assert "A/A noise 2.0%" in quiet
    assert "500 ns" in noisy, noisy  # times are shown nevertheless
    factor = re.compile(r"\d\.\d\dx")
    assert factor.search(quiet) and not factor.search(noisy)
    assert "too noisy to rank: A/A noise 23%" in noisy
