"""A tox runner whose environments may share a folder (tox reads this file by its name).

tox notes in an environment's folder which environment made it, and makes it anew for any other.
The runner here writes one name for all, so that those with the same dependencies share them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tox.plugin import impl
from tox.tox_env.api import ToxEnv
from tox.tox_env.info import Info
from tox.tox_env.python.virtual_env.runner import VirtualEnvRunner
from tox.tox_env.register import ToxEnvRegister


class SharedInfo(Info):
    """What tox notes in an environment's folder, without the environment's own name."""

    @contextmanager
    def compare(
        self, value: Any, section: str, sub_section: str | None = None
    ) -> Generator[tuple[bool, Any], None, None]:
        if section == ToxEnv.__name__:
            value = {**value, "name": "shared"}
        with super().compare(value, section, sub_section) as result:
            yield result


class SharedRunner(VirtualEnvRunner):
    """Runs commands in a virtual environment that other tox environments use as well."""

    @staticmethod
    def id() -> str:
        return "shared-virtualenv"

    @property
    def cache(self) -> Info:
        return SharedInfo(self.env_dir)


@impl
def tox_register_tox_env(register: ToxEnvRegister) -> None:
    register.add_run_env(SharedRunner)
