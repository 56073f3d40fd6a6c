"""llama.cpp's server as a peer: the rates it reports, and its most likely next tokens."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class LlamaServer:
    """`llama-server` with every layer on the GPU, as a context manager."""

    def __init__(self, binary: Path, model: Path, log: Path, context: int = 2048) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [str(binary), "-m", str(model), "-ngl", "99", "--port", str(self.port)]
        command += ["-c", str(context), "--no-webui", "-np", "1"]
        self.log = log
        with log.open("wb") as sink:
            self.process = subprocess.Popen(command, stdout=sink, stderr=sink)

    def __enter__(self) -> LlamaServer:
        for _ in range(600):
            if self.process.poll() is not None:
                raise SystemExit(
                    f"llama-server ended: {self.log.read_text(errors='replace')[-2000:]}"
                )
            try:
                self._ask("/health", None)
                return self
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        raise SystemExit("llama-server did not become ready")

    def __exit__(self, *exception: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def complete(self, ids: Sequence[int], tokens: int, likely: int = 0) -> dict[str, Any]:
        """The answer to a prompt of token ids, with "timings"."""
        return self._ask(
            "/completion",
            {
                "prompt": list(ids),
                "n_predict": tokens,
                "temperature": 0,
                "ignore_eos": True,
                "cache_prompt": False,
                "n_probs": likely,
                "return_tokens": True,
            },
        )

    def _ask(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if body is None:  # not ready yet
                raise
            raise SystemExit(f"llama-server refused: {error.read().decode()[:500]}") from None
