"""Compares the declarations in headers/ with the official headers of the same release.

    python -m wgpu_native_py.check_headers [--api v22|v29|both] [--headers DIR]

A field in the wrong place raises no error, it reads and writes foreign memory: so every struct,
enum value, flag, typedef and prototype of ours must be the official one. Ours may leave out what
compute doesn't need, but not part of a struct. ``const`` and the names of arguments are no part
of the ABI and are not compared.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cffi import FFI

from .declarations import header_text
from .errors import WgpuError
from .paths import cache_dir
from .pins import REQUIREMENTS, VERSIONS
from .wheels import download_wheel, extract

HEADERS = ("webgpu.h", "wgpu.h")  # in the order of their inclusion

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_DEFINE = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(0[xX][0-9a-fA-F]+|\d+)[uUlL]*[ \t]*$", re.MULTILINE
)
_MACRO = re.compile(r"\bWGPU_(?:EXPORT|NULLABLE|[A-Z]+_ATTRIBUTE)\b")
_EXTERN = re.compile(r'\bextern\s*"C"\s*\{')
_CONSTANT = re.compile(r"static\s+const\s+\w+\s+(\w+)\s*=\s*(.+)", re.DOTALL)
_PROTOTYPE = re.compile(r"(\w+)\s*\(")
_ENUM = re.compile(r"\benum\s+(\w+)\s*\{")
_FLAGS = "enum _flags"  # a header's flag constants, and _end because C has no empty enums
_Types = dict[str, "FFI.CType"]


@dataclass(frozen=True)
class Declarations:
    """What one header declares, by spelling: "struct WGPULimits", "enum WGPUStatus", "WGPUBool"."""

    ffi: Any
    aggregates: _Types  # structs and unions
    enums: _Types
    typedefs: _Types
    functions: _Types
    flags: dict[str, int]

    @property
    def enum_values(self) -> dict[str, int]:
        return {name: n for enum in self.enums.values() for name, n in enum.relements.items()}


def parse(text: str, name: str = "the header") -> Declarations:
    """Read a header, ours or an official one. Raises ValueError where that can't be done."""
    text = _COMMENT.sub(" ", text).replace("\\\n", " ")
    flags = _DEFINE.findall(text)
    text = _EXTERN.sub(" ", _MACRO.sub(" ", _DIRECTIVE.sub("", text)))
    functions, kept = [], []
    for statement in _statements(text):
        if constant := _CONSTANT.match(statement):
            flags.append(constant.groups())
        elif statement.startswith(("typedef", "struct", "union", "enum")):
            kept.append(statement)
        elif prototype := _PROTOTYPE.search(statement):
            # As a typedef, a prototype can be looked at without a library to look it up in.
            functions.append(prototype[1])
            kept.append(f"typedef {statement}")
        else:
            raise ValueError(f"{name} has something that can't be compared: {statement}")
    enums = [f"enum {tag}" for tag in _ENUM.findall(text)]
    kept.append(f"{_FLAGS} {{ {', '.join(map(' = '.join, [*flags, ('_end', '0')]))} }}")
    ffi = FFI()
    try:
        ffi.cdef("".join(f"{statement};\n" for statement in kept))
        typedefs, structs, unions = ffi.list_types()
        aggregates = [*(f"struct {tag}" for tag in structs), *(f"union {tag}" for tag in unions)]
        types = _types(ffi, [*typedefs, *aggregates, *enums, _FLAGS])
    except Exception as error:  # cffi's and pycparser's errors have no common base
        raise ValueError(f"{name} can't be read by cffi: {error}") from error
    return Declarations(
        ffi,
        aggregates={spelling: types[spelling] for spelling in aggregates},
        enums={spelling: types[spelling] for spelling in enums},
        typedefs={spelling: types[spelling] for spelling in typedefs if spelling not in functions},
        functions={spelling: types[spelling] for spelling in functions},
        flags={flag: types[_FLAGS].relements[flag] for flag, _ in flags},
    )


