"""Events of any release, and the chain through them."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from mesh.event_log import (
    FORMAT,
    MOST_EVENT_BYTES,
    PIECE_BYTES,
    Assembler,
    Chain,
    DamagedPieceError,
    NewerFormatError,
    records_of,
    upcast,
)
from mesh.event_log.formats import UPCASTERS, Upcaster
from mesh.event_log.pieces import PIECE_HEADER, Record
from mesh.rpc import events

KIND: dict[str, Any] = {"mesh_thawed": events.MeshThawed()}
"""Each event says something."""
A_LATER_KIND = bytes.fromhex("92f70100")
"""An empty payload in the field 3954, which no release has."""


def chained(count: int, *, unchained: int = 0) -> list[bytes]:
    """Bodies of a log; the first ones of a release that knew no chain."""
    bodies: list[bytes] = []
    chain = Chain()
    for position in range(1, count + 1):
        previous = b"" if position <= unchained else chain.hash
        event = events.Event(position=position, actor=f"ada-{position}", previous_hash=previous, **KIND)
        bodies.append(event.SerializeToString(deterministic=True))
        chain = chain.after(event, bodies[-1])
    return bodies


def first_break(bodies: list[bytes]) -> int | None:
    """Position of the first event that does not fit the one before."""
    chain = Chain()
    for body in bodies:
        event = upcast(body)
        if not chain.fits(event):
            return event.position
        chain = chain.after(event, body)
    return None


def forged(body: bytes) -> bytes:
    event = events.Event.FromString(body)
    event.actor = "mallory"
    return event.SerializeToString(deterministic=True)


def test_an_event_holds_the_sha256_of_the_bytes_before_it() -> None:
    first, second, third = map(events.Event.FromString, bodies := chained(3))
    assert first.previous_hash == b""
    assert second.previous_hash == sha256(bodies[0]).digest()
    assert third.previous_hash == sha256(bodies[1]).digest()


@pytest.mark.parametrize("position", [1, 2, 3])
def test_a_changed_event_is_told_by_the_next_one(position: int) -> None:
    bodies = chained(4)
    assert first_break(bodies) is None
    bodies[position - 1] = forged(bodies[position - 1])
    assert first_break(bodies) == position + 1


@pytest.mark.parametrize("position", [1, 2, 3])
def test_the_first_chained_event_covers_everything_that_older_releases_wrote(position: int) -> None:
    bodies = chained(6, unchained=3)
    assert first_break(bodies) is None
    bodies[position - 1] = forged(bodies[position - 1])
    assert first_break(bodies) == 4


def test_an_event_that_loses_its_hash_is_told_by_the_next_one() -> None:
    bodies = chained(4)
    stripped = events.Event.FromString(bodies[1])
    stripped.ClearField("previous_hash")
    bodies[1] = stripped.SerializeToString(deterministic=True)
    assert first_break(bodies) == 3


def test_an_event_of_the_first_release_is_read_as_one_of_today() -> None:
    assert upcast(events.Event(position=7, actor="ada", **KIND).SerializeToString()) == events.Event(
        position=7, actor="ada", format=FORMAT, **KIND
    )


def test_upcasters_work_one_after_another_from_the_format_that_the_event_has() -> None:
    def adding(word: str) -> Upcaster:
        return lambda event: event.MergeFrom(events.Event(reason=event.reason + word))

    steps = {1: adding("b"), 2: adding("c")}
    of_one = upcast(events.Event(format=1, reason="a", **KIND).SerializeToString(), steps)
    of_two = upcast(events.Event(format=2, reason="a", **KIND).SerializeToString(), steps)
    assert (of_one.reason, of_one.format) == ("abc", 3)
    assert (of_two.reason, of_two.format) == ("ac", 3)


def test_every_format_before_the_newest_has_an_upcaster() -> None:
    assert sorted(UPCASTERS) == list(range(1, FORMAT))


def test_an_event_of_a_newer_release_is_refused_by_name() -> None:
    body = events.Event(position=9, format=FORMAT + 1).SerializeToString()
    with pytest.raises(NewerFormatError, match=f"event 9 has format {FORMAT + 1}"):
        upcast(body)


def test_an_event_of_a_kind_that_only_a_newer_release_knows_is_refused_by_name() -> None:
    body = events.Event(position=9, format=FORMAT, stream="gates/1").SerializeToString() + A_LATER_KIND
    with pytest.raises(NewerFormatError, match="event 9 of 'gates/1' is of a kind that this release does not know"):
        upcast(body)


BODY = bytes(range(256)) * (PIECE_BYTES // 100)
"""An event of several pieces."""


def assembled(records: list[Record]) -> list[bytes]:
    """The events that a reader finds in these records."""
    assembler = Assembler()
    taken = [assembler.take(record.value, record.headers) for record in records]
    return [event for event in taken if event is not None]


def test_an_event_that_fits_a_record_is_one_as_it_always_was() -> None:
    assert list(records_of(7, b"event")) == [Record(b"7", b"event", [])]


def test_a_large_event_comes_in_pieces_and_is_whole_again() -> None:
    pieces = list(records_of(7, BODY))
    assert len(pieces) > 2
    assert max(len(piece.value) for piece in pieces) == PIECE_BYTES
    assert assembled([*pieces, *records_of(8, b"next")]) == [BODY, b"next"]


def test_a_publisher_that_begins_an_event_again_loses_nothing() -> None:
    first, second, *rest = records_of(7, BODY)
    assert assembled([first, second, first, second, *rest]) == [BODY]


def test_pieces_of_two_publishers_make_one_event() -> None:
    first, second, *rest = records_of(7, BODY)
    mixed = [first, first, second, second, *(each for each in rest for _ in range(2))]
    assert assembled(mixed) == [BODY]


def test_a_reader_that_begins_within_an_event_waits_for_the_next_one() -> None:
    _, *rest = records_of(7, BODY)
    assert assembled([*rest, *records_of(8, b"next")]) == [b"next"]


@pytest.mark.parametrize("header", [b"", b"7/0", b"7/0/x", b"7/0/3", f"7/0/{MOST_EVENT_BYTES + 1}".encode(), "7/0/9"])
def test_a_header_that_can_not_be_true_is_damage(header: bytes | str) -> None:
    with pytest.raises(DamagedPieceError):
        Assembler().take(b"value", [(PIECE_HEADER, header)])
