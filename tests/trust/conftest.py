"""Fixtures for the tests of what tensai promises when things go wrong.

`child` runs Python in a process of its own, since what these tests look for may end it; with
`faults`, on a driver that a Vulkan layer (tests/layer) gives faults. TENSAI_TRUST=full makes the
long tests long: a million cycles, a thousand devices.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LAYER = HERE.parent / "layer"
NAME = "VK_LAYER_TENSAI_faults"
FULL = os.environ.get("TENSAI_TRUST") == "full"

# What children begin with. `fault` sets a variable of the loaded layer, or gives its value.
PRELUDE = """
import ctypes, gc, os, sys
import numpy as np
import tensai
def fault(name, value=None):
    variable = ctypes.c_int.in_dll(ctypes.CDLL(os.environ["FAULT_LAYER"]), name)
    if value is not None:
        variable.value = value
    return variable.value
def raises(kind, use, *words):
    try:
        use()
    except kind as error:
        for word in words:
            assert word in str(error), (word, str(error))
    else:
        raise AssertionError(f"{use} raised nothing")
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("trust")
            if FULL:
                item.add_marker(pytest.mark.timeout(7200))


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether the long tests are to be long."""
    return FULL


@pytest.fixture(scope="session")
def layer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment that puts the layer of faults between the loader and the driver."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the layer is built and loaded as Linux does it")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        assert not os.environ.get("CI"), "CI must have a C compiler"
        pytest.skip("no C compiler, which the layer of faults needs (Debian: gcc libc6-dev)")
    folder = tmp_path_factory.mktemp("layer")
    library = folder / "libfaults.so"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    source = str(LAYER / "faults.c")
    command = [compiler, *flags, "-fvisibility=hidden", "-o", str(library), source, "-lpthread"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    described = {
        "name": NAME,
        "type": "GLOBAL",
        "library_path": str(library),
        "api_version": "1.3.0",
        "implementation_version": "1",
        "description": "Faults of drivers, for tests",
    }
    manifest = {"file_format_version": "1.1.0", "layer": described}
    (folder / "faults.json").write_text(json.dumps(manifest), encoding="utf-8")
    return {
        "VK_LAYER_PATH": str(folder),
        "VK_INSTANCE_LAYERS": NAME,
        "FAULT_LAYER": str(library),
    }


Child = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def child() -> Child:
    """child(code, **environment): the code's process, which has ended."""

    def run(
        code: str, timeout: float = 300, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", PRELUDE + code],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **environment},
        )

    return run


@pytest.fixture
def silent(child: Child) -> Callable[..., str]:
    """As child(), of code that must end well and say nothing but what it prints: its output."""

    def run(code: str, **options: str) -> str:
        done = child(code, **{"RUST_BACKTRACE": "0", **options})
        said = done.stderr.replace(
            "no GPU was found: llvmpipe", "\0"
        )  # a warning that is meant, with the driver's version
        lines = [line for line in said.splitlines() if not line.startswith("\0")]
        assert (done.returncode, lines) == (0, []), done.stderr[-3000:]
        return done.stdout

    return run
