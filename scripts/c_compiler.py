"""Make sure that Linux has a C compiler: tests build a Vulkan layer that gives a driver faults.

Other systems, and one that has a compiler, are left as they are. The exit status is always 0:
without a compiler those tests are skipped and say why, and in CI they fail.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

# Not left to the interpreter, which under PYTHONSAFEPATH does not look beside a script.
sys.path.insert(0, str(Path(__file__).resolve().parent))

import system_packages

PACKAGES = ["gcc", "libc6-dev"]


def ensure() -> bool:
    """Install Debian's compiler where there is none; True when there is one afterwards."""
    if not sys.platform.startswith("linux") or shutil.which("cc") or shutil.which("gcc"):
        return True
    return system_packages.install(PACKAGES, "The tests of faulty drivers need a C compiler.")


if __name__ == "__main__":
    ensure()
