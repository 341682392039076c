"""PTX instructions as C++ that calls the emulator's runtime."""

from __future__ import annotations

import re
from collections.abc import Callable

_FORMATS = {"f16": "kHalf", "bf16": "kBfloat", "tf32": "kTf32", "e4m3": "kE4m3", "e5m2": "kE5m2",
            "s8": "kInt8", "u8": "kUint8", "f32": "kFloat", "s32": "kInt32"}  # fmt: skip
_DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}


class Refused(Exception):
    """An instruction that is not emulated."""


class Names:
    """The names of a statement: operands %0, %1, ... and its own registers."""

    def __init__(self, operands: int):
        self.operands = operands
        self.own: set[str] = set()

    def read(self, arg: str) -> str:
        """The bits of an operand, as a C++ expression."""
        return f"kw_u({self.place(arg)})"

    def address(self, arg: str) -> str:
        """That of an address in brackets: [x], [x + 16]."""
        inside = re.fullmatch(r"\[\s*([^\s+\]]+)\s*(?:\+\s*(\w+)\s*)?\]", arg)
        if not inside:
            raise ValueError(arg)
        return self.read(inside[1]) + (f" + {inside[2]}" if inside[2] else "")

    def write(self, arg: str, value: str) -> str:
        return "" if arg == "_" else f"kw_set({self.place(arg)}, {value});"

    def place(self, arg: str) -> str:
        if m := re.fullmatch(r"%(\d+)", arg):
            if int(m[1]) >= self.operands:
                raise ValueError(arg)
            return f"kw_{m[1]}"
        if arg in self.own:
            return f"kw_own_{arg.lstrip('%')}"
        if re.fullmatch(r"-?\d+|0[xX][0-9a-fA-F]+", arg):
            return arg
        if arg == "%%cluster_ctarank":
            return "kw_cluster_rank()"
        raise ValueError(arg)


def cpp(text: str, names: Names) -> str:
    """The instructions of a statement.

    Raises:
        Refused: one of them is not emulated.
    """
    statements: list[str] = []
    for piece in text.split(";"):
        one = piece.strip().lstrip("{}").strip()
        if not one:
            continue
        try:
            statements.append(_instruction(one, names))
        except (ValueError, KeyError, IndexError):
            raise Refused(" ".join(one.split())) from None
    return " ".join(statements)


def _instruction(one: str, names: Names) -> str:
    if declared := re.fullmatch(r"\.reg\s+\.\w+\s+(.*)", one, re.S):
        own = [n.strip() for n in declared[1].split(",")]
        if not all(re.fullmatch(r"%?\w+", n) for n in own):
            raise ValueError(one)
        names.own |= set(own)
        return "".join(f"unsigned long long kw_own_{n.lstrip('%')} = 0;" for n in own)
    guard = re.match(r"@(!?)(\S+)\s+", one)
    rest = one[guard.end() :] if guard else one
    name, operands = (*re.split(r"\s+", rest, maxsplit=1), "")[:2]
    args = _split(operands)
    for pattern, act in _ACTS:
        if m := re.fullmatch(pattern, name):
            body = act(names, m, args)
            return f"if ({guard[1]}{names.read(guard[2])}) {{ {body} }}" if guard else body
    raise ValueError(one)


def _split(text: str) -> list[str]:
    """Operands, between commas outside of brackets."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "[{") - (c in "]}")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip()]


def _vector(arg: str) -> list[str]:
    if not (arg.startswith("{") and arg.endswith("}")):
        return [arg]
    return _split(arg[1:-1])


def _hinted(args: list[str], m: re.Match[str], count: int) -> list[str]:
    """Without a cache policy, which has no effect here."""
    if len(args) != count + bool(m["hint"]):
        raise ValueError(args)
    return args[:count]


def _box(names: Names, arg: str) -> tuple[str, list[str]]:
    """A tensor map's address, and the first element of a box: [map, {x, y}]."""
    inside = re.fullmatch(r"\[\s*([^,]+?)\s*,\s*\{(.*)\}\s*\]", arg, re.S)
    if not inside:
        raise ValueError(arg)
    return names.read(inside[1]), [names.read(a) for a in _split(inside[2])]


