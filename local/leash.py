"""Starts a program that dies with its parent: `python leash.py PARENT_PID PROGRAM ARGUMENTS...`.

The program replaces this process, and keeps this process's requests to the kernel. A step of its own, because code
between fork and exec (`preexec_fn`) may hang in a parent that has threads. Linux only; elsewhere it just starts the
program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
SIGKILL = 9


def on_leash(command: Sequence[str]) -> list[str]:
    """The command that runs `command` on the leash of this process."""
    # -I -S: nothing but the standard library, so it costs milliseconds
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(os.getpid()), *command]


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
        if os.getppid() != parent:  # it died before we could ask
            sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
