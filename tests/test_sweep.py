"""`tensai sweep`: what it measures, says, draws and keeps."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensai
from tensai import accelerator, crossover, kept, sweep, sweep_plot, thresholds
from tensai.crossover import Row, Size
from tensai.gpu import GpuDevice

Captured = pytest.CaptureFixture[str]

WHOLE = crossover.LADDER
LADDER = (Size("one", 1, 8, 12, 4), Size("two", 1, 40, 20, 33), Size("three", 3, 20, 30, 40))


@pytest.fixture(autouse=True)
def quick(gpu: tensai.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crossover, "LADDER", LADDER)
    monkeypatch.setattr(crossover, "WARM", 0.0)
    monkeypatch.setattr(crossover, "SHORTEST", 1e-4)
    monkeypatch.setattr(crossover, "ROUNDS", 3)
    monkeypatch.setattr(kept, "cache_dir", lambda: tmp_path / "cache")


def timed(*ratios: float | None) -> list[Row]:
    """Rows of a ladder from 1000 multiply-accumulates up, by the ratio of their times."""
    rows = []
    for place, ratio in enumerate(ratios):
        row = Row(Size(f"size {place}", 1, 10**place, 10, 100))
        if ratio is None:
            row.skipped = "no time was left"
        else:
            row.transfer, row.resident, row.cpu = 1e-3, 5e-4, 1e-3 * ratio
        rows.append(row)
    return rows


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Row]]:
    """Has the command find these ratios."""

    def find(*ratios: float | None) -> list[Row]:
        rows = timed(*ratios)
        monkeypatch.setattr(crossover, "measure", lambda *_: rows)
        return rows

    return find


def test_the_ladder_is_by_work() -> None:
    works = [size.work for size in WHOLE]
    assert works == sorted(set(works))
    assert (works[0], works[-1]) == (128**3, 64 * 512**3)


def test_a_real_run(gpu: tensai.Device, capsys: Captured) -> None:
    assert sweep.main(["--json", "--seconds", "60"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["device"]["name"] == gpu.name
    assert gpu.library is not None
    assert report["library"]["api"] == gpu.library.api
    assert report["cpu"]["numpy"] == np.__version__
    assert report["cpu"]["threads"] >= 1
    assert report["saved"] is report["plot"] is None
    for size, row in zip(LADDER, report["products"], strict=True):
        assert (row["name"], row["batch"]) == (size.name, size.batch)
        assert row["mflop"] == pytest.approx(2 * size.batch * size.m * size.k * size.n / 1e6)
        assert row["ratio"] == pytest.approx(row["cpu"] / row["gpu_transfer"])
        assert row["resident"] > 0
        assert row["wrong"] is row["skipped"] is None


def test_the_table(gpu: tensai.Device, capsys: Captured) -> None:
    assert sweep.main(["--seconds", "60"]) == 0
    shown, said = capsys.readouterr()
    assert gpu.name in shown
    assert np.__version__ in shown
    for size in LADDER:
        assert f"{size.name:<11} {size}" in shown
    assert "sizes measured" not in said  # no terminal
    lines = [line for line in shown.splitlines() if gpu.name not in line]
    assert all(len(line) <= 80 for line in lines)


def test_extreme_figures_fit_the_table(
    gpu: tensai.Device, found: Callable[..., list[Row]], capsys: Captured
) -> None:
    ratios = (1e-7, 1.25e-4, 0.00234, 12345.6, 999.9)
    for row, ratio in zip(found(*ratios), ratios, strict=True):
        row.transfer, row.resident, row.cpu = 0.1234, 1e-7, 0.1234 * ratio
    assert sweep.main([]) == 0
    shown = capsys.readouterr().out
    assert shown.count("<0.001") == 2
    lines = [line for line in shown.splitlines() if gpu.name not in line]
    assert all(len(line) <= 80 for line in lines), shown


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert sweep.main(["--json"]) == 0
    assert "sizes measured: 0 of 3" in terminal.getvalue()
    assert terminal.getvalue().endswith("sizes measured: 3 of 3\n")
    json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ((0.5, 0.9, 0.99), None),
        ((), None),
        ((2.0, 3.0, 0.5), None),  # the largest counts
        ((2.0, 3.0), 1e3),
        ((0.1, 10.0, 100.0), 10**3.5),  # half way between 1e3 and 1e4
        ((3.0, 0.01, 10.0), 10 ** (4 + 2 / 3)),
        ((0.5, 1.0, 2.0), 1e4),
        ((0.1, 10.0, None), 10**3.5),
    ],
)
def test_where_the_crossover_lies(ratios: tuple[float, ...], expected: float | None) -> None:
    assert crossover.find(timed(*ratios)) == (expected and pytest.approx(expected))


def test_a_wrong_product_is_no_win() -> None:
    rows = timed(0.1, 10.0, 20.0)
    rows[1].wrong = "off"
    assert crossover.find(rows) == rows[2].size.work
    rows[2].wrong = "off"
    assert crossover.find(rows) is None


def test_the_crossover_is_marked(found: Any, capsys: Captured) -> None:
    found(0.1, 10.0, 100.0)
    assert sweep.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    (mark,) = (place for place, line in enumerate(lines) if "crossover" in line)
    assert "size 0" in lines[mark - 1]
    assert "crossover at 0.00632 MFLOP" in lines[mark]
    assert "size 1" in lines[mark + 1]
    assert "gpu wins" in lines[mark]

    found(0.1, 0.5)
    assert sweep.main([]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "does not overtake NumPy here" in shown
    assert "best left on the CPU" in shown

    found(0.1, None)
    assert sweep.main([]) == 0
    shown = capsys.readouterr().out
    assert "not measured: no time was left" in shown
    assert "more --seconds" in shown


def first_wrong(product: Any) -> Any:
    product = product.copy()
    product.reshape(-1)[0] += 0.01
    return product


def last_wrong(product: Any) -> Any:
    product = product.copy()
    product.reshape(-1)[-1] = np.nan
    return product


def shorter(product: Any) -> Any:
    return product[..., :-1]


@pytest.mark.parametrize("way", [first_wrong, last_wrong, shorter])
def test_a_wrong_product_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path, way: Any
) -> None:
    real = GpuDevice.matmul
    monkeypatch.setattr(GpuDevice, "matmul", lambda self, x, y: way(real(self, x, y)))
    assert sweep.main(["--save", "--seconds", "60"]) == 1
    shown = capsys.readouterr().out
    assert "WRONG: a product was o" in shown
    assert "not saved" in shown
    assert not (tmp_path / "cache").exists()
    assert sweep.main(["--json", "--seconds", "60"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert all(row["wrong"] for row in report["products"])
    assert report["crossover"] is None


def test_a_wrong_resident_product_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    real = tensai.ops.matmul
    monkeypatch.setattr(
        tensai.crossover.ops, "matmul", lambda x, y: real(x, y) * (1.0 if x.ndim == 2 else 1.01)
    )
    assert sweep.main(["--json", "--seconds", "60"]) == 1
    one, two, three = json.loads(capsys.readouterr().out)["products"]
    assert one["wrong"] is two["wrong"] is None
    assert "off by" in three["wrong"]


def test_what_there_is_no_time_or_room_for(
    monkeypatch: pytest.MonkeyPatch, gpu: tensai.Device, capsys: Captured
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(crossover, "LADDER", (*LADDER, Size("endless", 1, 10**5, 10**5, 10**5)))
    rows = crossover.measure(gpu, 0.5, counted.append)
    assert counted == [1, 2, 3, 4]
    assert rows[0].ratio is not None
    assert rows[3].skipped == "no time was left"

    real = GpuDevice.matmul

    def full(self: GpuDevice, x: Any, y: Any) -> Any:
        if x.shape == (40, 20):
            raise tensai.OutOfDeviceMemoryError("there is no room")
        return real(self, x, y)

    monkeypatch.setattr(GpuDevice, "matmul", full)
    monkeypatch.setattr(crossover, "LADDER", LADDER)
    assert sweep.main(["--seconds", "60"]) == 0
    assert "not measured: there is no room" in capsys.readouterr().out


def test_save(found: Any, gpu: tensai.Device, capsys: Captured) -> None:
    def threshold() -> float:
        with tensai.accelerated(gpu):
            active = accelerator._here.get()
            assert active is not None
            return active.threshold

    assert threshold() == 4e8
    found(0.1, 10.0, 100.0)
    assert sweep.main(["--save"]) == 0
    assert "sends products from 3.16e+03" in capsys.readouterr().out
    assert threshold() == round(10**3.5)
    found(0.1, 0.5, None)
    assert sweep.main(["--save"]) == 1
    assert "not saved" in capsys.readouterr().out
    assert threshold() == round(10**3.5)
    found(0.1, 0.5)
    assert sweep.main(["--save", "--json"]) == 0
    shown, said = capsys.readouterr()
    assert "no product is worth sending" in " ".join(said.split())
    assert Path(json.loads(shown)["saved"]) == thresholds.threshold_file(gpu)
    assert threshold() == math.inf


def test_save_where_nothing_can_be_kept(found: Any, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "cache").write_text("no folder")
    found(2.0)
    assert sweep.main(["--save"]) == 1
    assert "TENSAI_CACHE_DIR" in capsys.readouterr().err


def test_plot(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    pytest.importorskip("matplotlib")
    picture = tmp_path / "sweep.png"
    before = "matplotlib.pyplot" in sys.modules
    assert sweep.main(["--plot", str(picture), "--seconds", "60"]) == 0
    assert f"drawn in {picture}" in capsys.readouterr().out
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(data) > 10_000
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.png"]
    assert ("matplotlib.pyplot" in sys.modules) == before  # which would look for a display


@pytest.mark.parametrize("ratios", [(0.1, 10.0), (0.1, None), (None, None)])
def test_plots_of_what_was_found(found: Any, tmp_path: Path, ratios: Any, capsys: Captured) -> None:
    pytest.importorskip("matplotlib")
    found(*ratios)
    picture = tmp_path / "sweep.SVG"
    assert sweep.main(["--plot", str(picture), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plot"] == str(picture)
    assert "<svg" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere/a.png", "its folder does not exist"),
        ("folder.png", "it is a folder"),
        ("a.txt", "a picture's name ends in .*png"),
    ],
)
def test_pictures_that_are_refused_at_once(
    tmp_path: Path, name: str, message: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(tensai, "open", None)  # not even a device is opened
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ValueError, match=message):
        sweep_plot.check(tmp_path / name)
    assert sweep.main(["--plot", str(tmp_path / name)]) == 1
    assert capsys.readouterr().err.startswith("tensai sweep: ")


def test_plot_without_matplotlib(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    assert sweep.main(["--plot", str(tmp_path / "a.png")]) == 1
    assert "pip install tensai[plot]" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_seconds_that_are_refused(seconds: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        sweep.main([f"--seconds={seconds}"])
    assert "a number of seconds above 0" in capsys.readouterr().err


def test_no_device(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSAI_ADAPTER", "no such card")
    assert sweep.main([]) == 1
    shown, said = capsys.readouterr()
    assert shown == ""
    assert "tensai sweep: no adapter's name contains 'no such card'" in said


def test_what_is_said_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    for name in sweep.THREADS:
        monkeypatch.delenv(name, raising=False)
    assert sweep.describe_cpu()["threads"] >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "17")
    assert sweep.describe_cpu()["threads"] == 17
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    assert sweep.describe_cpu()["threads"] == 3

    class Pools:
        @staticmethod
        def threadpool_info() -> list[dict[str, Any]]:
            return [
                {"user_api": "openmp", "num_threads": 9},
                {"user_api": "blas", "num_threads": 5},
            ]

    monkeypatch.setitem(sys.modules, "threadpoolctl", Pools)  # type: ignore[arg-type]
    assert sweep.describe_cpu()["threads"] == 5

    def old() -> None: ...

    monkeypatch.setattr(np, "show_config", old)
    assert sweep.describe_cpu()["blas"] == "unknown BLAS"