def _call(function: str, *args: str) -> str:
    return f"{function}({', '.join(args)});"


def _with_box(names: Names, m: re.Match[str], box: str, call: Callable[[str], str]) -> str:
    map_, at = _box(names, box)
    if len(at) != int(m["dims"]):
        raise ValueError(box)
    return f"{{ const int kw_at[] = {{{', '.join(f'int({a})' for a in at)}}}; {call(map_)} }}"


def _tensor_load(names: Names, m: re.Match[str], args: list[str]) -> str:
    to, box, full, *blocks = _hinted(args, m, 3 + bool(m["many"]))
    mask = names.read(blocks[0]) if blocks else "0"

    def call(map_: str) -> str:
        return _call("kw_box_load", names.address(to), f"(const void *){map_}", "kw_at", m["dims"],
                     names.address(full), mask)  # fmt: skip

    return _with_box(names, m, box, call)


def _tensor_store(names: Names, m: re.Match[str], args: list[str]) -> str:
    box, source = _hinted(args, m, 2)
    how = [_REDUCTIONS[m["op"]]] if m.groupdict().get("op") else []

    def call(map_: str) -> str:
        return _call("kw_box_store", f"(const void *){map_}", names.address(source), "kw_at",
                     m["dims"], *how)  # fmt: skip

    return _with_box(names, m, box, call)


def _bulk_load(names: Names, m: re.Match[str], args: list[str]) -> str:
    to, source, size, full = _hinted(args, m, 4)
    return _call("kw_bulk_load", names.address(to), f"(const void *)({names.address(source)})",
                 names.read(size), names.address(full))  # fmt: skip


def _bulk_send(names: Names, m: re.Match[str], args: list[str]) -> str:
    to, source, size, full = args
    return _call("kw_bulk_send", names.address(to), names.address(source), names.read(size),
                 names.address(full))  # fmt: skip


def _bulk_store(names: Names, m: re.Match[str], args: list[str]) -> str:
    to, source, size = _hinted(args, m, 3)
    how = [_REDUCTIONS[m["op"]], _TYPES[m["type"]]] if m.groupdict().get("op") else []
    return _call("kw_bulk_store", f"(void *)({names.address(to)})", names.address(source),
                 names.read(size), *how)  # fmt: skip


def _product(names: Names, m: re.Match[str], args: list[str]) -> str:
    """wgmma.mma_async: D, A, B, whether D is added to, signs of A and B, majors of A and B."""
    a_type, b_type, d_type = m["a"], m["b"], m["d"]
    depth, whole = _DEPTH[a_type], a_type in ("s8", "u8")
    n = int(m["n"])
    integers = d_type == "s32"
    if int(m["k"]) != depth or _DEPTH[b_type] != depth or n % 8 or not 8 <= n <= 256:
        raise ValueError(args)
    if integers != whole or (b_type in ("s8", "u8")) != whole or (m["sat"] and not whole):
        raise ValueError(args)
    d, a, b, adds, *rest = args
    registers = _vector(a) if a.startswith("{") else []
    d_registers = _vector(d)
    half = d_type == "f16"
    if len(d_registers) != n // (4 if half else 2) or (registers and len(registers) != 4):
        raise ValueError(d)
    majors = ([] if registers else ["a"]) + ["b"] if depth == 16 else []
    signs = [] if whole else ["a", "b"]
    if len(rest) != len(signs) + len(majors):
        raise ValueError(args)
    negates = {s: f"int({names.read(v)}) < 0" for s, v in zip(signs, rest, strict=False)}
    turned = {s: f"!{names.read(v)}" for s, v in zip(majors, rest[len(signs) :], strict=True)}
    fields = [
        m["n"], m["k"], *(f"kw::emulator::{_FORMATS[t]}" for t in (d_type, a_type, b_type)),
        "true" if registers else "false", turned.get("a", "true"), turned.get("b", "true"),
        f"{names.read(adds)} != 0", negates.get("a", "false"), negates.get("b", "false"),
        "true" if m["sat"] else "false",
        f"{{{', '.join(f'unsigned({names.read(r)})' for r in registers)}}}",
        "0" if registers else names.read(a), names.read(b),
    ]  # fmt: skip
    places = ", ".join(f"kw_register({names.place(r)})" for r in d_registers)
    return (
        f"{{ const kw::emulator::Product kw_p = {{{', '.join(fields)}}}; "
        f"void *const kw_d[] = {{{places}}}; kw_product(&kw_p, kw_d); }}"
    )


