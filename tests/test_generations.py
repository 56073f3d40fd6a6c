"""Both C API generations in one process, and what is said when one stands in for the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from compare import numbers, same, wide

import tensai

GENERATIONS = ("v22", "v29")
f32 = np.float32


@pytest.fixture
def both() -> Iterator[dict[str, Any]]:
    with tensai.open(api="v22") as old, tensai.open(api="v29") as new:
        yield {"v22": old, "v29": new}


def test_each_is_what_was_asked_for(both: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for api, device in both.items():
        assert device.library.api == api
        assert device.library.version.split(".")[0] == api[1:]
    assert both["v22"].library.path != both["v29"].library.path
    # The argument comes before the environment.
    for said, wanted in (("v22", "v29"), ("v29", "v22")):
        monkeypatch.setenv("TENSAI_WGPU_API", said)
        with tensai.open(api=wanted) as device:
            assert device.library.api == wanted
        with tensai.open() as device:
            assert device.library.api == said
    monkeypatch.delenv("TENSAI_WGPU_API")
    with tensai.open() as device:
        assert device.library.api == "v29"  # where both are found


def test_alternately(both: dict[str, Any]) -> None:
    x, y = numbers((67, 33)), numbers((33, 70), seed=2)
    a = {api: device.upload(x) for api, device in both.items()}
    b = {api: device.upload(y) for api, device in both.items()}
    for _ in range(3):
        for api in GENERATIONS:
            b[api] = (a[api] @ b[api]).softmax(0)[:33] + 0.5
    results = [b[api].download() for api in GENERATIONS]
    right = wide(y)
    for _ in range(3):
        product = wide(x) @ right
        weights = np.exp(product - product.max(axis=0))
        right = (weights / weights.sum(axis=0))[:33] + 0.5
    for result in results:
        same(result, right, 1e-5)


def test_work_of_both_is_pending_at_once(both: dict[str, Any]) -> None:
    x = numbers((1000,))
    with both["v22"].batch(), both["v29"].batch():
        sums = {api: [] for api in GENERATIONS}
        for number in range(10):
            for api in GENERATIONS:
                sums[api].append((both[api].upload(x) + number).sum())
    for api in GENERATIONS:
        for number, total in enumerate(sums[api]):
            right = (wide(x) + number).sum()
            assert total.item() == pytest.approx(right, abs=1e-3)


def test_a_thread_for_each(both: dict[str, Any]) -> None:
    failures: list[BaseException] = []

    def work(device: Any) -> None:
        try:
            for number in range(30):
                x = numbers((50, 60), seed=number)
                t = device.upload(x)
                same(t @ t.T, wide(x) @ wide(x).T, 1e-5)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(device,)) for device in both.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_tensors_do_not_mix(both: dict[str, Any]) -> None:
    a, b = (device.upload(numbers((4, 4))) for device in both.values())
    for use in (lambda: a + b, lambda: b @ a, lambda: a.maximum(b)):
        with pytest.raises(tensai.DeviceMismatchError):
            use()
    same(both["v22"].upload(b) + a, numbers((4, 4)) * f32(2))


def test_one_closes_and_the_other_goes_on(both: dict[str, Any]) -> None:
    for api in GENERATIONS:
        with tensai.open(api=api) as device:
            t = device.upload(numbers((30,)))
            pending = t + 1
        with pytest.raises(tensai.DeviceLostError):
            pending.download()
        for other in both.values():
            same(other.upload(numbers((30,))) * 2, numbers((30,)) * f32(2))


@pytest.mark.parametrize(("api", "other"), [GENERATIONS, GENERATIONS[::-1]])
def test_the_wrong_library(
    both: dict[str, Any], api: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = both[other].library.path
    with pytest.raises(tensai.LibraryMismatchError) as caught:
        tensai.open(api=api, library=path)
    for part in (api, other, str(path)):
        assert part in str(caught.value)
    monkeypatch.delenv("TENSAI_WGPU_API", raising=False)
    with tensai.open(library=path) as device:
        assert device.library.api == other
    monkeypatch.setenv("TENSAI_WGPU_LIB", str(path))
    with pytest.raises(tensai.LibraryMismatchError):
        tensai.open(api=api)
    monkeypatch.setenv("TENSAI_WGPU_API", api)
    with pytest.raises(tensai.LibraryMismatchError):
        tensai.open()
    monkeypatch.delenv("TENSAI_WGPU_API")
    with tensai.open() as device:
        assert device.library.api == other
