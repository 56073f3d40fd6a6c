"""`tensai info`, the command dispatcher, and opening devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import tensai
from tensai import info
from tensai.__main__ import COMMANDS, main
from tensai.operation import OPERATIONS, Job, Kernel
from wgpu_native_py.find import find_library


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tensai", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )


def test_info_names_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert info.main([]) == 0
    shown = capsys.readouterr().out
    api = os.environ.get("TENSAI_WGPU_API") or "v29"
    assert "chosen: llvmpipe" in shown or os.environ.get("TENSAI_TEST_ANY_ADAPTER")
    assert f"({api})" in shown
    assert "  * " in shown


def test_info_json_and_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert info.main(["--json", "--check"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["problem"] is None
    assert report["library"]["version"].split(".")[0] == report["library"]["api"][1:]
    assert report["check"].keys() == OPERATIONS.keys()
    assert all(verdict["ok"] for verdict in report["check"].values())


ZERO = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(1) fn main() { out[0] = 0.0 * x[0]; }
"""


@pytest.mark.fallback_expected
def test_check_shows_a_broken_kernel(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(job: Job) -> None:
        job.step(ZERO, {}, [job.inputs[0], job.outputs[0]], b"", 1)

    for name, operation in list(OPERATIONS.items()):
        if name != "sum":
            monkeypatch.delitem(OPERATIONS, name)  # what is fine takes its time
        else:
            monkeypatch.setattr(operation, "kernels", (Kernel("sum_reading_back_0", plan),))
    assert info.main(["--check"]) == 1
    row, why = capsys.readouterr().out.splitlines()[-2:]
    assert row.split() == ["sum", "CPU", "NumPy"]
    assert "kernel sum_reading_back_0 of sum gave 0.0 where" in why
    assert "was expected" in why


def test_info_without_a_device() -> None:
    done = run("info", VK_DRIVER_FILES="/nonexistent", VK_ICD_FILENAMES="/nonexistent")
    assert done.returncode == 1
    assert "no device: no adapter was found" in done.stdout
    assert "mesa-vulkan-drivers" in done.stdout
    assert done.stderr == ""


def test_info_without_a_library() -> None:
    done = run("info", TENSAI_WGPU_LIB="/nonexistent/libwgpu_native.so")
    assert done.returncode == 1
    assert "/nonexistent/libwgpu_native.so" in done.stdout
    assert "wgpu_native_py.fetch" in done.stdout


def test_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert tensai.__version__ in capsys.readouterr().out
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)
    assert main([]) == 2
    assert main(["nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_import_loads_nothing() -> None:
    code = (
        "import sys, tensai\n"
        "assert not {'numpy', 'cffi', 'wgpu_native_py', 'wgpu'} & set(sys.modules), sys.modules\n"
        "assert callable(tensai.open) and callable(tensai.adapters)\n"
        "tensai.adapters()\n"
        "assert callable(tensai.adapters)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


def test_adapters_lists_and_open_chooses() -> None:
    found = tensai.adapters()
    assert found
    for index, item in enumerate(found):
        with tensai.open(adapter=index) as dev:
            assert dev.info == item
        with tensai.open(adapter=item.device[:6].upper()) as dev:
            assert item.device[:6] in dev.name
    with pytest.raises(
        tensai.DeviceNotFoundError, match="there is no adapter 99; these were found: 0: "
    ):
        tensai.open(adapter=99)
    with pytest.raises(tensai.DeviceNotFoundError, match="'nonsense'; these were found: 0: "):
        tensai.open(adapter="nonsense")
    with pytest.raises(ValueError, match="power"):
        tensai.open(power="medium")
    with pytest.raises(ValueError, match="cuda"):
        tensai.open("cuda")
    with pytest.raises(ValueError, match="v30"):
        tensai.open(api="v30")


def test_open_without_adapters() -> None:
    code = (
        "import tensai\n"
        "assert tensai.adapters() == []\n"
        "try:\n    tensai.open()\n"
        "except tensai.DeviceNotFoundError as error:\n    print(error)\n"
        "print(tensai.open(fallback='cpu').info.backend)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"},
    )
    assert done.returncode == 0, done.stderr
    assert "mesa-vulkan-drivers" in done.stdout
    assert done.stdout.endswith("CPU\n")


def test_no_adapter_speaks_of_the_library_that_was_asked_for() -> None:
    for api, other in (("v22", "v29"), ("v29", "v22")):
        library = find_library(api).path
        code = (
            "import tensai\n"
            f"try:\n    tensai.open(library={str(library)!r})\n"
            "except tensai.DeviceNotFoundError as error:\n    print(error)\n"
        )
        hidden = {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
        environment = {**os.environ, **hidden, "TENSAI_WGPU_API": other}
        environment.pop("TENSAI_WGPU_LIB", None)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment
        )
        assert f"wgpu-native {api[1:]}." in done.stdout, done.stderr
