"""Mutants that compute the same, with why: no probe can tell them from the right kernel."""

from __future__ import annotations

import re

UNARY = r"(negative|abs|square|exp|log|sqrt|rsqrt|erf|invert|relu|tanh|sigmoid|silu|gelu|astype)/"
LANE = "every lane that may write holds the same result"
BORDER = "at the border itself both forms give the same to the last digits"
NAN = "arithmetic hands a NaN on by itself; the test is for compilers that take it for a number"

# Operation and kernel, mutation, why; the first two are patterns that match from the start.
TABLE = [
    (
        r"(?!where/|update_/)",
        r"index: stored\(va\.(\w), vb\.(\w), vc\.\w\), .*-> +stored\(va\.\1, vb\.\2, ",
        "an operation of two operands has no third; it is read and not used",
    ),
    (
        UNARY,
        r"index: stored\(va\.(\w), .* -> +stored\(va\.\1, ",
        "an operation of one operand has no second; it is read and not used",
    ),
    (
        UNARY,
        r"(statement|index|logic|constant|call): va = select\(va, ",
        "one operand of one element gives one element, which lies first in any case",
    ),
    (
        "",
        r"\w+: (let bits = bitcast<u32>\(select\(x, x \* 8388608|var e = f32|let small = )",
        "for denormal numbers, which a device may take for 0",
    ),
    ("", r"\w+: let bounded = clamp\(x, -1?\d+\.0, ", "what saturates does so beyond as well"),
    (
        "",
        r"constant: (let|return).*0xfffff00[01]u",
        "another cut of a number in two parts that fit",
    ),
    ("", r"arithmetic: let high = upper_half\(whole", "another cut of a number in two parts"),
    ("", r"(constant|off by one|logic): return \(bitcast<u32>\(x\) & 0x", NAN),
    ("", r"off by one: .*(magnitude < |m < 0\.7|x < -?\d+\.0|> -0\.3|b\) > 1e37)", BORDER),
    (
        "divide/",
        r"call: let scale = ",
        "dividing both by 16 changes the quotient nowhere but there",
    ),
    (
        "",
        r"(off by one|guard): if \(lane < width\) \{ .*(<= width|if \(true\))",
        "a lane past the half repeats what does no harm when repeated, or isn't read again",
    ),
    ("", r"(guard: .* if \(true\)|(logic|constant): if) \((sub\w+_)?lane == 0u\)", LANE),
    ("", r"(guard|logic|constant): if \((sub\w+_)?lane == 0u\) \{ .*(true|!= 0u|== 1u)", LANE),
    (
        ".*subgroup",
        r"memory: var<workgroup> partial: .* / 2",
        "a subgroup has four lanes at least, so a quarter of the room is used",
    ),
    (
        "",
        r"constant: for \(var width = (\d*[02468]u?)( / 2u)?; .*var width = \d*[13579]u",
        "halving rounds it down to the same, or it adds one lane that is not there",
    ),
    (
        "remainder/",
        r"\w[\w ]*: .*(quotient|q [-+]=|<[iuf]32>\((0u?, 0|-a,|result\.x|a \+ b))",
        "unused half",
    ),
    ("floor_divide/", r"\w[\w ]*: .*(let rest|r \+= b|result\.y = )", "unused half"),
    (
        "(turn_|append_turned_)/",
        r"\w[\w ]*: .*(let low = |let middle = |middle >> 16u|0x20000000u)",
        "less than a billionth of a turn, or a border between two series",
    ),
    ("argmax/", r"(off by one|tail): .*at_a < at_b", "no element meets itself"),
    ("attention", r"off by one: if \(score > largest\)", BORDER),
    ("astype/float16", r"\w[\w ]*: .*(0x477ff00|0x33000001|& 0x1ffu)", "a border, or a NaN's bits"),
    (
        "astype/astype",
        r"\w[\w ]*: .*(x >= (4294967296|2147483648)|max\(x, -2147483648)",
        "this device's own conversion saturates as well",
    ),
    (
        "",
        r"constant: for .*\+= (256u.*\+= 255u|128u.*\+= 127u|64u.*\+= 63u|32u.*\+= 31u)",
        "an element is met twice, which changes no store and no maximum; sums are told",
    ),
    (
        "",
        r"off by one: for \(var axis = 0u; axis < params.rank",
        "the axis after the last has length 0 or step 0",
    ),
    (
        ".*",
        r"constant: var bits = 0x7fc00000u;",
        "another NaN is a NaN as well",
    ),
]
_PATTERNS = [(re.compile(kernel), re.compile(mutation), why) for kernel, mutation, why in TABLE]


def reason(operation: str, kernel: str, mutation: str) -> str:
    """Why this mutant of a kernel computes the same; "" if nothing says so."""
    for of, what, why in _PATTERNS:
        if of.match(f"{operation}/{kernel}") and what.match(mutation):
            return why
    return ""
