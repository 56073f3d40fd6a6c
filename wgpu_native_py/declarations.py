"""The C declarations of each generation, as a cffi object.

Parsing a header takes cffi about 0.1 s, and each structure type's first use a few milliseconds
more. cffi can write the parsed form as a Python module that loads in 3 ms; it is kept in the cache
folder, under a name that holds the hash of all that it depends on.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import os
import tempfile
from pathlib import Path
from typing import Any

from .paths import cache_dir


def header_text(api: str) -> str:
    """The declarations of one generation, in C."""
    here = Path(__file__).parent
    installed = here / "headers" / f"{api}.h"
    path = installed if installed.exists() else here.parent / "headers" / f"{api}.h"
    return path.read_text(encoding="utf-8")


def ffi_for(api: str) -> Any:
    """An FFI object that knows the declarations of one generation."""
    import _cffi_backend

    text = header_text(api)
    digest = hashlib.sha256(f"{_cffi_backend.__version__}\0{text}".encode()).hexdigest()[:24]
    path = cache_dir() / "declarations" / f"{api}_{digest}.py"
    with contextlib.suppress(Exception, SystemExit):  # a damaged file is as good as none
        return _load(path)
    from cffi import FFI

    parsed = FFI()
    parsed.cdef(text)
    parsed.set_source(path.stem, None)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            written = Path(folder) / path.name
            with contextlib.redirect_stdout(io.StringIO()):  # it says what it generates
                parsed.emit_python_code(str(written))
            os.replace(written, path)
        return _load(path)
    except OSError:
        # No folder to write to: the slow form works as well.
        again = FFI()
        again.cdef(text)
        return again


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ffi
