"""`tensai NAME`, `python -m tensai NAME` and `python -m tensai.NAME`: the commands."""

from __future__ import annotations

import importlib
import io
import os
import sys

COMMANDS = {
    "info": "what was found to compute on, and why it was chosen",
    "demo": "sentence embeddings on this machine, start to end",
    "run": "generate text with a language model, or chat with it",
    "sweep": "products on the GPU against NumPy, and where the GPU overtakes",
    "tune": "time the kernels of products on this device, for better choices among them",
    "embed": "sentence embeddings of the lines of a file, as .npy",
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; its exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    if sys.stderr is None:  # then print() would write what is meant for it to standard output
        sys.stderr = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115
    if sys.stdout is None:  # closed by whoever started the command
        print("tensai: standard output is closed; open it, or send it to a file", file=sys.stderr)
        return 1
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a name may hold what the terminal can't show
    # Mesa's device-selection layer prints errors of its own where there is no desktop.
    os.environ.setdefault("NODEVICE_SELECT", "1")
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        # A pipe that was closed, a disk that is full: nothing more can be printed there.
        if not isinstance(error, BrokenPipeError):
            print(f"tensai: {error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return status


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: tensai COMMAND [options]      tensai COMMAND --help for its options\n")
        for name, what in COMMANDS.items():
            print(f"  {name:8}{what}")
        return 0 if arguments else 2
    name, *rest = arguments
    if name == "--version":
        from .version import __version__

        print(f"tensai {__version__}")
        return 0
    if name not in COMMANDS:
        print(f"tensai: no command {name!r}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    status: int = importlib.import_module(f"tensai.{name}").main(rest)
    return status


if __name__ == "__main__":
    sys.exit(main())
