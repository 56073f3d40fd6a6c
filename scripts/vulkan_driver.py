"""Make sure that Linux has some Vulkan driver: without a GPU, Mesa's software driver (lavapipe).

A machine with a driver, and any other system, is left as it is. Set TENSAI_KEEP_DRIVERS=1 to have
nothing installed or asked. The exit status is always 0: what needs a device says so itself.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

# Not left to the interpreter, which under PYTHONSAFEPATH does not look beside a script.
sys.path.insert(0, str(Path(__file__).resolve().parent))

import system_packages

PACKAGES = ["mesa-vulkan-drivers", "libvulkan1"]


def ensure() -> bool:
    """Install Mesa's driver where there is none; True when there is one afterwards."""
    if not sys.platform.startswith("linux") or (has_driver() and has_loader()):
        return True
    if os.environ.get("TENSAI_KEEP_DRIVERS"):
        return False
    return system_packages.install(
        PACKAGES, "This machine has no Vulkan driver; Mesa's runs on a CPU or a GPU."
    )


def has_driver() -> bool:
    """Whether a driver's manifest is anywhere that the Vulkan loader looks."""
    environment = os.environ
    named = ("VK_DRIVER_FILES", "VK_ADD_DRIVER_FILES", "VK_ICD_FILENAMES")
    if any(environment.get(name) for name in named):
        return True
    home = Path(environment.get("HOME", "/"))
    lists = [
        environment.get("XDG_CONFIG_HOME") or str(home / ".config"),
        environment.get("XDG_CONFIG_DIRS") or "/etc/xdg",
        "/etc",
        environment.get("XDG_DATA_HOME") or str(home / ".local/share"),
        environment.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share",
    ]
    folders = [Path(folder) for entry in lists for folder in entry.split(":") if folder]
    return any(any((folder / "vulkan/icd.d").glob("*.json")) for folder in folders)


def has_loader() -> bool:
    """Whether the Vulkan loader can be loaded."""
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return False
    return True


if __name__ == "__main__":
    ensure()
