"""A running replay as a bar on a terminal, with the partitions that are being replayed below."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from mesh.rpc import replays as replays_pb
from meshctl import replays
from meshctl.replay_progress import Pace, partitions_text, progress, under_way

Clock = Callable[[], float]
Key = tuple[str, int]


def with_bar(
    changes: Iterator[replays_pb.Replay], console: Console, *, partitions: bool = False, clock: Clock = time.monotonic
) -> replays_pb.Replay | None:
    """The last of these changes, each shown while it is the newest."""
    last = None
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[facts]}"))
    with Progress(*columns, console=console, transient=True) as bar:
        shown = _Bars(bar, clock)
        for last in changes:
            shown.show(last)
            if partitions:
                shown.show_partitions(last)
    return last


class _Bars:
    """The bars of one replay."""

    def __init__(self, bar: Progress, clock: Clock) -> None:
        self._bar = bar
        self._clock = clock
        self._pace = Pace()
        self._whole = bar.add_task("pending", total=None, facts="")
        self._known: dict[Key, replays_pb.ReplayPartition] = {}
        self._parts: dict[Key, TaskID] = {}

    def show(self, replay: replays_pb.Replay) -> None:
        far = progress(replay)
        self._pace.saw(far, self._clock())
        failed = f", {far.failed} failed" if far.failed else ""
        facts = (f"{far.records} records{failed}", partitions_text(far), self._pace.text(), replay.description)
        self._bar.update(
            self._whole, description=replays.state(replay), total=far.total or None, completed=far.done,
            facts=", ".join(text for text in facts if text),
        )  # fmt: skip

    def show_partitions(self, replay: replays_pb.Replay) -> None:
        """Shows bars of the partitions that are being replayed, and removes the other bars."""
        self._known |= {(each.topic, each.partition): each for each in replay.partitions}
        now = {(each.topic, each.partition): each for each in under_way(self._known.values())}
        for key in self._parts.keys() - now.keys():
            self._bar.remove_task(self._parts.pop(key))
        for key, each in now.items():
            if key not in self._parts:
                self._parts[key] = self._bar.add_task(f"  {each.topic}/{each.partition}", facts="")
            done, total = each.position - each.start_offset, each.end_offset - each.start_offset
            self._bar.update(self._parts[key], total=total, completed=done, facts=f"{each.records} records")
