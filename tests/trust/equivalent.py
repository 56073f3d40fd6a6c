"""Mutants that compute the same, with why: no probe can tell them from the right kernel."""

from __future__ import annotations

import re

LANE = "every lane that may write holds the same result"
BORDER = "at the border itself both forms give the same to the last digits"
NAN = "arithmetic hands a NaN on by itself; the test is for compilers that take it for a number"

# Operation and kernel, mutation, why; the first two are patterns that match from the start.
TABLE = [
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
    ("", r"constant: (var bits = 0x7fc00000u;|return sign \| 0x7e00u)", "another NaN is a NaN"),
    (
        "",
        r"constant: return bitcast<f32>\(sign \| 0x7f800000u \| \(fraction",
        "another NaN is a NaN",
    ),
    (
        "astype/float16",
        r"\w+( \w+)*: (if \(magnitude|value = \(magnitude)",
        "where one way to round ends and another begins both round alike",
    ),
    (
        "astype/",
        r"(off by one|constant): .*2147483648\.0",
        "the nearest float32, or saturating alike",
    ),
    (
        "",
        r"off by one: for \(var axis = 0u; axis < params\.rank",
        "after the last axis nothing is left to walk, and its stride is 0",
    ),
    ("", r"constant: let half_k = k >> 1u;", "any two powers of two that can be represented do"),
    (
        "floor_divide/",
        r".*(result\.y|vec2<[iu]32>\(0u?, 0u?\);  ->  return vec2<[iu]32>\(0u?, 1u?\)|r \+= b|vec2<i32>\(-a, 0\)|f32\(rest\)|vec2<f32>\(0\.0, abs\(a\)\);  ->.*\(0\.0)",
        "floor_divide takes the quotient and leaves the remainder",
    ),
    (
        "remainder/",
        r".*(result\.x = |result\.x - 1|vec2<[iu]32>\(0u?, 0u?\);  ->  return vec2<[iu]32>\(1u?, 0|q -= 1|quotient = |vec2<f32>\(1\.0, abs)",
        "remainder takes the remainder and leaves the quotient",
    ),
]
_PATTERNS = [(re.compile(kernel), re.compile(mutation), why) for kernel, mutation, why in TABLE]


def reason(operation: str, kernel: str, mutation: str) -> str:
    """Why this mutant of a kernel computes the same; "" if nothing says so."""
    for of, what, why in _PATTERNS:
        if of.match(f"{operation}/{kernel}") and what.match(mutation):
            return why
    return ""
