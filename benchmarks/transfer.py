"""Arrays to the device and back, against a peer in the same run.

    python -m benchmarks.transfer [--peer numpy|torch] [--sizes MIB ...] [--api v22|v29] [--json]

Rows: upload of an array, download into a fresh one, and download(out=) into one that is there. With
--peer torch the peer does the same from and to pageable memory (CUDA where there is one), and the
peak is its copy from and to pinned memory. With --peer numpy both are copies within the host's
memory. Everything that arrives is compared with what was sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tensai
from benchmarks.measure import alternate, parser, pytorch, show, where

WORKS = ("upload", "download", "download, out=")
Array = np.ndarray[Any, Any]
Runs = dict[str, Callable[[], Any]]


def ours(dev: Any, data: Array, out: Array) -> Runs:
    tensor = dev.upload(data)

    def upload() -> Any:
        made = dev.upload(data)
        dev.synchronize()
        return made

    runs = (upload, tensor.download, lambda: tensor.download(out=out))
    assert np.array_equal(upload().download(), data)
    assert np.array_equal(tensor.download(out=out), data)
    return dict(zip(WORKS, runs, strict=True))


def numpy_runs(data: Array, out: Array) -> tuple[Runs, Runs]:
    """Copies into a fresh array and into one that is there; the peak is the latter."""
    warm = lambda: np.copyto(out, data)  # noqa: E731
    peer = dict(zip(WORKS, (data.copy, data.copy, warm), strict=True))
    return peer, dict.fromkeys(WORKS, warm)


def torch_runs(data: Array, out: Array) -> tuple[Runs, Runs]:
    torch, device, wait = pytorch()
    cuda = device == "cuda"
    host, filled = torch.from_numpy(data), torch.from_numpy(out)
    there = host.to("cuda") if cuda else host.clone()
    pinned = host.clone().pin_memory() if cuda else host.clone()

    def waited(work: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            made = work()
            wait()
            return made

        return run

    def upload() -> Any:
        return host.to("cuda") if cuda else host.clone()

    def download() -> Any:
        return there.cpu() if cuda else there.clone()

    peer = (waited(upload), waited(download), waited(lambda: filled.copy_(there)))
    up = waited(lambda: there.copy_(pinned, non_blocking=True))
    down = waited(lambda: pinned.copy_(there, non_blocking=True))
    assert np.array_equal(download().numpy(), data)
    return dict(zip(WORKS, peer, strict=True)), dict(zip(WORKS, (up, down, down), strict=True))


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    made = work()
    figure = time.perf_counter() - start
    del made
    return figure


def main() -> None:
    arguments = parser(__doc__, "numpy", "torch")
    arguments.add_argument("--sizes", type=int, nargs="+", help="MiB")
    options = arguments.parse_args()
    dev = tensai.open(api=options.api)
    rows = []
    for mib in options.sizes or ([64] if dev.info.software else [64, 1024]):
        data = np.random.default_rng(0).integers(-1000, 1000, mib << 18, dtype=np.int32)
        out = np.ones_like(data)
        peer, peak = (numpy_runs if options.peer == "numpy" else torch_runs)(data, out)
        mine = ours(dev, data, out)
        for work in WORKS:
            runs = {"ours": mine[work], "peer": peer[work], "peak": peak[work]}
            for run in (*runs.values(), *runs.values()):
                run()
            medians = alternate({name: (lambda r=run: timed(r)) for name, run in runs.items()}, 5)
            if work != "upload" and not np.array_equal(mine[work](), data):
                raise SystemExit(f"{work}: other elements came back than were sent")
            speed = {name: data.nbytes / seconds / 1e9 for name, seconds in medians.items()}
            rows.append(
                (
                    f"{work}, {mib} MiB",
                    speed["ours"],
                    speed["peer"],
                    speed["ours"] / speed["peer"],
                    speed["peak"],
                )
            )
        del peer, peak, mine
    title = f"To and from the host on {where(dev)}, GB/s"
    show(title, ("work", "tensai", options.peer, "ratio", "peak"), rows, options.json)


if __name__ == "__main__":
    main()
