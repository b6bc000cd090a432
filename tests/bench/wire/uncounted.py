"""A gateway that counts and times nothing of a forwarded Produce: the sources without the lines that do so.

These lines can't be switched off, so their price is the difference to a copy without them. A line that is no more where
it is left out here fails the bench.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import hatch_build
from tests.bench.middles import ROOT

LEFT_OUT: Final = {
    "downstream/client.py": (
        ("        _bytes_in.total += len(frame)\n", ""),
        ("        self._client_in.total += len(frame)\n", ""),
        ("        answers.total += 1\n", ""),
        ("        answers.of_all.total += 1\n", ""),
        ("        size = 0\n        for piece in pieces:\n            size += len(piece)\n", "        size = 0\n"),
        ("        bytes_out.total += size\n        self._client_out.total += size\n", ""),
        ("        answers.times.took(clock.now() - slot.began, slot.upstream_s)\n", ""),
    ),
    "downstream/forwarding.py": (
        ("        request.asked_at = clock.now()\n", "        request.asked_at = now\n"),
        ("        way.calls.total += 1\n", ""),
    ),
    "downstream/in_flight.py": (
        ("    def answered(self, frame: memoryview, owned: bool) -> None:\n"
         "        self.upstream_s = clock.now() - self.asked_at\n",
         "    def answered(self, frame: memoryview, owned: bool) -> None:\n"),
    ),
    "upstream/connection.py": (
        ("        self._sent_bytes.total += len(frame)\n", ""),
        ("        self._sent_bytes.total += SIZE_BYTES + size\n", ""),
        ("        self._received_bytes.total += len(frame)\n", ""),
    ),
    "upstream/seats.py": (("            self._pool.calls.total += 1\n", "            pass\n"),),
    "wire/scanner/walks/produce.py": (
        ("            part.records = _count_records(data, start, part.records_end)\n", ""),
        ("            records += part.records\n            size += part.records_end - start\n", ""),
    ),
}  # fmt: skip
"""By file, what stands there and what takes its place."""


def made_in(folder: Path) -> Path:
    """The root of a tree that has this gateway, compiled, and nothing else."""
    (folder / "services").mkdir(parents=True)
    shutil.copy(ROOT / "services/__init__.py", folder / "services")
    gateway = folder / "services/gateway"
    shutil.copytree(ROOT / "services/gateway", gateway, ignore=shutil.ignore_patterns("compiled", "__pycache__"))
    for name, changes in LEFT_OUT.items():
        text = (gateway / name).read_text()
        for before, after in changes:
            if before not in text:
                raise ValueError(f"{name} has no more what a gateway that counts nothing leaves out: {before!r}")
            text = text.replace(before, after)
        (gateway / name).write_text(text)
    if hatch_build.compile_modules(folder) is None:
        raise ValueError("a gateway that is compiled can't be compared with one that is not")
    return folder
