"""A report of made-up records of softmax, and how tests read it."""

import re
from html.parser import HTMLParser

from kernelwright.dispatch import ladder
from kernelwright.workbench.records.records import Record
from kernelwright.workbench.report import report
from support import served

MACHINE = "nvidia-h200"
CPU = "cpu-x86_64-4"
HOSTILE = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)>"


def made_up(machine=MACHINE, run="20260101T000000Z-0000"):
    """Records of softmax and its backward on three cases: each rung is faster than the one below,
    with a peer between them; the top rung was not run on the largest case."""
    found = []
    for name in ("softmax", "softmax.backward"):
        lad = ladder(name)
        cases = [c for c in lad.operator.cases if c.use == "bench"][:3]
        for case in cases:
            bytes_ = 2 * case.numel * case.dtype.itemsize
            roof = bytes_ / 4e6

            def record(rung, us, case=case, bytes_=bytes_, name=name, **more):
                cold = tuple(us * (1 + 0.002 * i) for i in range(12))
                return Record(
                    name, rung, case.id, machine, run, "pass", cold=cold, bytes=bytes_,
                    flops=5 * case.numel, **more,
                )  # fmt: skip

            found.append(record("roof:r1w1", roof))
            found.append(record("peer:liger", roof * 1.3, host=(20.0,)))
            for i, rung in enumerate(lad.rungs):
                us = roof * (1.05 + (len(lad.rungs) - i) / 2)
                config = served.config(lad, rung, case)
                found.append(
                    record(rung.name, us, warm=(us / 2,), bound="bandwidth", config=config)
                )
        last = lad.rungs[-1].name
        found = [r for r in found if (r.rung, r.case) != (last, cases[-1].id)]
        found.append(
            Record(name, last, cases[-1].id, machine, run, "unsupported", why=f"too long {HOSTILE}")
        )
        found.append(Record(name, last, "*", machine, run, "pass", why="12 cases passed"))
    return found


def measured_on_a_cpu():
    """Records of PyTorch's rungs, as `bench softmax --record` writes them without a GPU."""
    lad = ladder("softmax")
    return [
        r for r in made_up(CPU, run="20260202T000000Z-0000")
        if r.operator == "softmax" and (r.rung.startswith("roof") or r.rung in lad.names)
        and not (r.rung in lad.names and lad.rung(r.rung).is_ours)
    ]  # fmt: skip


PACKED = re.compile(
    r'<details class="part" id="([^"]+)".*?<script type="text/plain">(.*?)</script>', re.S
)


def sections_of(page):
    """The expanded sections, by their anchors."""
    return {anchor: report.unpacked(text) for anchor, text in PACKED.findall(page)}


def expanded(page):
    """The page and everything that can be opened in it."""
    return PACKED.sub("", page) + "".join(sections_of(page).values())


class Reader(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, k, v or "") for k, v in attrs]

    def handle_data(self, data):
        self.text.append(data)
