"""Which wgpu-native build belongs to each C API generation, and the hash of its library."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass

from .errors import FetchError

# Generation -> the release that the declarations in headers/ were written for.
VERSIONS = {"v22": "22.1.0.5", "v29": "29.0.1.1"}

# Generation -> the Python package whose wheels carry that release.
REQUIREMENTS = {"v22": "wgpu==0.19.0", "v29": "wgpu==0.32.0"}

# System -> the library's name as we keep it (and as the release archive has it under lib/),
# and its path inside the wheel.
_FILES = {
    "linux": ("libwgpu_native.so", "wgpu/resources/libwgpu_native-release.so"),
    "macos": ("libwgpu_native.dylib", "wgpu/resources/libwgpu_native-release.dylib"),
    "windows": ("wgpu_native.dll", "wgpu/resources/wgpu_native-release.dll"),
}

_SHA256 = {
    ("v22", "linux-x86_64"): "f58492b43c7da7e8223600ca6e85b38fdfbe157eec3d009f332b030d6cca4f92",
    ("v22", "linux-aarch64"): "973f8ac62f03681b6cb43234cecaaf85209af87a2e7c74f8fa01f25789c03f8b",
    ("v22", "macos-x86_64"): "b01a7b51cd360181f5184030150a33392d49682d1aa4c66ba23e106054b3efb9",
    ("v22", "macos-aarch64"): "cada65a147e8c96f30947cfeab8861961878ec1ff2b26ad83348775f215a64c5",
    ("v22", "windows-x86_64"): "5366ae5dce94de7037f82cb5b321ebcbdfb76516b0881764090bcc6b6fbea555",
    ("v22", "windows-aarch64"): "bc2d20494bab6791b562f32c4ec4e480fbb3dbb8a1732a19b652fdc07234786e",
    ("v29", "linux-x86_64"): "be0d8270dd9d78e1039eeb413ee21be8a89776a752e56d6b0f57eefbbc2d749c",
    ("v29", "linux-aarch64"): "51d8a711c9a687f824712c42a206800b69f14eff8667a88f2f86936cdef0ebd0",
    ("v29", "macos-x86_64"): "d5175b3c0675e7f66b677a7c28537ff260a698c82fff96179247cd9c9dec6c8d",
    ("v29", "macos-aarch64"): "e72e8f1777dd0315bfee91c6b7e7b105234d5c1cc1621db4cf92ffee2ac2ae32",
    ("v29", "windows-x86_64"): "5e26249c40dcdac43f5adca3195fcf40e4ec6c67472b38510165f411fcc198e7",
    ("v29", "windows-aarch64"): "511b4494a0104c6cba25d7974b9bd31879169377dd68c732a885153952071330",
}


@dataclass(frozen=True)
class Pin:
    """One pinned library: where both sources keep it, and the sha256 it must have."""

    api: str
    version: str
    requirement: str
    wheel_member: str
    release_asset: str
    release_member: str
    file_name: str
    sha256: str


def platform_key() -> str:
    """This interpreter's platform as "linux-x86_64", "macos-aarch64", "windows-x86_64", ..."""
    system = {"win32": "windows", "darwin": "macos"}.get(sys.platform, sys.platform)
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if sys.maxsize < 2**32:
        # A 32-bit Python on a 64-bit system can't load a 64-bit library.
        machine += "-32bit"
    return f"{system}-{machine}"


def library_file_name(platform_name: str | None = None) -> str:
    """What a fetched library is called on a platform (default: this one)."""
    system = (platform_name or platform_key()).split("-")[0]
    return _FILES.get(system, _FILES["linux"])[0]


def pin(api: str, platform_name: str | None = None) -> Pin:
    """The pinned library of one generation for a platform (default: this one).

    Raises FetchError when no build is pinned for the platform.
    """
    key = platform_name or platform_key()
    sha256 = _SHA256.get((api, key))
    if sha256 is None:
        known = ", ".join(name for generation, name in _SHA256 if generation == "v29")
        raise FetchError(
            f"there is no pinned {api} library for {key} (there is for {known}); build "
            f"wgpu-native {VERSIONS[api]} and name the file in TENSAI_WGPU_LIB"
        )
    system, machine = key.split("-")
    file_name, wheel_member = _FILES[system]
    compiler = "-msvc" if system == "windows" else ""
    return Pin(
        api=api,
        version=VERSIONS[api],
        requirement=REQUIREMENTS[api],
        wheel_member=wheel_member,
        release_asset=f"wgpu-{system}-{machine}{compiler}-release.zip",
        release_member=f"lib/{file_name}",
        file_name=file_name,
        sha256=sha256,
    )
