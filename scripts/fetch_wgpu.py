"""Fetch the wgpu-native library from a source checkout, with nothing installed.

The same as `python -m wgpu_native_py.fetch` of an installed tensai.
"""

import sys
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036  (a checkout may be run by any Python)
    sys.exit("tensai needs Python 3.10 or newer; this is " + sys.version.split()[0])

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from wgpu_native_py.fetch import fetch, main

__all__ = ["fetch", "main"]

if __name__ == "__main__":
    sys.exit(main())
