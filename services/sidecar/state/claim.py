"""The identity of this process among those of the same name, and the rule which of them holds the instances.

The process that began later holds them
1. A process is an *incarnation*: the milliseconds of its start, and some random text. The larger incarnation is the
   younger.
2. Across machines, control knows which process is younger. The elder learns of the younger in the answer to its next
   beat, or at the end of its stream of orders.
3. On one machine, or on a folder that machines share, the state folder decides, with or without control. The younger
   writes its incarnation into the file `claim`. The elder reads this file all the time; when it finds the claim, it
   closes its instances and releases the file `lock`. The younger waits for that lock, and only then reads the elder's
   state.
4. An elder that does not release the lock within bounds hangs. The younger goes on without the lock. When the elder
   runs again, it finds the claim and writes nothing more.
5. A process that was superseded stays so until it ends.
"""

import asyncio
import fcntl
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import total_ordering
from pathlib import Path
from typing import Self

import structlog

LOOK_SECONDS = 0.3
"""How often the elder looks for a claim, and the younger for the lock."""
_TEXT = re.compile(r"(\d{1,18})-(\S{1,80})")

log = structlog.get_logger(__name__)


@total_ordering
@dataclass(frozen=True, slots=True)
class Incarnation:
    """One process: its start in milliseconds since the epoch, and a mark that separates processes of the same start."""

    began_ms: int
    mark: str

    def __lt__(self, other: "Incarnation") -> bool:
        return (self.began_ms, self.mark) < (other.began_ms, other.mark)

    def __str__(self) -> str:
        return f"{self.began_ms}-{self.mark}"

    @classmethod
    def beginning(cls) -> Self:
        """The incarnation of a process that begins now."""
        return cls(time.time_ns() // 1_000_000, secrets.token_urlsafe(6))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The incarnation in a text; None if the text holds none."""
        found = _TEXT.fullmatch(text.strip())
        return cls(int(found[1]), found[2]) if found else None


class Claim:
    """The claim to a sidecar's state in a folder. Its methods block for no longer than the disk does."""

    def __init__(self, folder: Path, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self._claim = folder / "claim"
        self._lock = folder / "lock"
        self._held: int | None = None

    def stake(self) -> None:
        """From now on an elder process gives way to this one. OSError from the disk."""
        self._claim.parent.mkdir(parents=True, exist_ok=True)
        last = self._last()
        if last is not None and last > self.incarnation:  # a clock was put back meanwhile
            self.incarnation = Incarnation(last.began_ms + 1, self.incarnation.mark)
        fresh = self._claim.with_name(f".{self._claim.name}.{self.incarnation.mark}")
        fresh.write_text(f"{self.incarnation}\n", encoding="ascii")
        fresh.replace(self._claim)

    def is_lost(self) -> bool:
        """Whether a younger process has staked its claim."""
        last = self._last()
        return last is not None and last > self.incarnation

    def lock(self) -> bool:
        """Takes the lock; False if another process holds it."""
        if self._held is None:
            handle = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return False
            self._held = handle
        return True

    def let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _last(self) -> Incarnation | None:
        try:
            return Incarnation.parse(self._claim.read_text(encoding="ascii", errors="replace"))
        except FileNotFoundError:
            return None


async def take_over(claim: Claim, patience: float) -> None:
    """Returns when the elder process, if there is one, has let go; or after `patience` seconds. OSError of the disk."""
    await asyncio.to_thread(claim.stake)
    deadline = time.monotonic() + patience
    if await asyncio.to_thread(claim.lock):
        return
    log.info("another process of this sidecar runs here; it gives way", patience_seconds=patience)
    while time.monotonic() < deadline:
        await asyncio.sleep(LOOK_SECONDS)
        if await asyncio.to_thread(claim.lock):
            return
    log.warning("the other process of this sidecar does not let go; going on without it", seconds=patience)


async def watch(claim: Claim, superseded: Callable[[], Awaitable[None]]) -> None:
    """Calls `superseded` once a younger process has staked its claim; then lets go and returns never."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            is_lost = await asyncio.to_thread(claim.is_lost)
        except OSError as error:
            log.warning("cannot look for another process of this sidecar", reason=str(error))
            continue
        if is_lost:
            break
    await superseded()
    claim.let_go()
    await asyncio.Event().wait()
