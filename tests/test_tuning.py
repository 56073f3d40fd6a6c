"""`tensai tune`: what it measures, says and keeps, and that products go by it."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensai
from tensai import kept, tune, tuning
from tensai.gpu import GpuDevice
from tensai.ops.products import TILES
from tensai.ops.tiles import Pace

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def quick(gpu: tensai.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSAI_SELF_CHECK", "off")  # of every tile it takes a minute
    monkeypatch.setattr(tuning, "WARM", 0.0)
    monkeypatch.setattr(tuning, "LONG", 1e-4)
    monkeypatch.setattr(tuning, "ROUNDS", 3)
    monkeypatch.setattr(tuning, "DEPTH", 256)
    monkeypatch.setattr(tuning, "LARGEST", 512)
    monkeypatch.setattr(tune, "SIZES", (32, 64))
    monkeypatch.setattr(kept, "cache_dir", lambda: tmp_path / "cache")


def test_what_is_measured_is_shown_and_kept(capsys: Captured, tmp_path: Path) -> None:
    assert tune.main(["--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    paces = {name: Pace(**times) for name, times in told["kernels"].items()}
    assert paces.keys() == TILES.keys()
    assert all(0 < pace.busy <= pace.alone < math.inf for pace in paces.values())
    assert [row["size"] for row in told["squares"]] == [32, 64]
    for row in told["squares"]:
        assert row["chosen"] == tuning.choice(paces, row["size"])
        assert row["seconds"].keys() == paces.keys()
        assert min(row["seconds"].values()) > 0
    assert Path(told["kept"]).is_relative_to(tmp_path)
    with tensai.open() as device:
        assert isinstance(device, GpuDevice)
        assert device.paces == paces
    assert tune.main([]) == 0
    shown = capsys.readouterr().out
    assert "kept in " in shown
    first, second = (line.split() for line in shown.splitlines() if line[2:4] in ("32", "64"))
    for line in (first, second):
        assert len(line) == 1 + len(TILES)
        assert sum(cell.endswith("*") for cell in line) == 1


def test_a_dry_run_keeps_nothing(capsys: Captured, tmp_path: Path) -> None:
    assert tune.main(["--dry-run"]) == 0
    assert "kept nothing" in capsys.readouterr().out
    assert not (tmp_path / "cache").exists()


def test_what_cannot_be_done_is_said(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert tune.main([]) == 1
    assert "set TENSAI_CACHE_DIR" in capsys.readouterr().err
    monkeypatch.setattr(tensai, "open", lambda: tensai.opening.open("cpu"))
    assert tune.main([]) == 1
    assert "nothing to choose among on NumPy" in capsys.readouterr().err


@pytest.mark.parametrize("fastest", TILES)
def test_products_take_what_was_fastest_here(monkeypatch: pytest.MonkeyPatch, fastest: str) -> None:
    with tensai.open() as device:
        assert isinstance(device, GpuDevice)
        tuning.save_paces(
            device,
            {name: Pace(*((1e-9,) * 2 if name == fastest else (1.0,) * 2)) for name in TILES},
        )
    sources: list[str] = []
    pipeline = GpuDevice.pipeline

    def noted(self: Any, source: str, *rest: Any) -> Any:
        sources.append(source)
        return pipeline(self, source, *rest)

    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (2, 70, 70)).astype(np.float32)
    with tensai.open() as device:
        assert isinstance(device, GpuDevice)
        # In software any tile will do: the smallest.
        device.info = dataclasses.replace(device.info, software=False)
        assert tuning.choice(device.paces, 70) == fastest
        x, y = device.upload(a), device.upload(b)
        assert tuning.runner(device, fastest, x, y) is not None  # compiled, so that it has a source
        (expected,) = {key[0] for key in device._pipelines}
        monkeypatch.setattr(GpuDevice, "pipeline", noted)
        assert np.array_equal((x @ y).download(), a @ b)
    assert sources == [expected]


def test_damaged_paces_are_ignored(gpu: tensai.Device) -> None:
    good: dict[str, Any] = {name: Pace(2e-6, 1e-8) for name in TILES}
    tuning.save_paces(gpu, good)
    assert tuning.saved_paces(gpu) == good
    for damaged in (None, 1.0, [1.0], [1.0, -1.0], [1.0, math.nan], ["1", "2"], [1.0, 10**400], {}):
        kept.write_kept("paces", gpu, {**good, "matmul_32x32": damaged})
        assert tuning.saved_paces(gpu) == {}
