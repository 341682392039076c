"""The rules: each makes one fault of a class at each place where its pattern matches."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

#: Something in parentheses, up to three deep.
IN = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
#: An argument of a call.
ARGUMENT = r"(?:[^(),]|\((?:[^()]|\([^()]*\))*\))+"
VECTORS = {"float4": 4, "int4": 4, "uint4": 4, "double2": 8, "float2": 4, "int2": 4, "uint2": 4,
           "half2": 2, "__half2": 2, "uchar4": 2, "char4": 2, "__nv_bfloat162": 2}  # fmt: skip
VECTOR = "|".join(VECTORS)
ODD = "(threadIdx.x + threadIdx.y) % 2"
#: A statement that prints this shows that its place is reached.
REACHED = "kw-reached"


@dataclass(frozen=True)
class Rule:
    """
    Attributes:
        fault: the class.
        name: what it does.
        pattern: of the text without comments and directives.
        by: the replacement, a template of `re` or a function of the match; None: no fault here.
        device: whether it applies in functions for the device, or in all others.
        probe: a template: the same program, which prints REACHED where the fault would differ; None
            if no statement can stand there.
    """

    fault: str
    name: str
    pattern: re.Pattern[str]
    by: str | Callable[[re.Match[str]], str | None]
    device: bool = True
    probe: str | None = rf'{{ printf("{REACHED}"); \g<0> }}'


def _rule(fault: str, name: str, pattern: str, by: str | Callable = ";", **other) -> Rule:
    return Rule(fault, name, re.compile(pattern, re.M), by, **other)


def _host(fault: str, name: str, pattern: str, by: str | Callable = ";") -> Rule:
    return _rule(fault, name, pattern, by, device=False, probe=None)


def _accumulates(m: re.Match[str]) -> str | None:
    """Without its value, if what follows updates the variable."""
    name, rest = m[2], m.string[m.end() : m.end() + 1500]
    if not re.search(rf"\b{name}\s*(?:[-+*|^&]=|\+\+)|\b{name} = [^;]*\b{name}\b", rest):
        return None
    return f"{m[1]} {name};"


def _first_store(m: re.Match[str]) -> str | None:
    """Nothing, if this is the first store to an array in shared memory."""
    before = m.string[: m.start()]
    arrays = list(re.finditer(rf"__shared__[^;()]*\b{m[1]}\s*\[", before))
    if not arrays:
        return None
    since = before[arrays[-1].end() :]
    return None if re.search(rf"\b{m[1]}\s*(?:\[[^\]]*\])+\s*[-+*]?=[^=]", since) else ";"


def _shifted(m: re.Match[str]) -> str:
    """A pointer to a vector that is half a vector's element, or one, too far."""
    return f"(({m[1]}{m[2]} *)((char *)({m[3]}) + {VECTORS[m[2]]}))"


def _one_more(m: re.Match[str]) -> str:
    return f"{m[1]}{int(m[2]) + 1}{m[3]}"


_STATEMENT = r"(?<=[;{{}}])\s*(?:\w+\s*\(\s*)?{call}\s*\)?\s*;"
_SYNC = r"__syncthreads\(\);"
_OF_A_WARP = r"__(?:shfl\w*|ballot|any|all|reduce\w*)_sync"
_ALL_LANES = r"(?:0x[fF]{8}[uU]?|~0[uU]?|-1|\w*MASK)"
_VALUE = r"(?:0|0\.0?f?|0u|1|1\.0?f?)"
_GROUP = r"\b(?:cg|cooperative_groups)"
_GROUPS_LEFT = r"cp\.async\.wait_group |__pipeline_wait_prior\(|cp_async_wait_group<"
_BELOW = r'if (\1 < \2 || (\1 == \2 && printf("kw-reached") < 0))'