def _matrices(names: Names, m: re.Match[str], args: list[str]) -> str:
    stores, count = m["what"] == "st", int(m["count"])
    row, vector = args if stores else reversed(args)
    registers = _vector(vector)
    if len(registers) != count:
        raise ValueError(args)
    held = ", ".join(f"unsigned({names.read(r)})" for r in registers) if stores else ""
    back = [] if stores else [names.write(r, f"kw_r[{i}]") for i, r in enumerate(registers)]
    flags = "true" if m["turned"] else "false", "true" if stores else "false"
    call = _call("kw_matrices", names.address(row), "kw_r", str(count), *flags)
    return f"{{ unsigned kw_r[{count}] = {{{held}}}; {call} {' '.join(back)} }}"


def _send(names: Names, m: re.Match[str], args: list[str]) -> str:
    to, value, barrier = args
    values, size = [names.read(v) for v in _vector(value)], int(m["bits"]) // 8
    if len(values) != int(m["count"] or 1):
        raise ValueError(args)
    return "".join(
        _call("kw_send", f"{names.address(to)} + {i * size}", v, str(size), names.address(barrier))
        for i, v in enumerate(values)
    )


def _reduce(names: Names, m: re.Match[str], args: list[str]) -> str:
    values = _vector(args[1])
    if len(values) != int(m["count"] or 1):
        raise ValueError(args)
    to = names.address(args[0])
    return "".join(
        f"atomicAdd((float *)({to}) + {i}, {names.place(v)});" for i, v in enumerate(values)
    )


def _shared_load(names: Names, m: re.Match[str], args: list[str]) -> str:
    to = _vector(args[0])
    if len(to) != int(m["count"] or 1):
        raise ValueError(args)
    return "".join(
        names.write(r, f"kw_load_shared({names.address(args[1])} + {4 * i})")
        for i, r in enumerate(to)
    )


def _elect(names: Names, m: re.Match[str], args: list[str]) -> str:
    which, _, chosen = args[0].partition("|")
    leader = "kw_leader"
    return (
        f"{{ const unsigned kw_leader = __builtin_ctz(unsigned(kw_warp_wait(kw::emulator::kBallot, "
        f"{names.read(args[1])}, 1, 0))); {names.write(which.strip(), leader)} "
        f"{names.write(chosen.strip(), 'kw_lane() == kw_leader')} }}"
    )


def _simple(function: str, *shape: str) -> Callable[[Names, re.Match[str], list[str]], str]:
    """A call with the operands in order: "r" is read, "a" an address, others are themselves."""

    def act(names: Names, m: re.Match[str], args: list[str]) -> str:
        if len(args) != sum(s in ("r", "a") for s in shape):
            raise ValueError(args)
        left = iter(args)
        return _call(function, *(names.read(next(left)) if s == "r" else
                                 names.address(next(left)) if s == "a" else s
                                 for s in shape))  # fmt: skip

    return act


def _prefetch(names: Names, m: re.Match[str], args: list[str]) -> str:
    return _call("kw_box_prefetch", f"(const void *)({names.address(args[0])})")


