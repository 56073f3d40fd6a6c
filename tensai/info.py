"""`tensai info`: what was found, where, what was chosen and why, and what mends what is missing."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import textwrap
import time
from dataclasses import asdict
from typing import Any

from . import opening, selfcheck
from .device import Device
from .errors import TensaiError
from .gpu import device_info
from .version import __version__

Report = dict[str, Any]


def gather() -> tuple[Report, Device | None]:
    """What there is to say, and the device if one opened."""
    from wgpu_native_py.find import list_libraries

    report: Report = {
        "tensai": __version__,
        "libraries": [
            {"path": str(found.path), "source": found.source, "api": found.api_hint}
            for found in list_libraries()
        ],
        "library": None,
        "adapters": [],
        "device": None,
        "problem": None,
    }
    try:
        found = opening.enumerate_adapters()
        report["adapters"] = [asdict(device_info(item.info)) for item in found]
        _, why = opening.choose()
        device = opening.open()
    except (TensaiError, ValueError) as error:
        report["problem"] = str(error)
        return report, None
    library = device.library
    assert library is not None
    report["library"] = {
        "path": str(library.path),
        "version": library.version,
        "api": library.api,
    }
    report["device"] = {
        **asdict(device.info),
        "why": why,
        "features": sorted(device.features),
        "self_check": selfcheck.mode(),
        "limits": {
            name: device.limits[name]
            for name in (
                "maxStorageBufferBindingSize",
                "maxBufferSize",
                "maxComputeWorkgroupStorageSize",
                "maxComputeInvocationsPerWorkgroup",
            )
        },
    }
    return report, device


def show(report: Report) -> None:
    """Print a report for a person."""
    print(f"tensai {report['tensai']}\n")
    print("wgpu-native libraries")
    chosen = report["library"]
    for found in report["libraries"]:
        used = chosen is not None and os.path.realpath(found["path"]) == chosen["path"]
        mark = "*" if used else " "
        print(f"  {mark} {found['api'] or '?':5} {found['source']:8} {found['path']}")
    if not report["libraries"]:
        print("    none")
    print("\nadapters")
    for index, adapter in enumerate(report["adapters"]):
        print(f"    {index}: {adapter['name']}")
        print(f"       {adapter['backend']}, {adapter['driver']}")
    if not report["adapters"]:
        print("    none")
    print()
    device = report["device"]
    if device is None:
        print(_wrapped(f"no device: {report['problem']}", ""))
        return
    limits = device["limits"]
    print(f"chosen: {device['name']},\n    because {device['why']}")
    print(f"    library     wgpu-native {chosen['version']} ({chosen['api']})")
    print(_wrapped(f"    features    {', '.join(device['features']) or 'none'}", " " * 16))
    print(f"    tensors     up to {limits['maxStorageBufferBindingSize'] / 2**20:,.0f} MiB each")
    print(
        f"    workgroups  {limits['maxComputeInvocationsPerWorkgroup']} invocations, "
        f"{limits['maxComputeWorkgroupStorageSize'] // 1024} KiB of memory"
    )
    print(f"    self-check  {device['self_check']}")
    if device["software"]:
        print(
            "\nThis adapter computes on the CPU. For a GPU, install its Vulkan driver;\n"
            "`vulkaninfo --summary` shows what the system offers."
        )


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text, 80, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def check(device: Device, as_json: bool) -> Report:
    """Run every self-check; print a table unless the report is for a script."""
    start = time.perf_counter()
    verdicts = device.self_check()
    seconds = time.perf_counter() - start
    if not as_json:
        print(f"\nself-check of {len(verdicts)} operations, {seconds:.1f} s")
        for verdict in verdicts.values():
            state = "ok" if verdict.ok else "CPU"
            kernels = ", ".join(verdict.kernels) or "NumPy"
            print(f"    {verdict.operation:14} {state:4} {kernels}")
            for failure in verdict.failures:
                print(f"        {failure}")
    return {name: asdict(verdict) for name, verdict in verdicts.items()}


def main(argv: list[str] | None = None) -> int:
    """The command; 1 when there is no device, or --check found an operation without a kernel."""
    parser = argparse.ArgumentParser(prog="tensai info", description=(__doc__ or "").split(": ")[1])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--check", action="store_true", help="check every kernel on the device")
    options = parser.parse_args(argv)
    logger = logging.getLogger("tensai")
    level = logger.level
    logger.setLevel(logging.ERROR)  # the report says it all
    try:
        return _run(options)
    finally:
        logger.setLevel(level)


def _run(options: argparse.Namespace) -> int:
    report, device = gather()
    if not options.json:
        show(report)
    status = 0
    if device is None:
        status = 1
    elif options.check:
        report["check"] = check(device, options.json)
        status = int(not all(verdict["ok"] for verdict in report["check"].values()))
    if options.json:
        print(json.dumps(report, indent=2))
    if device is not None:
        device.close()
    return status


if __name__ == "__main__":
    from .__main__ import main as command

    sys.exit(command(["info", *sys.argv[1:]]))
