"""`python -m benchmarks`: that it runs and verifies, and where it writes; never how fast it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACE = "before\n<!-- figures: numpy -->\nold\n<!-- end of figures: numpy -->\nafter\n"


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TENSAI_SELF_CHECK": "off"}
    env.pop("PYTHONSAFEPATH", None)  # benchmarks are found in the checkout alone
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )


def test_tables_are_printed_written_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    readme, picture = tmp_path / "README.md", tmp_path / "ratios.png"
    readme.write_text(PLACE)
    done = benchmarks(
        *("--peer", "numpy", "--quick", "--json", "--only", "matmul", "host", "transfer"),
        *("--write", str(readme), "--plot", str(picture)),
    )
    assert done.returncode == 0, done.stderr
    tables = json.loads(done.stdout)["tables"]
    titles = ("Peaks", "Eager operations", "To and from the host", "f32 matmul")
    assert len(tables) == len(titles)
    for table, title in zip(tables, titles, strict=True):
        assert table["benchmark"].startswith(title)
        assert all(value for row in table["rows"] for value in row.values())
    sizes = [row["size"] for row in tables[3]["rows"]]
    assert sizes == ["64", "65", "2x32", "64, first transposed", "64, second transposed"]
    for row in tables[3]["rows"]:
        assert row["ratio"] == pytest.approx(row["tensai"] / row["numpy"])
        assert row["peak"] > 0
    before, table, after = readme.read_text().partition("| 2x32 | ")
    assert table
    assert before.startswith("before\n<!-- figures: numpy -->\nPeaks of ")
    assert after.endswith("\n<!-- end of figures: numpy -->\nafter\n")
    assert "old" not in before + after
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_attention_and_quantized_weights_beside_pytorch() -> None:
    pytest.importorskip("torch")
    done = benchmarks("--peer", "torch", "--quick", "--json", "--only", "attention", "quantized")
    assert done.returncode == 0, done.stderr
    _, attention, one, many = json.loads(done.stdout)["tables"]
    assert [row["rows"] for row in attention["rows"]] == [64]
    assert len(one["rows"]) == len(many["rows"]) == 4  # q8 and q4, float32 and int8 activations
    for table in (attention, one, many):
        assert all(value for row in table["rows"] for value in row.values())


def test_the_readme_has_a_place_for_each_peer() -> None:
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for peer in ("torch", "wgpu", "numpy", "llama.cpp"):
        assert text.count(f"<!-- figures: {peer} -->") == 1
        assert text.count(f"<!-- end of figures: {peer} -->") == 1


def test_what_cannot_be_run_is_named(tmp_path: Path) -> None:
    done = benchmarks("--peer", "wgpu", "--only", "matmul")
    assert done.returncode == 2
    assert "benchmarks with the peer wgpu: dispatch" in done.stderr
    (tmp_path / "empty.md").write_text("nothing\n")
    empty = str(tmp_path / "empty.md")
    done = benchmarks("--peer", "numpy", "--quick", "--only", "host", "--write", empty)
    assert done.returncode != 0
    assert "<!-- figures: numpy -->" in done.stderr
