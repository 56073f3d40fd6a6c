"""Small wrongs for a WGSL source: what a driver that computes wrongly could make of it.

Only what `main` reaches is changed, so that no mutant differs in code that never runs. The
functions of math.wgsl are changed in the kernels of elementwise operations, whose probes go
through all their cases; in other kernels that call them only the calls are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from tensai.kernels import template

_TOKEN = re.compile(
    r"0x[0-9a-fA-F]+u?|\d+\.\d*(?:e[-+]?\d+)?f?|\d+e[-+]?\d+|\d+[ui]?"
    r"|[A-Za-z_]\w*|->|<<=|>>=|&&|\|\||[-+*/%&|^<>=!]=|<<|\+\+|--|\S"
)
_FUNCTION = re.compile(r"^fn (\w+)\(", re.MULTILINE)
_ARRAY = re.compile(r"var<workgroup> (\w+): array<(.+), ([^,]+)>;")
_SHARED = set(_FUNCTION.findall(template("math")))
_TYPED = {"vec2", "vec3", "vec4", "array", "atomic", "bitcast", "var", "ptr"}
_LANES = re.compile(r"@workgroup_size\(([^)]+)\)")

OPERATORS = {
    "arithmetic": {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "+=": "-=", "-=": "+="},
    "bits": {"<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|"},
    "logic": {"&&": "||", "||": "&&", "==": "!=", "!=": "=="},
    "off by one": {"<": "<=", "<=": "<", ">": ">=", ">=": ">"},
}
CALLS = {"min": "max", "max": "min", "max_nan": "min_nan", "min_nan": "max_nan", "fract": "floor"}
SWAPPED = {"x": "y", "y": "x", "z": "w", "w": "z"}


class Mutation(NamedTuple):
    """One wrong: its kind, the line, what the line becomes, which of equal lines it is."""

    kind: str
    line: str
    became: str
    number: int
    key: tuple[Any, ...]  # the same for lines that differ in nothing but numbers
    sources: tuple[str, ...]  # mutated: it is caught if one of them is

    @property
    def name(self) -> str:
        number = f" (#{self.number + 1})" if self.number else ""
        return f"{self.kind}: {self.line}  ->  {self.became}{number}"


class _Token(NamedTuple):
    text: str
    start: int
    end: int


def mutations(source: str) -> list[Mutation]:
    """Every mutation of a source, in the order of its lines."""
    code = re.sub(r"//[^\n]*", lambda found: " " * len(found[0]), source)
    spans = _reachable(code)
    made: list[Mutation] = []
    seen: dict[str, dict[int, int]] = {}  # line -> where it starts -> which of equal ones it is
    changes: Counter[int] = Counter()  # of the line that starts here
    for start, end in spans:
        for kind, first, last, text in _changes(code, start, end):
            begin = code.rfind("\n", 0, first) + 1
            stop = code.find("\n", last)
            stop = len(code) if stop < 0 else stop
            line = " ".join(code[begin:stop].split())
            became = " ".join((code[begin:first] + text + code[last:stop]).split())
            if line == became:
                continue
            places = seen.setdefault(line, {})
            number = places.setdefault(begin, len(places))
            changes[begin] += 1
            plain = re.sub(r"\d+", "#", line)
            key = (kind, plain, changes[begin], number if kind == "barrier" else 0)
            mutant = code[:first] + text + code[last:]
            sources = (mutant, *_reversed(mutant))
            made.append(Mutation(kind, line, became, number, key, sources))
    return made


def _reachable(code: str) -> list[tuple[int, int]]:
    """Where the bodies of functions that main reaches lie, and the declarations they use."""
    bodies: dict[str, tuple[int, int]] = {}
    for found in _FUNCTION.finditer(code):
        start = code.index("{", _closing(code, found.end() - 1, "(", ")"))
        bodies[found[1]] = start, _closing(code, start, "{", "}")
    reached: list[str] = []
    waiting = ["main"]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.append(name)
        start, end = bodies[name]
        words = set(re.findall(r"[A-Za-z_]\w*", code[start:end]))
        waiting.extend(sorted(words & bodies.keys()))
    used = " ".join(code[slice(*bodies[name])] for name in reached)
    own = reached if "apply" in reached else [name for name in reached if name not in _SHARED]
    spans = [bodies[name] for name in own]
    for found in re.finditer(r"^(?:const|var<workgroup>) (\w+)[^;]*;", code, re.MULTILINE):
        if re.search(rf"\b{found[1]}\b", used):
            spans.append(found.span())
    return sorted(spans)


def _closing(code: str, start: int, opening: str, closing: str) -> int:
    depth = 0
    for place in range(start, len(code)):
        depth += (code[place] == opening) - (code[place] == closing)
        if depth == 0:
            return place
    raise ValueError(f"no {closing} to a {opening}")


def _changes(code: str, start: int, end: int) -> Iterator[tuple[str, int, int, str]]:
    """(kind, first, last, text): code[first:last] becomes text."""
    part = code[start:end]
    array = _ARRAY.match(part)
    if array is not None:
        first, last = array.span(3)
        yield "memory", start + first, start + last, f"({array[3]}) / 2"
        yield "memory", start, start + len("var<workgroup>"), "var<private>"
        return
    for found in re.finditer(r"(?:workgroup|storage|subgroup)Barrier\(\);", part):
        yield "barrier", start + found.start(), start + found.end(), ""
    for found in re.finditer(r"\bif \(", part):
        first = start + found.end() - 1
        last = _closing(code, first, "(", ")") + 1
        yield "guard", first, last, "(false)"
        yield "guard", first, last, "(true)"
    for found in re.finditer(r"^ *[\w.\[\]][^;={}]*? ([-+*/&|^]|<<|>>)?= [^;{}]*;", part, re.M):
        if not re.match(r" *(let|var|for|const|if)\b", found[0]) and not _in_for(found[0]):
            yield "statement", start + found.start(), start + found.end(), ""
    tokens = list(_tokens(code, start, end))
    for place, token in enumerate(tokens):
        before = tokens[place - 1].text if place else ""
        after = tokens[place + 1].text if place + 1 < len(tokens) else ""
        yield from _change(code, token, before, after, end)


def _in_for(text: str) -> bool:
    return text.count("(") != text.count(")")


def _change(
    code: str, token: _Token, before: str, after: str, end: int
) -> Iterator[tuple[str, int, int, str]]:
    text, first, last = token
    operand = bool(re.match(r"[\w)\]]", before)) and before not in ("return", "case")
    rest = code[last : last + 8].lstrip()
    if text in ("+", "-") and re.match(r"0u?\b", rest):
        return  # nothing is added
    if text == "/" and re.match(r"1u?\b(?!\.)", rest):
        return  # nothing is divided
    for kind, table in OPERATORS.items():
        endless = text == ">" and code[last : last + 3] == " 0u"  # of an unsigned number
        if text in table and operand and not endless:
            yield kind, first, last, table[text]
    if text in ("<", "<=") and operand:
        stop = _operand_end(code, last, end)
        yield "tail", stop, stop, " - 1"
    if text in CALLS and after == "(":
        yield "call", first, last, CALLS[text]
    if after == "(" and (text.startswith("subgroup") or text in ("fma", "select", "dot4I8Packed")):
        inside = _arguments(code, last)
        if text == "fma":
            yield (
                "call",
                first,
                inside[-1][1] + 1,
                "({} * {})".format(*(code[a:b].strip() for a, b in inside[:2])),
            )
        elif text == "select":
            (a, b), (c, d) = inside[:2]
            yield "call", a, d, f"{code[c:d].strip()}, {code[a:b].strip()}"
        elif inside and text.startswith("subgroup") and not text.endswith("Barrier"):
            a, b = inside[0]
            yield "call", first, inside[-1][1] + 1, f"({code[a:b]})"
    if before == "." and text in SWAPPED:
        yield "index", first, last, SWAPPED[text]
    if re.fullmatch(r"\d+[ui]?", text) and before != "@":
        number, suffix = int(text.rstrip("ui")), text[len(text.rstrip("ui")) :]
        yield "constant", first, last, f"{number + 1}{suffix}"
        if number:
            yield "constant", first, last, f"{number - 1}{suffix}"
    elif re.fullmatch(r"0x[0-9a-fA-F]+u", text):
        yield "constant", first, last, f"{int(text[:-1], 16) ^ 1:#x}u"
        yield "constant", first, last, f"{int(text[:-1], 16) >> 1:#x}u"
    elif re.fullmatch(r"\d+\.\d*", text):
        yield "constant", first, last, f"{float(text) + 1.0}"


def _tokens(code: str, start: int, end: int) -> Iterator[_Token]:
    """Tokens of an expression's kind: those inside the <> of a type are left out."""
    place = start
    before = ""
    while True:
        found = _TOKEN.search(code, place, end)
        if found is None:
            return
        place = found.end()
        if found[0][0] == "<" and before in _TYPED:
            place = _closing(code, found.start(), "<", ">") + 1
            before = ">"
            continue
        before = found[0]
        yield _Token(found[0], *found.span())


