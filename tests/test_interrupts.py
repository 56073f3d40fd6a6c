"""Ctrl-C at any moment ends what runs and nothing else: no abort, no wait without end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "interrupted.py"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that raise here")
@pytest.mark.parametrize("seed", [1, 2])
def test_interrupts_at_random(seed: int) -> None:
    environment = {**os.environ, "TENSAI_SELF_CHECK": "off"}
    command = [sys.executable, str(SCRIPT), str(seed), "300"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "right\n"