RULES = (
    _rule("barrier", "delete __syncthreads", _SYNC),
    _rule("barrier", "delete __syncwarp", rf"__syncwarp\s*{IN};"),
    _rule("barrier", "delete sync of a group", r"\b\w+\.sync\(\);|\b\w+::sync\(\w+\);"),
    _rule("barrier", "delete arrive_and_wait", r"\b\w+\.arrive_and_wait\(\);"),
    _rule("barrier", "delete wait of a token", r"\b\w+\.wait\((?:std::)?move\(\w+\)\);"),
    _rule("bounds", "< to <= in an if", r"\bif \((\w+(?:\.x)?) < (\w+)\)", r"if (\1 <= \2)",
          probe=_BELOW),
    _rule("bounds", "< to <= in a for", r"(\bfor \([^;(]*;\s*\w+\s*)<(\s*\w+\s*;)", r"\1<=\2",
          probe=None),
    _rule("bounds", "shared array one less",
          r"(__shared__ (?:__align__\(\d+\) |alignas\(\d+\) )?[\w:]+ \w+\[)([^\]]+)\]",
          r"\1(\2) - 1]", probe=None),
    _host("bounds", "allocate 4 bytes less",
          rf"(\bcudaMalloc(?:Managed)?\s*\(\s*(?:\([^()]*\)\s*)?&?[\w.\->\[\]]+\s*,\s*)({ARGUMENT})\)",
          r"\1(\2) - 4)"),
    _rule("uninitialized", "no value of an accumulator",
          rf"\b(float|int|double|unsigned|unsigned int|size_t) (\w+)\s*=\s*{_VALUE};",
          _accumulates, probe=None),
    _rule("uninitialized", "no value in the head of a for",
          r"\bfor\s*\(\s*(int|unsigned|unsigned int|size_t) (\w+)\s*=\s*[^;,]+;", r"for (\1 \2;",
          probe=None),
    _rule("uninitialized", "no first store to shared memory",
          r"\b(\w+)\s*(?:\[[^\]=;]*\])+\s*=\s*[^=;][^;]*;", _first_store),
    _rule("uninitialized", "no fill_fragment", rf"[\w:]*fill_fragment\s*{IN};"),
    _host("uninitialized", "no cudaMemset", _STATEMENT.format(call=rf"cudaMemset\w*\s*{IN}")),
    _host("uninitialized", "no copy to the device", _STATEMENT.format(
          call=r"cudaMemcpy(?:Async)?\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*?HostToDevice"
               r"(?:[^()]|\([^()]*\))*\)")),
    _rule("divergence", "barrier under a condition", _SYNC, f"{{ if ({ODD}) __syncthreads(); }}"),
    _rule("divergence", "two barriers of a branch", _SYNC,
          f"{{ if ({ODD}) __syncthreads(); else __syncthreads(); }}"),
    _rule("divergence", "one thread returns before a barrier", _SYNC,
          "{ if (threadIdx.x == 5) return; __syncthreads(); }"),
    _rule("divergence", "sync of a group under a condition", r"\b(\w+)\.sync\(\);",
          rf"{{ if ({ODD}) \1.sync(); }}"),
    _rule("divergence", "__syncwarp under a condition", rf"__syncwarp\s*{IN};",
          rf"{{ if ({ODD}) \g<0> }}"),
    _rule("divergence", "half of the lanes in a mask",
          rf"({_OF_A_WARP}\s*\(\s*){_ALL_LANES}(?=\s*[,)])",
          r"\g<1>0x0000ffffu", probe=None),
    _rule("divergence", "one lane ends before a product", r"[\w:]*mma_sync\s*\([^;]*;",
          r"{ if (threadIdx.x % 32 == 5) return; \g<0> }"),
    _rule("alignment", "address of a vector",
          rf"reinterpret_cast<((?:const )?)({VECTOR}) ?\*>\s*({IN})",
          _shifted, probe=None),
    _rule("alignment", "address of a vector, C cast",
          rf"\(((?:const )?)({VECTOR}) ?\*\)\s*(&?\w+(?:\[[^\]]*\])+|&?\w+\b(?!\s*[(\[])|{IN})",
          _shifted, probe=None),
    _rule("alignment", "address of a copy of 16 bytes",
          rf"(__pipeline_memcpy_async\s*\(\s*)({ARGUMENT})(,{ARGUMENT},\s*(?:16|sizeof\(float4\))\))",
          r"\1(char *)(\2) + 4\3", probe=None),
    _rule("alignment", "address of a matrix",
          rf"(load_matrix_sync\s*\(\s*{ARGUMENT},)({ARGUMENT}),",
          r"\1 (\2) + 1,", probe=None),
    _rule("fence", "delete a fence", r"__threadfence(?:_system)?\(\);"),
    _rule("fence", "fence of the block only", r"__threadfence(?:_system)?\(\);",
          "__threadfence_block();"),
    _rule("fence", "relaxed store", r"memory_order_release", "memory_order_relaxed", probe=None),
    _rule("fence", "relaxed load", r"memory_order_acquire", "memory_order_relaxed", probe=None),
    _rule("fence", "plain flag",
          rf"\batomicExch\s*\(\s*&?(\w+(?:\[[^\]]*\])?)\s*,\s*({ARGUMENT})\);",
          lambda m: f"{'' if '&' in m[0] else '*'}{m[1]} = {m[2]};"),
    _rule("fence", "plain counter", rf"\batomicInc\s*\(\s*&(\w+)\s*,{ARGUMENT}\)", r"\1++",
          probe=None),
    _rule("fence", "not volatile", r"\bvolatile (int|unsigned int|unsigned|float) ?\*", r"\1 *",
          probe=None),
    _rule("asynchronous copy", "no wait", rf"__pipeline_wait_prior\s*{IN};|{_GROUP}"
          rf"::wait(?:_prior<\d+>)?\s*{IN};|\b\w+\.consumer_wait\(\);|\bCP_ASYNC_WAIT\w*{IN};|"
          rf"\bcp_async_wait\w*(?:<\d+>)?{IN};|asm volatile ?\(\"cp\.async\.wait_[^;\"]*;[^;]*;"),
    _rule("asynchronous copy", "wait for one group less",
          rf"({_GROUPS_LEFT}|CP_ASYNC_WAIT_GROUP\()(\d)()", _one_more, probe=None),
    _rule("asynchronous copy", "barrier instead of a wait",
          rf"__pipeline_wait_prior\s*{IN};|{_GROUP}::wait\s*{IN};",
          "__syncthreads();"),
    _rule("asynchronous copy", "no commit", rf"__pipeline_commit\(\);|\b\w+\.producer_commit\(\);|"
          rf"\bcp_async_commit\w*{IN};|\bCP_ASYNC_COMMIT\w*{IN};|"
          r"asm volatile ?\(\"cp\.async\.commit_group;[^;]*;"),
)  # fmt: skip
