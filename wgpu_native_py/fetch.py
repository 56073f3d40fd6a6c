"""Fetching the pinned wgpu-native libraries: `python -m wgpu_native_py.fetch`.

Nothing is put in place before its sha256 was compared with the pin.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from .errors import FetchError, WgpuError
from .find import APIS, requested_api
from .paths import library_dir
from .pins import Pin, pin
from .wheels import download_wheel, explain, extract, file_sha256

SOURCES = ("pypi", "github")
RELEASES = "https://github.com/gfx-rs/wgpu-native/releases/download"

_CHUNK = 1 << 17
_CONNECT_AND_READ_TIMEOUT = (15, 60)


def fetch(
    api: str | None = None,
    source: str = "pypi",
    dest: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> list[Path]:
    """Put the library of one generation, or of both, where tensai finds it; gives the paths.

    ``api`` is "v22", "v29" or "both"; None means TENSAI_WGPU_API, or v29 where that is unset.
    ``source`` is "pypi" (a wheel, by the user's pip) or "github" (the release archive). ``dest``
    replaces the ``lib`` folder of tensai's cache. A file that is there already with the right
    hash is kept, and then nothing is downloaded. Raises FetchError, and leaves no partial file.
    """
    return [_fetch_one(one, source, dest, progress)[0] for one in _generations(api, source)]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m wgpu_native_py.fetch",
        description="Fetch the wgpu-native library that tensai runs on.",
    )
    parser.add_argument(
        "--api",
        choices=(*APIS, "both"),
        help="which C API generation (default: TENSAI_WGPU_API, else v29)",
    )
    parser.add_argument(
        "--source",
        choices=SOURCES,
        default="pypi",
        help="a Python wheel, downloaded by pip with your settings, or the release archive",
    )
    parser.add_argument("--dest", help="a folder to put it in, instead of tensai's cache")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(arguments)
    results = []
    try:
        for api in _generations(options.api, options.source):
            path, fresh = _fetch_one(api, options.source, options.dest, progress=True)
            version = pin(api).version
            results.append({"api": api, "version": version, "path": str(path), "downloaded": fresh})
            if not options.json:
                state = "fetched" if fresh else "already there"
                print(f"wgpu-native {version} ({api}), {state}: {path}")
    except (WgpuError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; nothing partial was left", file=sys.stderr)
        return 130
    if options.json:
        print(json.dumps({"libraries": results}, indent=2))
    return 0


def _generations(api: str | None, source: str) -> tuple[str, ...]:
    if source not in SOURCES:
        raise ValueError(f"source={source!r} is unknown; it must be {' or '.join(SOURCES)}")
    if api == "both":
        return APIS
    return (requested_api(api) or "v29",)


def _fetch_one(
    api: str, source: str, dest: str | os.PathLike[str] | None, progress: bool
) -> tuple[Path, bool]:
    """Fetch one library; gives its path, and whether anything was downloaded."""
    wanted = pin(api)
    folder = library_dir(api, dest)
    path = folder / wanted.file_name
    try:
        if path.is_file() and file_sha256(path) == wanted.sha256:
            return path, False
    except OSError as error:
        raise FetchError(f"could not read {path}: {explain(error)}") from error
    if source == "pypi":
        member = wanted.wheel_member
        archive = download_wheel(wanted.requirement, progress=progress)
    else:
        member = wanted.release_member
        archive = _download_release(wanted, progress)
    with contextlib.ExitStack() as cleanup:
        try:
            file = cleanup.enter_context(archive)
        except FetchError as error:
            other = next(name for name in SOURCES if name != source)
            raise FetchError(f"{error}. The other source is --source {other}") from error
        extract(file, {member: wanted.file_name}, folder, {member: wanted.sha256})
    return path, True


@contextlib.contextmanager
def _download_release(wanted: Pin, progress: bool) -> Iterator[Path]:
    """The release archive, in a folder that is deleted afterwards."""
    try:
        import requests
    except ImportError as error:
        raise FetchError(
            f"--source github needs the requests package: {sys.executable} -m pip install requests"
        ) from error

    url = f"{RELEASES}/v{wanted.version}/{wanted.release_asset}"
    with contextlib.ExitStack() as cleanup:
        try:
            folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="tensai-"))
            path = Path(folder) / wanted.release_asset
            answer = cleanup.enter_context(
                requests.get(url, stream=True, timeout=_CONNECT_AND_READ_TIMEOUT)
            )
            answer.raise_for_status()
            expected = int(answer.headers.get("Content-Length", 0))
            received = 0
            with path.open("wb") as file, _ProgressLine(path.name, expected, progress) as line:
                for chunk in answer.iter_content(_CHUNK):
                    file.write(chunk)
                    received += len(chunk)
                    line.show(received)
        # requests' own errors are OSErrors too: they go first.
        except requests.RequestException as error:
            raise FetchError(
                f"could not download {url}: {error}; check the network, and HTTPS_PROXY and "
                "REQUESTS_CA_BUNDLE if you are behind a proxy"
            ) from error
        except OSError as error:
            raise FetchError(f"could not store {wanted.release_asset}: {explain(error)}") from error
        if received < expected:
            raise FetchError(f"{url} broke off after {received} of {expected} bytes; try again")
        yield path


class _ProgressLine:
    """One line on a terminal that says how far a download is; silent anywhere else."""

    def __init__(self, name: str, expected: int, wanted: bool) -> None:
        self.name = name
        self.total = f" of {expected / 1e6:.1f}" if expected else ""
        self.active = wanted and sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> _ProgressLine:
        return self

    def show(self, received: int) -> None:
        if self.active:
            print(
                f"\r{self.name}: {received / 1e6:.1f}{self.total} MB",
                end="",
                file=sys.stderr,
                flush=True,
            )

    def __exit__(self, *_: object) -> None:
        if self.active:
            print(file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
