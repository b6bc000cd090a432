"""One recording against two endpoints at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from judge.replay.bindings import Bindings
from judge.replay.conversation import Conversation, conversation
from judge.replay.recording import Recording
from judge.replay.side import Side
from judge.replay.specification import Specifications


def replayed(
    specs: Specifications, recording: Recording, a: Sequence[str], b: Sequence[str]
) -> tuple[Conversation, Side, Side]:
    """Both endpoints have heard the recording to its end. `a` and `b`: their bootstrap addresses."""
    talk = conversation(specs, recording.events)
    first = Side("A", a, specs)
    sides = (first, Side("B", b, specs, Bindings(aliases=first.bindings.aliases)))
    failures: list[BaseException] = []

    def run(side: Side) -> None:
        try:
            side.replay(talk)
        except BaseException as error:  # noqa: BLE001  # raised again where the caller is
            failures.append(error)

    threads = [threading.Thread(target=run, args=(side,), name=f"replay-{side.name}") for side in sides]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return talk, *sides