def _arrive(names: Names, m: re.Match[str], args: list[str]) -> str:
    state, address, *count = args
    function = "drop" if m["drops"] else "arrive"
    its = [] if m["drops"] else [names.read(count[0]) if count else "1"]
    call = _call(f"kw_mbarrier_{function}", names.address(address), *its)
    return call if state == "_" else names.write(state, call[:-1])


def _expect(names: Names, m: re.Match[str], args: list[str]) -> str:
    state, address, bytes_ = args
    call = _call("kw_mbarrier_expect", names.address(address), names.read(bytes_))
    return call if state == "_" else names.write(state, call[:-1])


def _wait(names: Names, m: re.Match[str], args: list[str]) -> str:
    """A parity, or a state: the number of a phase. A time limit (a fourth operand) is ignored."""
    complete, address, phase, *limit = args
    if len(limit) > (m["how"] == "try"):
        raise ValueError(args)
    its = names.address(address), f"{names.read(phase)} & 1"
    if m["how"] == "try":
        return f"{_call('kw_mbarrier_wait', *its)} {names.write(complete, '1')}"
    return names.write(complete, _call("kw_mbarrier_test", *its)[:-1])


def _bytes(names: Names, m: re.Match[str], args: list[str]) -> str:
    sign = "-" if m["how"] == "complete" else ""
    amount = f"{sign}(long long)({names.read(args[1])})"
    return _call("kw_mbarrier_bytes", names.address(args[0]), amount)


def _assign(expression: str) -> Callable[[Names, re.Match[str], list[str]], str]:
    def act(names: Names, m: re.Match[str], args: list[str]) -> str:
        values = [names.read(a) for a in args[1:]]
        return names.write(args[0], expression.format(*values))

    return act


_HINT = r"(?P<hint>\.L2::cache_hint)?"
_FULL = r"mbarrier::complete_tx::bytes"
_OPS = "add|min|max|inc|dec|and|or|xor"
_REDUCTIONS = {op: f"kw::emulator::k{op.capitalize()}" for op in _OPS.split("|")}
#: As CUtensorMapDataType counts them.
_TYPES = {"u32": "2", "b32": "2", "s32": "3", "u64": "4", "b64": "4", "s64": "5", "f16": "6",
          "f32": "7", "f64": "8", "bf16": "9"}  # fmt: skip
