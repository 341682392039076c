"""Results as tables, for the command line."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from kernelwright.contract import Case, Config, Ladder
from kernelwright.machine import datasheet
from kernelwright.support.words import counted
from kernelwright.workbench.listing import Listing
from kernelwright.workbench.records import metrics, records

from .tables import ALWAYS, Column, Note, Table

#: A ladder's columns, and the importance of each on a narrow terminal.
COLUMNS = {
    "rung": ALWAYS, "cold": 9, "95% interval": 3, "warm": 2, "host": 2, "rate": 4, "of roof": 8,
    "over below": 5, "over best peer": 6, "workspace": 1, "bound": 1,
}  # fmt: skip
LEFT = ("rung", "bound")  # columns with text
OPTIONAL = ("warm", "host", "workspace", "bound")  # shown only if some row has a value
SMALL = 1 << 20  # bytes of workspace up to which no column is shown
ROOFS = {
    "r1w0": "DRAM read",
    "r2w0": "DRAM, two reads",
    "r1w1": "DRAM copy",
    "r2w1": "DRAM, two reads per write",
    "r3w1": "DRAM, three reads per write",
    "r0w1": "DRAM fill",
    "matmul": "matrix product",
    "l2": "L2 read",
    "shared": "shared memory",
    "launch": "empty launch",
}
BYTES = ("memory", "l2", "shared_per_sm", "shared_per_block")
BACKENDS = {
    "torch": "white",
    "inductor": "yellow",
    "triton": "blue",
    "cuda": "green",
    "numba": "magenta",
    "peer": "red",
}


def listing(listed: Listing) -> Table:
    """The rungs of each operator, from the bottom of the ladder to its top."""
    where = f"this {listed.gpu}" if listed.here else f"an {listed.gpu} (CPU tensors: native)"
    table = Table(
        Column("operator", line="above"),
        Column("schema", line="above"),
        Column("rung"),
        Column("backend", 5),
        Column("here", 7),
        Column("proven", 8),
        Column("dispatched", 9),
        Column("idea", 1, wraps=True),
        notes=[
            f"dispatched: in how many of the operator's bench cases by default, on {where}; "
            "teaching: the first choice of none of the operator's cases, bench or other"
        ],
        spaced=True,
    )
    for op in listed.operators:
        for rung in op.rungs:
            gpu = rung.backend in ("triton", "cuda", "numba")
            proven = "proven" if rung.proven else "unproven" if gpu else ""
            table.add(
                Text(op.name, "bold"),
                Text(op.schema, "dim"),
                rung.name,
                Text(rung.backend, style=BACKENDS[rung.backend]),
                Text(rung.here, style="dim" if rung.here != "runs" else ""),
                Text(proven, style="dim" if proven == "unproven" else "green"),
                f"{len(rung.serves)} of {len(op.cases)}"
                if rung.serves
                else Text("teaching" if rung.teaching else "", "dim"),
                Text(rung.idea, "dim"),
            )
    return table


def config_text(config: Config) -> str:
    """A config as the text of a table cell."""
    return " ".join(f"{k}={v}" for k, v in config.items())


def bench_case(lad: Ladder, case: Case, result: Any) -> Table:
    """A ladder's table, printed as soon as its case is timed. For rungs that only a GPU can time,
    it shows the shipped record."""
    machine = result.environment["machine"]
    noise = result.noise.get((lad.name, case.id))
    timed = metrics.table(lad, machine, case.id, result.records, noise)
    skipped = {s.rung: s.why for s in result.skipped if (s.operator, s.case) == (lad.name, case.id)}
    beside = None
    if machine != records.REFERENCE_MACHINE and any(r.is_gpu for r in lad.rungs):
        shipped = records.load(records.REFERENCE_MACHINE, lad.name)
        beside = metrics.table(lad, records.REFERENCE_MACHINE, case.id, shipped)
    return ladder(timed, skipped, beside, noise)


def ladder(
    table: metrics.Table,
    skipped: dict[str, str],
    beside: metrics.Table | None = None,
    noise: float | None = None,
) -> Table:
    """The ladder table of one case.

    Args:
        skipped: the reasons why rungs or peers were not timed.
        beside: the same case on another machine, for comparison.
        noise: the A/A noise: the difference measured between two identical sides.
    """
    title = f"{table.ladder.name}  {table.case}"
    if table.label:
        title += f"  ({table.label})"
    names = [c for c in COLUMNS if c not in OPTIONAL or _any(table, c)]
    columns = [Column(name, COLUMNS[name], right=name not in LEFT) for name in names]
    if beside:
        columns.append(Column(f"on {beside.machine}", 7, right=True))
    why_not = not all(row.timed for row in table.rows)
    if why_not:
        columns.append(Column("here", 0, wraps=True))
    out = Table(*columns, title=title)
    there = {r.name: r for r in beside.rows} if beside else {}
    for row in table.rows:
        cells = _cells(row, names)
        if beside:
            other = there.get(row.name)
            cells.append(_beside(other) if other else Text("no record", "dim"))
        if why_not:
            why = "" if row.timed else skipped.get(row.name) or row.status
            cells.append(Text(why.split("; timed on")[0], "dim"))
        out.add(*cells)
    notes: list[str] = []
    if beside:
        notes.append(f"on {beside.machine}: shipped record, cold time and share of its roof")
    if table.roof:
        rate = metrics.rate(table.roof.gbps)
        notes.append(f"roof: {rate}, a kernel that streams the same bytes, in the same run")
    notes += [_product_note(r) for r in table.products if r.cold]
    if noise is not None:
        notes.append(metrics.too_noisy(noise) or f"A/A noise {100 * noise:.1f}%")
    absent = [f"{n.removeprefix('peer:')}: {w}" for n, w in skipped.items() if n[:5] == "peer:"]
    out.notes += notes + absent
    return out


def _product_note(roof: records.Record) -> str:
    """A measured matrix-product roof, and the value in the machine's datasheet."""
    kind, n = roof.rung.removeprefix("roof:"), roof.config["size"]
    rate = f"{roof.flops / records.median(roof.cold) / 1e6:.3g} TFLOP/s"
    note = f"{kind} matrix-product roof: {rate}, the library at {n} cubed in the same run"
    stated = datasheet.products(roof.machine, kind)
    return f"{note}; datasheet: {stated:.4g}" if stated else note