def _operand_end(code: str, start: int, end: int) -> int:
    """Where the right-hand side of a comparison ends."""
    depth = 0
    for place in range(start, end):
        char = code[place]
        if depth == 0 and (char in ");,{" or code[place : place + 2] in ("&&", "||")):
            return len(code[:place].rstrip())
        depth += (char in "([") - (char in ")]")
    return end


def _arguments(code: str, opening: int) -> list[tuple[int, int]]:
    """Where a call's arguments lie; `opening` is where its parenthesis is."""
    opening = code.index("(", opening)
    stop = _closing(code, opening, "(", ")")
    places: list[tuple[int, int]] = []
    depth, start = 0, opening + 1
    for place in range(opening + 1, stop):
        char = code[place]
        depth += (char in "([") - (char in ")]")
        if char == "<" and re.search(r"\b(?:vec\d|array|bitcast)$", code[:place]):
            depth += 1
        elif char == ">" and depth and re.search(r"<\w+$", code[start:place]):
            depth -= 1
        elif char == "," and depth == 0:
            places.append((start, place))
            start = place + 1
    if code[start:stop].strip():
        places.append((start, stop))
    return places


def _reversed(code: str) -> tuple[str, ...]:
    """The source for a driver that runs a workgroup's last lane first, where that may show."""
    if "workgroupBarrier" not in code and "var<workgroup>" not in code:
        return ()
    lanes = _LANES.search(code)
    parameter = "@builtin(local_invocation_index) lane: u32"
    if lanes is None or parameter not in code or "subgroup_" in code:
        return ()
    turned = code.replace(parameter, parameter.replace("lane: u32", "lane_of_driver: u32"))
    main = turned.index("fn main(")
    body = turned.index("{", _closing(turned, turned.index("(", main), "(", ")")) + 1
    return (f"{turned[:body]}\n    let lane = ({lanes[1]}) - 1u - lane_of_driver;{turned[body:]}",)
