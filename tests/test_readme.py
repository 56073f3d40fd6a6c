"""The README's examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tensai

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("example", EXAMPLES, ids=range(1, len(EXAMPLES) + 1))
def test_example(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example, "README.md", "exec"), {"__name__": "example"})


def test_kinds_of_blocks_are_those_that_are_uploaded() -> None:
    names = re.compile(r"\b(?:Q\d_[\dK]|B?F16|F32)\b")
    stated = re.search(r"`dev.upload_gguf`: (.*?)\)", README.read_text("utf-8"), re.DOTALL)
    assert stated is not None
    device = tensai.open("cpu")
    with pytest.raises(tensai.DTypeError) as raised:
        device.upload_gguf(b"", (0, 32), "Q5_0")
    kinds = set(names.findall(str(raised.value).split("tensai reads")[1]))
    assert set(names.findall(stated[1])) == kinds - {"F16", "BF16", "F32"}
    assert set(names.findall(str(device.upload_gguf.__doc__))) == kinds