def _any(table: metrics.Table, column: str) -> bool:
    if column == "bound":
        return any(row.record and row.record.bound for row in table.rows)
    if column == "workspace":  # only for our rungs; the formula's temporaries are expected
        return any(r.rung and r.rung.is_ours and (r.workspace or 0) > SMALL for r in table.rows)
    return any(getattr(row, column) is not None for row in table.rows)


def _cells(row: metrics.Row, names: list[str]) -> list[Text]:
    cells = {
        "rung": Text(row.name.removeprefix("peer:"), BACKENDS[row.backend]),
        "cold": Text(metrics.microseconds(row.cold), "bold"),
        "95% interval": Text(metrics.span(row.interval), "dim"),
        "warm": Text(metrics.microseconds(row.warm)),
        "host": Text(metrics.microseconds(row.host)),
        "rate": Text(row.rate),
        "of roof": Text(metrics.percent(row.of_roof), "bold"),
        "over below": Text(metrics.times(row.over_below)),
        "over best peer": Text(metrics.times(row.over_best)),
        "workspace": Text(metrics.size(row.workspace) if row.workspace else ""),
        "bound": Text(row.record.bound if row.record else ""),
    }
    return [cells[n] for n in names]


def _beside(row: metrics.Row) -> Text:
    if not row.timed:
        return Text(row.status, "dim")
    share = metrics.percent(row.of_roof)
    return Text(metrics.microseconds(row.cold) + (f", {share}" if share else ""), "cyan")


