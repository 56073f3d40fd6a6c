"""What the tests of downloading and unpacking share: made-up wheels, and a pip without an index."""

import zipfile
from pathlib import Path

import pytest


def archive(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return path


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def cut_pip_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give pip settings under which it reaches no index, whatever the machine's own are."""
    settings = {
        "PIP_CONFIG_FILE": str(tmp_path / "no-settings"),
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "0",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