_ACTS: list[tuple[str, Callable[[Names, re.Match[str], list[str]], str]]] = [
    (r"setp\.ne\.[bsu]32", _assign("unsigned({}) != unsigned({})")),
    (r"selp\.[bsu]32", _assign("{2} ? {0} : {1}")),
    (r"mov\.[bsu]32", _assign("{}")),
    (r"mapa\.shared::cluster\.u32", _assign("kw_mapa({}, {})")),
    (r"mbarrier\.init(\.shared(::cta)?)?\.b64", _simple("kw_mbarrier_init", "a", "r")),
    (
        r"mbarrier\.arrive(?P<drops>_drop)?(\.(release|relaxed))?(\.(cta|cluster))?"
        r"\.shared(::\w+)?\.b64",
        _arrive,
    ),
    (r"mbarrier\.inval(\.shared(::cta)?)?\.b64", _simple("kw_mbarrier_end", "a")),
    (r"mbarrier\.(?P<how>expect|complete)_tx(\.relaxed)?(\.(cta|cluster))?\.shared(::\w+)?\.b64",
     _bytes),
    (
        r"mbarrier\.arrive\.expect_tx(\.(release|relaxed))?(\.(cta|cluster))?\.shared(::\w+)?\.b64",
        _expect,
    ),
    (
        r"mbarrier\.(?P<how>try|test)_wait(\.parity)?(\.(acquire|relaxed))?(\.(cta|cluster))?"
        r"\.shared(::cta)?\.b64",
        _wait,
    ),
    (r"fence\.mbarrier_init\.release\.cluster", _simple("kw_mbarrier_init_fence")),
    (r"fence\.proxy\.async(\.shared::c(ta|luster)|\.global)?", _simple("kw_fence_proxy_async")),
    (r"prefetch\.tensormap", _prefetch),
    (
        rf"cp\.async\.bulk\.tensor\.(?P<dims>[1-5])d\.shared::c(?:luster|ta)\.global(\.tile)?"
        rf"\.{_FULL}(?P<many>\.multicast::cluster)?{_HINT}",
        _tensor_load,
    ),
    (
        r"cp\.async\.bulk\.tensor\.(?P<dims>[1-5])d\.global\.shared::cta(\.tile)?\.bulk_group"
        + _HINT,
        _tensor_store,
    ),
    (
        rf"cp\.reduce\.async\.bulk\.tensor\.(?P<dims>[1-5])d\.global\.shared::cta\.(?P<op>{_OPS})"
        rf"(\.tile)?\.bulk_group{_HINT}",
        _tensor_store,
    ),
    (
        rf"cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group{_HINT}\.(?P<op>{_OPS})"
        r"(\.noftz)?\.(?P<type>[usb](?:32|64)|f16|bf16|f32|f64)",
        _bulk_store,
    ),
    (rf"cp\.async\.bulk\.shared::c(?:luster|ta)\.global\.{_FULL}{_HINT}", _bulk_load),
    (rf"cp\.async\.bulk\.shared::cluster\.shared::cta\.{_FULL}", _bulk_send),
    (rf"cp\.async\.bulk\.global\.shared::cta\.bulk_group{_HINT}", _bulk_store),
    (r"cp\.async\.bulk\.commit_group", _simple("kw_bulk_commit")),
    (r"cp\.async\.bulk\.wait_group", _simple("kw_bulk_wait", "r", "false")),
    (r"cp\.async\.bulk\.wait_group\.read", _simple("kw_bulk_wait", "r", "true")),
    (r"setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32", _simple("kw_registers", "r")),
    (r"(?:barrier|bar)\.sync(\.aligned)?", _simple("kw_named_barrier", "r", "r", "true")),
    (r"(?:barrier|bar)\.arrive(\.aligned)?", _simple("kw_named_barrier", "r", "r", "false")),
    (r"barrier\.cluster\.arrive\.relaxed(\.aligned)?", _simple("kw_cluster_arrive", "true")),
    (r"barrier\.cluster\.arrive(\.release)?(\.aligned)?", _simple("kw_cluster_arrive", "false")),
    (r"barrier\.cluster\.wait(\.acquire)?(\.aligned)?", _simple("kw_cluster_wait")),
    (r"elect\.sync", _elect),
    (
        r"(?P<what>ld|st)matrix\.sync\.aligned\.m8n8\.x(?P<count>[124])(?P<turned>\.trans)?"
        r"\.shared(::cta)?\.b16",
        _matrices,
    ),
    (rf"st\.async(\.weak)?\.shared::cluster\.{_FULL}(\.v(?P<count>[24]))?\.[bsu](?P<bits>32|64)",
     _send),
    (r"ld\.shared(\.v(?P<count>[24]))?\.(?:b|u)32", _shared_load),
    (r"red(\.relaxed)?(\.gpu)?\.global\.add(\.v(?P<count>[24]))?\.f32", _reduce),
    (r"wgmma\.fence\.sync\.aligned", _simple("kw_product_fence")),
    (r"wgmma\.commit_group\.sync\.aligned", _simple("kw_product_commit")),
    (r"wgmma\.wait_group\.sync\.aligned", _simple("kw_product_wait", "r")),
    (
        r"wgmma\.mma_async\.sync\.aligned\.m64n(?P<n>\d+)k(?P<k>\d+)(?P<sat>\.satfinite)?"
        r"\.(?P<d>f32|f16|s32)\.(?P<a>\w+)\.(?P<b>\w+)",
        _product,
    ),
    (r"griddepcontrol\.(?:wait|launch_dependents)", lambda *_: ""),
]  # fmt: skip
