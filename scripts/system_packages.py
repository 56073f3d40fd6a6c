"""Installing packages of the operating system, never unasked where someone could answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def install(packages: list[str], why: str) -> bool:
    """Install Debian packages; True when that was done, else says what to run and gives False.

    ``why`` is a sentence that says what is missing. Root without a terminal (a container) and
    CI are not asked; anyone else is, and is left alone without a terminal to answer on.
    """
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    names = " ".join(packages)
    by_hand = f"Install it with: {'' if root else 'sudo '}apt-get install {names}"
    if shutil.which("apt-get") is None:
        say(f"{why} Install it with your system's package manager (Debian calls it {names}).")
        return False
    prefix = [] if root else ["sudo"]
    if not root and shutil.which("sudo") is None:
        say(f"{why} {by_hand}")
        return False
    interactive = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if os.environ.get("CI"):
        # Nobody is there to type a password either.
        prefix += [] if root else ["-n"]
    elif interactive:
        say(f"{why} Shall I run `{' '.join(prefix + command)}`? [Y/n] ", end="")
        # An empty line is a yes; the end of the input, which has no line end, is not.
        if sys.stdin.readline().lower() not in ("\n", "y\n", "yes\n"):
            say(by_hand)
            return False
    elif not root:
        say(f"{why} {by_hand}")
        return False
    say(f"{why} Installing {names}.")
    environment = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive"]
    # A fresh container has no package lists. Old lists may still do, so this is let fail.
    subprocess.run([*environment, "apt-get", "update", "-qq"], stdout=sys.stderr, check=False)
    done = subprocess.run([*environment, *command], stdout=sys.stderr, check=False)
    if done.returncode != 0:
        say(f"apt-get failed. {by_hand}")
    return done.returncode == 0


def say(text: str, end: str = "\n") -> None:
    """A line for the person at the terminal; standard output is left to results."""
    print(text, end=end, file=sys.stderr, flush=True)