def _types(ffi: FFI, spellings: list[str]) -> _Types:
    """The types of these spellings, function types as what points to them."""
    # cffi parses every typedef again for each type it is asked for, so it is asked for one only.
    members = "".join(f"{spelling} *m{i};" for i, spelling in enumerate(spellings))
    ffi.cdef(f"struct _all {{ {members} }};")
    pointers = [field.type for _, field in ffi.typeof("struct _all").fields]
    targets = (type_ if type_.kind == "function" else type_.item for type_ in pointers)
    return dict(zip(spellings, targets, strict=True))


def _statements(text: str) -> Iterator[str]:
    """The declarations at the top level, without their semicolons."""
    depth = start = 0
    for match in re.finditer(r"[{};]", text):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}" and depth == 0:
            start = match.end()  # what closes extern "C"
        elif match[0] == "}":
            depth -= 1
        elif depth == 0:
            statement = text[start : match.start()].strip()
            start = match.end()
            if statement:
                yield statement


def compare(ours: str, official: list[str]) -> list[str]:
    """What differs between our header and the official ones, in sentences; empty when nothing.

    ``official`` holds the texts in the order of their inclusion: webgpu.h, then wgpu.h.
    """
    try:
        return differences(
            parse(ours, "our header"), parse("\n".join(official), "the official header")
        )
    except ValueError as error:
        return [str(error)]


def differences(ours: Declarations, official: Declarations) -> list[str]:
    """`compare` on headers that are parsed already."""
    found: list[str] = []
    for name, here, there in _pairs(ours.aggregates, official.aggregates, found):
        found += _fields(name, here, there)
        if here.fields is not None and there.fields is not None:
            found += _sizes(name, ours.ffi.sizeof(here), official.ffi.sizeof(there))
    for name, here, there in _pairs(ours.enums, official.enums, found):
        found += _values(here.relements, there.relements, f"the official {name}")
        found += _sizes(name, ours.ffi.sizeof(here), official.ffi.sizeof(there))
    found += _values(ours.flags, official.flags, "the official header")
    for name, here, there in (
        *_pairs(ours.typedefs, official.typedefs, found),
        *_pairs(ours.functions, official.functions, found),
    ):
        if not _alike(here, there):
            found.append(_said(name, here, there))
    return found


def _pairs(ours: _Types, official: _Types, found: list[str]) -> Iterator[tuple[str, Any, Any]]:
    """(spelling, our type, the official one); what only we have is reported in ``found``."""
    for name, here in ours.items():
        if name in official:
            yield name, here, official[name]
        else:
            found.append(f"{name} is not in the official header.")


def _values(here: dict[str, int], there: dict[str, int], place: str) -> Iterator[str]:
    for name, value in here.items():
        if name not in there:
            yield f"{name} is not in {place}."
        elif value != there[name]:
            yield f"{name} is {value:#x} here and {there[name]:#x} in {place}."


def _sizes(name: str, here: int, there: int) -> Iterator[str]:
    if here != there:
        yield f"{name} takes {here} bytes here and {there} in the official header."


def _fields(name: str, ours: FFI.CType, official: FFI.CType) -> Iterator[str]:
    if ours.fields is None or official.fields is None:
        if ours.fields is not official.fields:
            side = "here" if ours.fields is None else "in the official header"
            yield f"{name} is declared without its fields {side} only."
        return
    here, there = dict(ours.fields), dict(official.fields)
    for field in (f for f in there if f not in here):
        yield f"{name} lacks the field {field}."
    for field in (f for f in here if f not in there):
        yield f"{name} has a field {field} that the official header doesn't have."
    same_fields = here.keys() == there.keys()
    if same_fields and list(here) != list(there):
        field, other = next(pair for pair in zip(here, there, strict=True) if pair[0] != pair[1])
        yield f"{name} has {field} where the official header has {other}."
    for field in (f for f in here if f in there):
        mine, theirs = here[field], there[field]
        place = f"{name}.{field}"
        if _anonymous(mine.type) and _anonymous(theirs.type) and mine.type.kind == theirs.type.kind:
            yield from _fields(place, mine.type, theirs.type)
        elif not _alike(mine.type, theirs.type):
            yield _said(place, mine.type, theirs.type)
        if same_fields and mine.offset != theirs.offset:
            yield f"{place} is at byte {mine.offset} here and at {theirs.offset} officially."


