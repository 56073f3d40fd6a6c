"""Host time of chains of small eager operations, against a peer in the same run.

    python -m benchmarks.host [--peer numpy|torch] [--count N] [--api v22|v29] [--json]

Chains of COUNT operations on 1000 elements, each on the last one's result: how long Python takes
until the last call has returned, and until the result is there. With --peer torch the peer is
PyTorch on CUDA where there is one, else on the CPU; NumPy and PyTorch on the CPU have no host time
apart from the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tensai
from benchmarks.measure import alternate, parser, pytorch, show, where

SIZE = 1000
CHAINS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda x, y, ops: x + y,
    "multiply, add": lambda x, y, ops: x * y + y,
    "tanh, subtract": lambda x, y, ops: ops.tanh(x) - y,
}
OPERATIONS = {"add": 1, "multiply, add": 2, "tanh, subtract": 2}


def times(chain: Callable[[], Any], wait: Callable[[], Any]) -> tuple[float, float]:
    """Seconds until the calls have returned, and until the work is done."""
    wait()
    start = time.perf_counter()
    result = chain()
    host = time.perf_counter() - start
    wait()
    whole = time.perf_counter() - start
    del result
    return host, whole


def main() -> None:
    arguments = parser(__doc__, "numpy", "torch", default="torch")
    arguments.add_argument("--count", type=int, default=1000)
    options = arguments.parse_args()
    dev = tensai.open(api=options.api)
    peer_ops: Any = np
    move: Callable[[Any], Any] = lambda array: array  # noqa: E731
    back, wait = move, lambda: None
    if options.peer == "torch":
        peer_ops, device, wait = pytorch()
        move = lambda array: peer_ops.from_numpy(array).to(device)  # noqa: E731
        back = lambda tensor: tensor.cpu().numpy()  # noqa: E731
    x = np.linspace(0, 0.5, SIZE, dtype=np.float32)
    y = np.full(SIZE, 0.5, np.float32)
    rows = []
    for name, step in CHAINS.items():
        count = options.count // OPERATIONS[name]

        def chain(start: Any, other: Any, ops: Any, step: Any = step, count: int = count) -> Any:
            value = start
            for _ in range(count):
                value = step(value, other, ops)
            return value

        mine, theirs = (dev.upload(x), dev.upload(y)), (move(x), move(y))
        ops_of: dict[str, Any] = {
            "ours": lambda c=chain, a=mine: c(*a, tensai.ops),
            "peer": lambda c=chain, a=theirs: c(*a, peer_ops),
        }
        right = chain(x, y, np)
        np.testing.assert_allclose(ops_of["ours"]().download(), right, rtol=1e-4)
        np.testing.assert_allclose(back(ops_of["peer"]()), right, rtol=1e-4)
        waits = {"ours": dev.synchronize, "peer": wait}
        wholes: dict[str, list[float]] = {"ours": [], "peer": []}

        def host(who: str, runs: Any = ops_of, waits: Any = waits, wholes: Any = wholes) -> float:
            first, whole = times(runs[who], waits[who])
            wholes[who].append(whole)
            return first

        medians = alternate({who: (lambda w=who, h=host: h(w)) for who in ops_of}, 9)
        each = 1e6 / (count * OPERATIONS[name])
        rows.append(
            (
                name,
                medians["ours"] * each,
                medians["peer"] * each,
                medians["ours"] / medians["peer"],
                float(np.median(wholes["ours"])) * each,
                float(np.median(wholes["peer"])) * each,
            )
        )
    head = ("chain", "tensai", options.peer, "time ratio", "tensai, done", f"{options.peer}, done")
    show(f"Eager operations on {where(dev)}, us each", head, rows, options.json)


if __name__ == "__main__":
    main()
