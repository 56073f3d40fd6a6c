"""Fixtures for every test: the devices, the environment, and a guard against silent fallbacks.

`gpu` is the device of the C API generation that TENSAI_WGPU_API says, `cpu` the NumPy device, and
a test that takes `dev` runs on both. A test during which a kernel is given up for NumPy fails,
since its result would be right whatever the kernel does; `fallback_expected` says that it is meant,
and TENSAI_TEST_FALLBACKS that the driver is known to lack what kernels need.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest

import tensai

# Before any device is opened, and for the processes that tests start.
os.environ["NODEVICE_SELECT"] = "1"  # Mesa's device-selection layer writes to stderr without it
os.environ["TENSAI_SELF_CHECK"] = "always"  # what an earlier run found out must not count
os.environ["HF_HUB_OFFLINE"] = "1"
# A shell starts what runs in the background with Ctrl-C ignored, and children would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

EXPECTED_ADAPTER = "llvmpipe"


class _Fallbacks(logging.Handler):
    """Collects the warnings about operations that run on the CPU instead of a device."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if "runs on the CPU instead" in message:
            self.messages.append(message)


_fallbacks = _Fallbacks()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--api", choices=("v22", "v29"), help="the generation, as TENSAI_WGPU_API")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--api"):
        os.environ["TENSAI_WGPU_API"] = config.getoption("--api")
    config.addinivalue_line(
        "markers", "fallback_expected: an operation may run on the CPU instead of the device"
    )
    logging.getLogger("tensai").addHandler(_fallbacks)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that passed with NumPy's help; what its fixtures did counts as well."""
    try:
        result = yield
    finally:
        given_up = _fallbacks.messages.copy()
        _fallbacks.messages.clear()
    if os.environ.get("TENSAI_TEST_FALLBACKS"):
        return result
    if given_up and item.get_closest_marker("fallback_expected") is None:
        pytest.fail("an operation was left to the CPU:\n" + "\n".join(given_up), pytrace=False)
    return result


@pytest.fixture(autouse=True)
def _logger_as_it_was() -> Iterator[None]:
    """Commands that run inside a test may quieten the logger; later tests must hear it."""
    logger = logging.getLogger("tensai")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture(scope="session")
def gpu() -> Iterator[tensai.Device]:
    """The device that tensai.open() chooses; in CI it must be the software one that is pinned."""
    with tensai.open() as device:
        if os.environ.get("CI") and not os.environ.get("TENSAI_TEST_ANY_ADAPTER"):
            assert EXPECTED_ADAPTER in device.info.device, device.name
        wanted = os.environ.get("TENSAI_WGPU_API")
        assert wanted in (None, "", device.library.api)
        yield device


@pytest.fixture(scope="session")
def cpu() -> Iterator[tensai.Device]:
    """The NumPy device."""
    with tensai.open("cpu") as device:
        yield device


@pytest.fixture(scope="session", params=["gpu", "cpu"])
def dev(request: pytest.FixtureRequest) -> tensai.Device:
    """The GPU device, then the NumPy device: they must not differ."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def still_works(request: pytest.FixtureRequest) -> Iterator[None]:
    """After the errors of a test its device computes as before, on tensors from before."""
    name = next((name for name in ("dev", "gpu") if name in request.fixturenames), None)
    if name is None:
        yield
        return
    device = request.getfixturevalue(name)
    values = np.arange(217, dtype=np.float32).reshape(31, 7)
    kept = device.upload(values)
    pending = kept * 2
    yield
    assert np.array_equal(kept.download(), values)
    assert np.array_equal(pending.download(), values * 2)
    assert np.array_equal((kept + pending).download(), values * 3)
    device.synchronize()