def bench_data(ladders: list[Ladder], result: Any) -> dict[str, Any]:
    """A bench run as data: metrics by ladder and case, what was skipped, the environment."""
    machine = result.environment["machine"]
    tables = [
        metrics.table(lad, machine, case, result.records, result.noise.get((lad.name, case)))
        for lad in ladders
        for case in metrics.timed_cases(lad, machine, result.records)
    ]
    return {
        "run": result.run,
        "ladders": [metrics.as_json(t) for t in tables],
        "noise": {f"{o} {c}": n for (o, c), n in result.noise.items()},
        "skipped": result.skipped,
        "environment": result.environment,
    }


def env(machine: Any) -> RenderableType:
    """Facts, backends and roofs of a machine."""
    works = {
        b: Text("works", "green") if why is None else Text(why)
        for b, why in machine.backends.items()
    }
    parts: list[RenderableType] = [
        facts("machine", machine.facts),
        Text(),
        facts("backends", works),
    ]
    if machine.calls:
        parts += [Text(), facts("operators", {"calls": Text(machine.calls)})]
    if machine.roofs:
        parts += [Text(), _roofs(machine.roofs)]
    return Group(*parts)


def env_data(machine: Any) -> dict[str, Any]:
    roofs = [
        {"roof": r.rung.removeprefix("roof:"), "case": r.case, "us": records.median(r.cold),
         "gbps": r.gbps, "tflops": r.flops / records.median(r.cold) / 1e6 or None}
        for r in machine.roofs
        if r.cold
    ]  # fmt: skip
    return {"facts": machine.facts, "backends": machine.backends, "calls": machine.calls,
            "run": machine.run, "roofs": roofs}  # fmt: skip


def _roofs(measured: list[records.Record]) -> Table:
    table = Table(
        Column("roof"),
        Column("case", 8),
        Column("time", 9, right=True),
        Column("reached", right=True),
        Column("why not", 5, wraps=True),
        title="measured roofs",
    )
    for r in measured:
        us = records.median(r.cold) if r.cold else None
        reached = metrics.rate(r.gbps)
        if r.flops and us:
            reached = f"{r.flops / us / 1e6:.3g} TFLOP/s"
        name = r.rung.removeprefix("roof:")
        table.add(ROOFS.get(name, name), r.case, metrics.microseconds(us), reached, r.why)
    return table


def facts(title: str, values: dict[str, Any]) -> Table:
    """Nested facts as an indented two-column table."""
    table = Table(Column("name"), Column("value", wraps=True), title=title, head=False)
    _facts(table, values, 0)
    return table


def _facts(table: Table, values: dict[str, Any], depth: int) -> None:
    for name, value in values.items():
        label = "  " * depth + name.replace("_", " ")
        if isinstance(value, dict):
            table.add(label, "")
            _facts(table, value, depth + 1)
        else:
            table.add(label, value if isinstance(value, Text) else _fact(name, value))