def _anonymous(ctype: FFI.CType) -> bool:
    return ctype.kind in ("struct", "union") and "$" in ctype.cname


def _alike(ours: FFI.CType, official: FFI.CType) -> bool:
    """Whether two types are the same; named structs and enums are compared on their own."""
    if ours.kind != official.kind:
        return False
    if ours.kind == "pointer":
        return _alike(ours.item, official.item)
    if ours.kind == "array":
        return ours.length == official.length and _alike(ours.item, official.item)
    if ours.kind == "function":
        return (
            ours.ellipsis == official.ellipsis
            and len(ours.args) == len(official.args)
            and all(map(_alike, ours.args, official.args))
            and _alike(ours.result, official.result)
        )
    if _anonymous(ours) and _anonymous(official):
        return not list(_fields("", ours, official))
    return bool(ours.cname == official.cname)


def _said(name: str, ours: FFI.CType, official: FFI.CType) -> str:
    return f"{name} is {ours.cname} here and {official.cname} in the official header."


def official_headers(api: str, folder: str | os.PathLike[str] | None = None) -> list[str]:
    """The texts of one generation's webgpu.h and wgpu.h.

    They are read from ``folder``, or from its subfolder named after the release where there is
    one. Without a folder they come from the cache, which is filled from the release's wheel on
    first use. Raises FetchError, and OSError where a header can't be read.
    """
    version = VERSIONS[api]
    root = cache_dir() / "headers" if folder is None else Path(folder)
    place = root / version
    if folder is not None and not place.is_dir():
        place = root
    if folder is None and not all((place / name).is_file() for name in HEADERS):
        with download_wheel(REQUIREMENTS[api]) as wheel:
            extract(wheel, {f"wgpu/resources/{name}": name for name in HEADERS}, place)
    return [(place / name).read_text(encoding="utf-8") for name in HEADERS]


def main(argv: Sequence[str] | None = None) -> int:
    """The command: 0 when all agrees, 1 when something differs, 2 without official headers."""
    parser = argparse.ArgumentParser(
        prog="python -m wgpu_native_py.check_headers",
        description="Compare the declarations in headers/ with wgpu-native's official headers.",
    )
    parser.add_argument("--api", choices=[*VERSIONS, "both"], default="both")
    parser.add_argument(
        "--headers",
        type=Path,
        metavar="DIR",
        help="a folder with webgpu.h and wgpu.h, or with a subfolder of them for each release "
        "(default: the cache, filled from the release's wheel)",
    )
    arguments = parser.parse_args(argv)
    apis = list(VERSIONS) if arguments.api == "both" else [arguments.api]
    folder: Path | None = arguments.headers
    if folder and len(apis) > 1 and not all((folder / VERSIONS[api]).is_dir() for api in apis):
        expected = " and ".join(VERSIONS.values())
        parser.error(f"{folder} has no subfolders {expected}; add them, or ask for one --api")
    status = 0
    for api in apis:
        try:
            texts = official_headers(api, folder)
        except (WgpuError, OSError) as error:
            print(f"{api}: no official headers to compare with: {error}", file=sys.stderr)
            return 2
        try:
            ours = parse(header_text(api), "our header")
            found = differences(ours, parse("\n".join(texts), "the official header"))
        except ValueError as error:
            print(f"{api}: {error}")
            status = 1
            continue
        print(
            f"{api}: compared {len(ours.functions)} functions, {len(ours.aggregates)} structs and "
            f"{len(ours.enum_values) + len(ours.flags)} enum values and flags with wgpu-native "
            f"{VERSIONS[api]}: {len(found) or 'no'} difference{'s' if len(found) > 1 else ''}"
        )
        for sentence in found:
            print(f"  {sentence}")
        status = 1 if found else status
    return status


if __name__ == "__main__":
    sys.exit(main())
