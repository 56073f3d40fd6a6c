"""From a fresh clone to the demo or the tests, with nothing installed but Python:

    python3 scripts/bootstrap.py demo
    python3 scripts/bootstrap.py test

Makes an environment of its own (.venv-bootstrap) that holds tox, and runs `tox -e demo` or `tox`
in it; further arguments go on to tox. The system's Python is not touched, so this also works
where it refuses installs. Only the standard library is used, in syntax that old Pythons can read.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

# Not left to the interpreter, which under PYTHONSAFEPATH does not look beside a script.
sys.path.insert(0, str(Path(__file__).resolve().parent))

import system_packages
import vulkan_driver

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 10)
TOX = "tox>=4.22,<5"
ENVIRONMENT = ROOT / ".venv-bootstrap"
PYTHON = ENVIRONMENT / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = ENVIRONMENT / "ready"
TOX_ARGUMENTS = {"demo": ["run", "-e", "demo"], "test": ["run"]}


def main(arguments: list[str]) -> int:
    """Run one of the two commands; gives its exit status."""
    if not arguments or arguments[0] not in TOX_ARGUMENTS:
        wants_help = arguments[:1] in (["-h"], ["--help"])
        print(__doc__.strip(), file=sys.stdout if wants_help else sys.stderr)
        return 0 if wants_help else 2
    if sys.version_info < OLDEST:
        return run_with_newer_python(arguments)
    if not make_environment():
        return 1
    if not vulkan_driver.ensure():
        # It has been said once; the tox environments need not ask again.
        os.environ["TENSAI_KEEP_DRIVERS"] = "1"
    command = [str(PYTHON), "-m", "tox", *TOX_ARGUMENTS[arguments[0]], *arguments[1:]]
    return subprocess.call(command, cwd=ROOT)


def run_with_newer_python(arguments: list[str]) -> int:
    """Hand over to a newer Python on the PATH, or say that one is needed."""
    for minor in range(20, OLDEST[1] - 1, -1):
        newer = shutil.which(f"python3.{minor}")
        # A version manager's stand-in is on the PATH even for a Python that it would not start.
        if newer and subprocess.call([newer, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            return subprocess.call([newer, str(Path(__file__).resolve()), *arguments])
    system_packages.say(
        f"tensai needs Python {OLDEST[0]}.{OLDEST[1]} or newer; this is {sys.version.split()[0]} "
        f"({sys.executable}). Install a newer one and run this script with it."
    )
    return 1


def make_environment() -> bool:
    """Make the environment with tox in it, unless it is there and made by this Python."""
    stamp = "\n".join([TOX, sys.version, sys.executable])
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text(encoding="utf-8") == stamp:
        return True
    system_packages.say(f"Making an environment for tox in {ENVIRONMENT}")
    if importlib.util.find_spec("ensurepip") is None:
        # Debian keeps it in a package of its own, and venv fails without it.
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        if not system_packages.install([package], "This Python can't make environments yet."):
            return False
    steps = [
        [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)],
        [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", TOX],
    ]
    for step in steps:
        if subprocess.call(step) != 0:
            system_packages.say(
                f"That did not work: `{' '.join(step)}`. Its message above says why; run this "
                "again once it is mended."
            )
            return False
    STAMP.write_text(stamp, encoding="utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
