"""Formats of events: what older releases wrote is brought up to date when it is read, for it never changes in the log.

A field that is new and may be absent needs no format of its own. When what an event says is to be said in another way:
raise FORMAT, write the upcaster from the format before, and keep a log of the last release that wrote that one
(`tests/fixtures/logs/README.md`). Folds, projections and the API then only know the newest format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mesh.rpc import events

FORMAT = 2
"""1: release 0.1, which did not say so (0). 2: events are chained (`chain.py`)."""

Upcaster = Callable[[events.Event], None]
"""Brings an event from one format to the next, in place."""


class NewerFormatError(ValueError):
    """A newer release has written this event."""


def _chained(event: events.Event) -> None:
    """Events of release 0.1 say the same, and stand outside of the chain."""


UPCASTERS: Mapping[int, Upcaster] = {1: _chained}
"""By the format they begin from."""


def upcast(body: bytes, upcasters: Mapping[int, Upcaster] = UPCASTERS) -> events.Event:
    """The event that these bytes of the log are, in the newest format.

    DecodeError when they are none. NewerFormatError when this release does not know all that was decided: without this
    event, a fold would come to half of a mesh.
    """
    event = events.Event.FromString(body)
    newest = max(upcasters, default=0) + 1
    if event.format > newest:
        raise NewerFormatError(
            f"event {event.position} has format {event.format}, and this release knows formats up to {newest}: "
            "a newer release of the mesh has written it, run that one"
        )
    if event.WhichOneof("payload") is None:
        raise NewerFormatError(
            f"event {event.position} of {event.stream!r} is of a kind that this release does not know: "
            "a newer release of the mesh has written it, run that one"
        )
    for step in range(event.format or 1, newest):
        upcasters[step](event)
    event.format = newest
    return event
