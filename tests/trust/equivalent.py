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
    (
        "",
        r"\w+: let (bounded = clamp\(x, -1?\d+\.0, |magnitude = min\(abs\(x\), 9)",
        "what saturates does so beyond as well",
    ),
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
        "(turn_|append_turned_)/",
        r"\w[\w ]*: .*(let low = |let middle = |middle >> 16u|0x20000000u)",
        "less than a billionth of a turn, or a border between two series",
    ),
    ("argmax/", r"constant: var best = .*\(0u, 0x7fffffffu\)", "another place past all there are"),
    ("argmax/", r"(off by one|tail): .*at_a < at_b", "no element meets itself"),
    ("attention", r"off by one: if \(score > largest\)", BORDER),
    (
        "attention",
        r"off by one: if \(query >= params\.queries .* if \(query > params\.queries",
        "the query after the last is computed and not stored",
    ),
    (
        "matmul/matmul_direct",
        r"\w+: let (row|column)_\d = .*(params\.m|width_b) (\+ 1u|- 0u)\)",
        "what lies past the last row or column is read and not stored",
    ),
    ("astype/float16", r"\w[\w ]*: .*(0x477ff00|0x33000001|& 0x1ffu)", "a border, or a NaN's bits"),
    (
        "",
        r"constant: for .*\+= (256u.*\+= 255u|128u.*\+= 127u|64u.*\+= 63u|32u.*\+= 31u)",
        "an element is met twice, which changes no store and no maximum; sums are told",
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
        r".*(result\.y|\(0u?, 0u?\);  ->.*\(0u?, 1u?\)"
        r"|r \+= b|\(-a, 0\)|f32\(rest\)|a - q \* b\)|<< 23u)",
        "floor_divide takes the quotient and leaves the remainder",
    ),
    (
        "floor_divide/|remainder/",
        r".*(let digits_[ab]"
        r"|if \(\(a < 0\.0\) != \(b < 0\.0\)\) \{  ->  if \(\(a <=? 0\.0\) != \(b <=? 0)",
        "only for denormal numbers, or for an a or b of 0, whose sign changes nothing",
    ),
    (
        "remainder/",
        r".*(result\.x = "
        r"|result\.x - 1|\(0u?, 0u?\);  ->.*\(1u?, 0|q -= 1|quotient = |\(result\.x, sel)",
        "remainder takes the remainder and leaves the quotient",
    ),
    (
        "",
        r"arithmetic: return (vec2<f32>\()?(select\(max\(a, b\), )?a \+ b",
        "NaN minus is NaN as well",
    ),
    (
        "power/",
        r".*(b\) [<=]+ 16777216|b\) <= 32\.0|return select\(far, -far, a <|\(b > 0\.0\)\);)",
        "where two ways to a power meet they agree, and a zero went its own way before",
    ),
    (
        "",
        r".*for \(; unit \+ \d+u( \+ \du)? <",
        "what the loop of four leaves the loop of one takes",
    ),
    ("(sum|max|min)/", r".*total / params\.divisor", "only a mean divides"),
    (
        ".*_(subgroup|tree)",
        r"\w+( \w+)*: (if \(subgroup_size|for \(var apart"
        r"|let first = lane|let count = \d|total = sh)",
        "for a team as wide as a subgroup, or narrower: nothing is left to join",
    ),
    ("", r".*if \(lane % \d+u == 0u && index < params\.outputs\)", LANE),
    (".*subgroup", r"memory: var<workgroup> shares: .* / 2", "one share a subgroup is in use"),
    (
        "embed_grad/embed_grad$",
        r".*(if \(lane < length\)|start <= params\.count|params\.count \+ start)",
        "what is beyond the indices names no row, or isn't read",
    ),
    (
        "embed_grad/embed_grad_atomic",
        r".*(at [>=]+ params\.size|result\.exchanged|result\.old_value)",
        "what is beyond the indices names no row; lavapipe adds without being interrupted",
    ),
    ("", r".*let subgroup_size = 1u", "joined in memory, a team asks for none"),
    ("", r"arithmetic: let index = .* 1u \+ lane / 256u; .* 1u -", "of 256 lanes, lane / 256 is 0"),
    (
        "",
        r"constant: let (thread = lane % 128u; .* % 129u|.* = lane % 64u; .* % 65u)",
        "as many lanes",
    ),
    (
        "(sum|mean|max|min|argmax|(log_)?softmax_grad|rms_norm)/",
        r"barrier: workgroupBarrier\(\);  -> *$",
        "nothing was in that memory before: values are joined once",
    ),
    (
        "(layer|rms)_norm_grad/",
        r"arithmetic: let index = .* 1u \+ lane / 256u; .*groups\.x - group\.x",
        "one sum alone: the first workgroup's",
    ),
    ("rms_norm/", r"guard: .*params\.flags & 1u.* if \(true\)", "it always has a weight"),
    (
        "(layer|rms)_norm_grad/|matmul/",
        r"call: let wanted = max\(|call: let wanted = min\(",
        "one sum alone: what a team past it reads is not stored",
    ),
    (
        "(log_)?softmax/",
        r"constant: let (scale|offset|shift) = .*(select\(sum, 2\.0|select\(largest, 1\.0)",
        "a row of -inf alone gives 0, or -inf, whatever it is divided or shifted by",
    ),
    (
        "layer_norm",
        r"\w+: let mean = team_sum",
        "what is wrong with the mean is taken off afterwards",
    ),
    (
        "attention/",
        r"off by one: if \(query >= params\.queries .* position > valid",
        "no loop goes past the rows that count",
    ),
    (
        "attention/attention_split",
        r"\w+: let blocks = .*(\+ [259]u - 1u|- 0u)\)",
        "a block past the last has no rows to store",
    ),
    (
        "attention/attention_split_1",
        r"constant: .*(row \* 257u|base \+ i % 65u)",
        "a single row is row 0",
    ),
    (
        "attention_grad/",
        r"\w+( \w+)*: (end = 0;|if \(first >= valid)",
        "no query sees what lies past the rows that count",
    ),
    (
        "attention_grad/",
        r"arithmetic: let row = min\(base \+ lane, params\.queries .* \+ 1u",
        "what is read past the last query is not used",
    ),
    ("place_rows_/", r"off by one: if \(first < .*\(first <= ", "no row is less than the first"),
    (
        "packed_",
        r"off by one: let special = .* magnitude > 0x7c00u",
        "no matrix has an infinite scale",
    ),
    (
        "packed_matmul/int8",
        r"constant: return bitcast<vec4<u32>>\(x\) & .*0x7ffffffeu",
        "the last bit of the largest activation",
    ),
    (
        "packed_matmul/int8",
        r"constant: return \(unit >> 1u\) \* 16u \+ .* 5u;",
        "it is divided by 4",
    ),
    (
        "packed_matmul/",
        r"arithmetic: .*min\((unit_b, params\.units|at \+ 1u, ROWS) \+ 1u",
        "what is read past the end is not used",
    ),
    (".*_rows", r"guard: if \(way == 0u\)", "a normalization joins in one way only"),
    ("matmul/", r"statement: total_[123] = both", "parts are too few to be taken four at a time"),
    ("", r"off by one: let small = x <", "for denormal numbers, which a device may take for 0"),
    ("silu", r".*(far = x \* 0\.0156|x < -92\.0)", "less than any normal number"),
]
_PATTERNS = [(re.compile(kernel), re.compile(mutation), why) for kernel, mutation, why in TABLE]


def reason(operation: str, kernel: str, mutation: str) -> str:
    """Why this mutant of a kernel computes the same; "" if nothing says so."""
    for of, what, why in _PATTERNS:
        if of.match(f"{operation}/{kernel}") and what.match(mutation):
            return why
    return ""
