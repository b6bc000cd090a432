"""Wall clocks of processes, which can be set while they run: a library of a few lines stands before the C library's.

libfaketime would do, but with Python 3.11 its `clock_nanosleep` fails: every `time.sleep` ends with EINVAL.
"""

from __future__ import annotations

import functools
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from judge.faults.fault import Fault

SOURCE = Path(__file__).with_name("clock.c")
SETTINGS_S = (-300, 20, 86_400)
LONGEST_S = 10.0
COMPILE_S = 60


@functools.cache
def library(folder: Path) -> Path | None:
    """Compiled into the folder; None where no clock can be set: not Linux, or no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        return None
    made = folder / "clock.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, timeout=COMPILE_S)
    return made


@dataclass(frozen=True, slots=True)
class Clock:
    """The clock of one process."""

    name: str
    file: Path

    def environment(self, library: Path) -> dict[str, str]:
        self.file.write_bytes(bytes(8))
        return {"LD_PRELOAD": str(library), "JUDGE_CLOCK": str(self.file)}

    def set_by(self, seconds: int) -> None:
        """In place: the process has the file mapped."""
        with self.file.open("r+b") as file:
            file.write(struct.pack("=q", seconds))

    def faults(self) -> list[Fault]:
        def fault(seconds: int) -> Fault:
            name = f"clock of {self.name} set by {seconds:+d} s"
            return Fault(name, lambda: self.set_by(seconds), lambda: self.set_by(0), LONGEST_S, frozenset({self.name}))

        return [fault(seconds) for seconds in SETTINGS_S]
