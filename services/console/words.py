"""How messages of control read in tables and sentences. No I/O."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import admin
from mesh.wording import clients_text
from services.console.parts import Cell, Tone

NONE = "-"
SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
STEP = 1024
TONES = {
    Tone.GOOD: "reachable applied done ok success running reading allow enforce switched stable moved following",
    Tone.BAD: "unreachable refused failed failure left_behind breaks deny expired permission_denied dead",
    Tone.WARNING: "held trying paused warning cancelled pending drained draining undecided copying cutting "
    "waiting ending open withdrawn moving preparing left preparing_rebalance "
    "completing_rebalance failing_over failed_over",
}
"""How words of states look."""
_TONE_OF = {word: tone for tone, words in TONES.items() for word in words.split()}


def moment(of: Timestamp) -> str:
    """In UTC, because the console does not know the reader's time zone; "-" when there is none."""
    if not of.ByteSize():
        return NONE
    return of.ToDatetime(tzinfo=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def age(of: Timestamp, now: datetime | None = None) -> str:
    """ "3 s ago", "5 min ago"."""
    if not of.ByteSize():
        return NONE
    seconds = max(0, int(((now or datetime.now(UTC)) - of.ToDatetime(tzinfo=UTC)).total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def count(number: int, noun: str) -> str:
    """ "1 topic", "3 topics"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: int) -> str:
    """ "3.4 MiB"."""
    amount = float(number)
    for unit in SIZES[:-1]:
        if amount < STEP:
            return f"{amount:.0f} {unit}" if unit == SIZES[0] else f"{amount:.1f} {unit}"
        amount /= STEP
    return f"{amount:.1f} {SIZES[-1]}"


def toned(text: str, href: str = "") -> Cell:
    """A state: its tone follows from its word."""
    return Cell(text, href, _TONE_OF.get(text.lower().replace(" ", "_"), Tone.PLAIN))


def place(topic: str, cluster: str, name: str) -> str:
    """ "c1", "c1 as shop.orders", "nowhere"."""
    if not cluster:
        return "nowhere"
    return f"{cluster} as {name}" if name and name != topic else cluster


def move(of: admin.TopicMove) -> list[str]:
    """Topic, from, to, partitions."""
    whom = f" for {clients_text(of.client)}" if of.HasField("client") else ""
    origin, target = place(of.topic, of.from_cluster, of.from_topic), place(of.topic, of.to_cluster, of.to_topic)
    return [of.topic, origin, target + whom, f"{of.partitions:,}"]


EFFECTS = {
    admin.MOVE_EFFECT_KIND_RECORDS_STAY: "records stay behind, and are not copied",
    admin.MOVE_EFFECT_KIND_GOES_ON: "goes on, misses nothing",
    admin.MOVE_EFFECT_KIND_OUT_OF_RANGE: "out of range: its reset policy takes it to the first or the next record",
    admin.MOVE_EFFECT_KIND_READS_AGAIN: "reads some records again",
    admin.MOVE_EFFECT_KIND_SILENT_SKIP: "silently skips records",
}


def effect(of: admin.MoveEffect) -> list[str | Cell]:
    """Topic, group, what happens."""
    text = EFFECTS.get(of.kind, "an effect that this release does not know")
    if of.records:
        text = f"{of.records:,} {text}"
    tone = Tone.BAD if of.kind == admin.MOVE_EFFECT_KIND_SILENT_SKIP else Tone.PLAIN
    return [of.topic, of.group or NONE, Cell(text, tone=tone)]