def _fact(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if name in BYTES or name[:2] in ("L1", "L2", "L3"):
        return metrics.size(value)
    if name == "peak_bandwidth":
        return metrics.rate(value / 1e9)
    return str(value)


def tuned(result: Any, path: Any) -> Table:
    """The rung and config tuned for each bucket, the gain, and how long tuning took."""
    tried = f"{len(result.tried)} timed in {result.seconds:.0f} s"
    table = Table(
        Column("bucket"),
        Column("rung", 8),
        Column("config", 3),
        Column("gain over the order", 5, right=True),
        title=result.operator,
        notes=[f"{tried}; mean gain {result.gain:.2f}x; {path}"],
    )
    for bucket, choice in sorted(result.buckets.items()):
        config = config_text(choice["configs"][choice["rung"]])
        table.add(bucket, choice["rung"], config, metrics.times(result.gains.get(bucket)))
    return table


def inspection(inspected: Any) -> Table:
    """The resources of an SM that a kernel uses, and its instructions."""
    r, o, i = inspected.resources, inspected.occupancy, inspected.instructions
    config = config_text(inspected.config)
    spilled = r["spill_stores"] + r["spill_loads"]
    widths = {
        f"global {kind}": ", ".join(f"{n} of {w} bits" for w, n in sorted(i[key].items())) or "none"
        for kind, key in (("loads", "global_loads"), ("stores", "global_stores"))
    }
    mix = {
        k.replace("_", " "): v for k, v in i.items() if isinstance(v, int) and v and k != "total"
    }
    special = {"special functions": " ".join(f"{k}:{n}" for k, n in i["special"].items())}
    return facts(
        f"{inspected.operator}.{inspected.rung}: {inspected.kernel} for {inspected.arch}",
        {
            "case": f"{inspected.case}  {config}",
            "launch": f"grid {inspected.grid}, {inspected.threads} threads, "
            f"cluster {inspected.cluster}",
            "registers": f"{r['registers']} per thread",
            "spills": f"{spilled} bytes" if spilled else "none",
            "shared memory": f"{r['static_shared'] + inspected.dynamic_shared} bytes per block",
            "occupancy": f"{100 * o['fraction']:.0f}%: {o['blocks']} blocks, {o['warps']} warps "
            f"per SM, limited by {o['limit']}",
            "instructions": f"{i['total']} in the binary",
            **widths,
            **mix,
            **(special if i["special"] else {}),
        },
    )


def ledger(account: Any) -> RenderableType:
    """Every GPU rung, where it is proven, and the problems found."""
    table = Table(
        Column("operator", line="above"),
        Column("rung"),
        Column("backend", 4),
        Column("proven on", 8),
        Column("dispatched on an H200", 6),
        Column("remark", 2),
    )
    for row in account.rows:
        proven = Text(", ".join(row.proven), "green")
        remark = "carried over: same machine code" if row.carried else ""
        if not row.proven:
            proven = Text("unproven", "yellow" if row.wanted else "dim")
            remark = f"an older source is proven on {', '.join(row.stale)}" if row.stale else ""
        many = counted(len(row.wanted), "bench case") if row.wanted else ""
        backend = Text(row.backend, BACKENDS[row.backend])
        operator = Text(row.operator, "bold")
        table.add(operator, row.rung, backend, proven, many, Text(remark, "dim"))
    problems = [Note(p, "red") for p in account.problems]
    said = f"{len(problems)} problems" if problems else "no problems"
    suites = [
        note
        for ran in account.suite
        for note in _suite(ran, account.known, account.changed.get(ran.commit))
    ]
    suites = suites or [Note("The tests have not been run on a GPU.", "")]
    calls = Note(f"Calls of operators: {account.calls}.", "")
    return Group(table, *suites, calls, *problems, Note(said, "bold"))


def _suite(ran: Any, known: dict[str, str], changed: int | None) -> list[Note]:
    """The last run of the tests on a machine, its failures, and how old it is."""
    what = {"all": "all tests", "check": "tools.gpu_check", "cover": "the tests of make test"}
    missing = f", without parts {', '.join(ran.missing)}" if ran.missing else ""
    counts = f"{ran.passed} passed, {ran.failed} failed, {ran.skipped} skipped"
    head = (
        f"Tests on {ran.machine}: {counts} in {ran.seconds:.0f} s, {ran.when} at "
        f"{ran.commit[:12]}, torch {ran.torch} ({what.get(ran.scope, ran.scope)}{missing})"
    )
    style = "red" if ran.failed else "yellow" if ran.missing else "green"
    since = "this checkout's git does not know that commit"
    if changed is not None:
        since = f"{counted(changed, 'file')} of kernels, dispatch and toolchain changed since"
    failures = (Note(f"  {n}: {known.get(n, 'no reason is known')}", "red") for n in ran.failures)
    return [Note(head, style), Note(f"  {since}", "yellow" if changed else ""), *failures]


def merged(merger: Any) -> Note:
    """The number of records that a merge added, skipped and dropped."""
    left = f", skipped {merger.stale} of other sources" if merger.stale else ""
    dropped = f"; dropped {merger.dropped} older ones, of other sources" if merger.dropped else ""
    return Note(f"merged {counted(merger.taken, 'record')}{left}{dropped}", "")
