"""Raises KeyboardInterrupt at random moments of work on a device: python interrupted.py SEED TIMES.

Run by test_interrupts, since what it looks for ends the process.
"""

import random
import signal
import sys
import time

import numpy as np

import tensai

SIZE = 64
LARGE = np.arange(5 << 18, dtype=np.float32)  # moved in pieces, by threads


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def main(seed: int, times: int) -> None:
    dev = tensai.open()
    eye = np.eye(SIZE, dtype=np.float32)
    a = dev.upload(eye)
    with dev.record() as program:
        b = a @ a
    signal.signal(signal.SIGALRM, stop)
    random.seed(seed)
    for turn in range(times):
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 1e-2))
            end = time.monotonic() + 0.1  # what is raised in a destructor is lost
            while time.monotonic() < end:
                (a @ a).download()
                program.replay()
                dev.upload(eye).sum().item()
                dev.upload(LARGE).download()
        except KeyboardInterrupt:
            pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert signal.getsignal(signal.SIGALRM) is stop, turn
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, turn
        assert np.array_equal((a @ a).download(), eye), turn
        assert np.array_equal(b.download(), eye), turn
        assert np.array_equal(dev.upload(LARGE).download(), LARGE), turn
    dev.close()
    print("right")


main(int(sys.argv[1]), int(sys.argv[2]))
