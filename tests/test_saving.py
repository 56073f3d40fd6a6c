"""Saved tensors and states: resumed bit for bit, and refused where they do not fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import START, our_step

import tensai
from tensai.autograd import Parameter
from tensai.errors import DTypeError, ModelError, ShapeError
from tensai.optim import SGD, AdamW, Optimizer

pytestmark = pytest.mark.usefixtures("still_works")


@pytest.mark.parametrize(
    "make",
    [
        lambda w: AdamW([w], lr=0.01, schedule=lambda step: 1 / (1 + step)),
        lambda w: SGD([w], lr=0.1, momentum=0.9),
    ],
)
def test_stopped_and_resumed_is_the_same(
    dev: tensai.Device, tmp_path: Path, make: Callable[[Parameter], Optimizer]
) -> None:
    w = Parameter(dev.upload(START))
    optimizer = make(w)
    for _ in range(4):
        our_step(w, optimizer)
    path = tmp_path / "state.safetensors"
    tensai.save(path, {"w": w}, optimizer)
    for _ in range(4):
        our_step(w, optimizer)
    again = Parameter(dev.zeros(START.shape))
    resumed = make(again)
    tensai.load(path, {"w": again}, resumed)
    for _ in range(4):
        our_step(again, resumed)
    assert np.array_equal(again.download(), w.download())  # bit for bit


def test_save_and_load_tensors(dev: tensai.Device, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    given = {
        "a": dev.upload(START),
        "half": dev.upload(START.astype(np.float16)),
        "whole": dev.upload(np.arange(5, dtype=np.int32)),
        "flags": dev.upload(np.array([True, False])),
        "single": dev.upload(np.float32(3)),
        "empty": dev.zeros((0, 4)),
        "host": np.arange(3, dtype=np.uint32),
    }
    tensai.save(path, given)
    arrays = tensai.load(path)
    tensors = tensai.load(path, device=dev)
    for name, value in given.items():
        expected = np.asarray(value)
        assert isinstance(arrays[name], np.ndarray)
        assert isinstance(tensors[name], tensai.Tensor)
        for got in (arrays[name], tensors[name].download()):
            assert got.dtype == expected.dtype and got.shape == expected.shape
            assert np.array_equal(got, expected)
    assert sorted(os.listdir(tmp_path)) == ["t.safetensors"]


def test_what_does_not_fit_changes_nothing(dev: tensai.Device, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    w = Parameter(dev.upload(START))
    optimizer = AdamW([w])
    our_step(w, optimizer)
    tensai.save(path, {"w": w, "b": dev.ones(3)}, optimizer)
    other = Parameter(dev.zeros(START.shape))
    into_own = {"w": other, "b": Parameter(dev.zeros(3))}
    refused: list[tuple[dict[str, Any], Optimizer | None, str]] = [
        ({"w": other}, None, "nothing asks for b"),
        ({**into_own, "c": dev.ones(3)}, None, "it lacks c"),
        ({**into_own, "b": dev.zeros(4)}, None, r"b is float32 \(3,\)"),
        ({**into_own, "b": dev.zeros(3, np.int32)}, None, "int32"),
        (into_own, SGD([other]), "another optimizer's state"),
        (into_own, AdamW([Parameter(dev.zeros(4))]), "its parameter is"),
    ]
    for into, own, message in refused:
        with pytest.raises(ModelError, match=message):
            tensai.load(path, into, own)
        assert not other.download().any()
    tensai.save(path, {"w": w})
    with pytest.raises(ModelError, match="no optimizer's state"):
        tensai.load(path, {"w": other}, AdamW([other]))
    with pytest.raises(ValueError, match="not one"):
        optimizer.load_state_dict({"0.m": START})
    with pytest.raises(ShapeError):
        optimizer.load_state_dict({"step": 1, "0.step": 1, "0.m": START[:2], "0.v": START})
    with pytest.raises(ValueError, match="incomplete"):
        optimizer.load_state_dict({"step": 1, "0.m": START, "0.v": START})
    for steps in (-1, 2.7, 1 << 40, None, "1"):
        with pytest.raises(ValueError, match="whole number"):
            optimizer.load_state_dict({"step": steps})
    with pytest.raises(ValueError, match="more than the optimizer"):
        optimizer.load_state_dict({"step": 1, "0.step": 2, "0.m": START, "0.v": START})


def test_what_cannot_be_saved(dev: tensai.Device, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    for name, value in (("__metadata__", 1.0), ("optimizer.m", 1.0), (3, 1.0)):
        with pytest.raises(ValueError, match="name"):
            tensai.save(path, {name: value})  # type: ignore[dict-item]
    for value in (None, "text", 1j, np.datetime64("2020-01-01"), np.zeros(2, "i4,f4")):
        with pytest.raises(DTypeError, match="'odd'"):
            tensai.save(path, {"odd": value})
    with pytest.raises(IsADirectoryError, match="folder"):
        tensai.save(tmp_path, {"w": 1.0})
    with pytest.raises(FileNotFoundError, match="does not exist"):
        tensai.save(tmp_path / "none" / "t", {"w": 1.0})
    assert not os.listdir(tmp_path)
    swapped = np.arange(3, dtype=">f4")
    tensai.save(path, {"w": swapped, "wide": np.arange(3.0)})
    assert tensai.load(path)["w"].tolist() == [0, 1, 2]
    assert tensai.load(path)["wide"].dtype == np.float64
    link = tmp_path / "latest"
    link.symlink_to(path)
    tensai.save(link, {"w": np.float32(5)})
    assert link.is_symlink() and tensai.load(path)["w"] == 5
    with pytest.raises(DTypeError, match="fills tensors"):
        tensai.load(path, {"w": np.zeros(())})  # type: ignore[dict-item]
    given: list[Any] = [[dev.ones(1)], dev.ones(1), "w", None]
    for tensors in given:
        with pytest.raises(DTypeError, match="dict of named tensors"):
            tensai.save(path, tensors)
        if tensors is not None:
            with pytest.raises(DTypeError, match="dict of named tensors"):
                tensai.load(path, tensors)
    with pytest.raises(ValueError, match="not both"):
        tensai.load(path, {"w": dev.zeros(())}, device=dev)
    named = tmp_path / ("n" * 250)
    tensai.save(named, {"w": 1.0})


def test_damaged_files(dev: tensai.Device, tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    tensai.save(path, {"w": dev.ones((3, 4))})
    whole = path.read_bytes()
    for damaged in (b"", whole[:7], whole[:-5], b"\xff" * 8 + whole[8:], b"nonsense" * 20):
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match="damaged"):
            tensai.load(path)
    with pytest.raises(FileNotFoundError):
        tensai.load(tmp_path / "none")


def test_a_stopped_save_leaves_the_old_file(
    dev: tensai.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.safetensors"
    tensai.save(path, {"w": dev.ones(3)})

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        tensai.save(path, {"w": dev.zeros(3)})
    assert os.listdir(tmp_path) == ["t.safetensors"]
    assert tensai.load(path)["w"].tolist() == [1, 1, 1]
