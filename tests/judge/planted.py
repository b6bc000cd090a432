"""A history for each anomaly that shows it, as small as can be: what each checker must find."""

from __future__ import annotations

from itertools import count

from judge.history import (
    Guarantee,
    History,
    Kind,
    Mark,
    Moved,
    Operation,
    Outcome,
    Place,
    Poll,
    Send,
    Step,
    Taken,
    history,
)

LOG = Place("t", 0)
OTHER = Place("t", 1)
C1, C2 = Place("t", 0, "c1"), Place("t", 0, "c2")


class Story:
    """Operations one after the other, each a second long; `at` puts one elsewhere."""

    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._next = count()

    def add(
        self,
        kind: Kind,
        *steps: Step,
        process: str = "a",
        outcome: Outcome = Outcome.OK,
        at: tuple[float, float] | None = None,
        guarantee: Guarantee = Guarantee.IDEMPOTENT,
        rebalanced: bool = False,
        note: str = "",
        via: str = "",
        revision: int = 0,
        group: str = "",
        client: str = "own",
    ) -> Story:
        index = next(self._next)
        start, end = at or (index * 10.0, index * 10.0 + 1)
        self._operations.append(
            Operation(
                index,
                process,
                kind,
                outcome,
                start,
                end,
                steps,
                guarantee,
                client,
                via=via,
                revision=revision,
                rebalanced=rebalanced,
                note=note,
                group=group,
            )
        )
        return self

    def send(self, value: int, offset: int | None, place: Place = LOG, **how: object) -> Story:
        return self.add(Kind.SEND, Send(place, value, offset), **how)  # type: ignore[arg-type]

    def poll(self, *records: tuple[int, int], place: Place = LOG, **how: object) -> Story:
        return self.add(Kind.POLL, Poll(place, records), **{"process": "reader", **how})  # type: ignore[arg-type]

    def take(self, offset: int, value: int, count: int, **how: object) -> Story:
        taken = Taken(LOG, ((offset, value, count),))
        return self.add(Kind.TAKE, taken, **{"process": "sharer", "group": "s", **how})  # type: ignore[arg-type]

    def sweep(self, *records: tuple[int, int], place: Place = LOG) -> Story:
        return self.add(Kind.SWEEP, Poll(place, records), process="sweep")

    @property
    def told(self) -> History:
        return history(self._operations)


def _healthy() -> Story:
    return Story().send(1, 0).send(2, 1).poll((0, 1), (1, 2))


def _mark(offset: int) -> Mark:
    return Mark("g", LOG, offset)


_FAIL, _INFO = Outcome.FAIL, Outcome.INFO

PLANTED: dict[str, Story] = {
    "inconsistent-offsets": Story().send(1, 0).poll((0, 2)),
    "duplicate": Story().send(1, 0).poll((0, 1), (1, 1)),
    "lost-write": Story().send(1, 0).send(2, 1).poll((1, 2)),
    "unseen": Story().send(1, 0).send(2, 1).sweep((0, 1)),
    "altered": Story().poll((0, -1)),
    "G1a": Story().add(Kind.TXN, Send(LOG, 1), outcome=_FAIL).poll((0, 1)),
    "precommitted-read": Story().add(Kind.TXN, Send(LOG, 1, 0), Poll(LOG, ((0, 1),))),
    "torn-transaction": Story()
    .add(Kind.TXN, Send(LOG, 1), Send(OTHER, 2), outcome=_INFO)
    .add(Kind.SWEEP, Poll(LOG, ((0, 1),)), Poll(OTHER, ())),
    "torn-read": Story()
    .add(Kind.ASSIGN, process="reader")
    .add(Kind.TXN, Send(LOG, 1, 0), Send(OTHER, 2, 0), outcome=_INFO)
    .send(3, 1, OTHER)
    .poll((0, 1))
    .poll((1, 3), place=OTHER),
    "int-poll-skip": Story().send(1, 0).send(2, 1).send(3, 2).poll((0, 1), (2, 3)),
    "int-nonmonotonic-poll": Story().poll((1, 2), (0, 1)),
    "poll-skip": Story().send(1, 0).send(2, 1).send(3, 2).poll((0, 1)).poll((2, 3)),
    "nonmonotonic-poll": Story().poll((0, 1), (1, 2)).poll((0, 1)),
    "int-send-skip": Story()
    .add(Kind.TXN, Send(LOG, 1, 0), Send(LOG, 3, 2))
    .send(2, 1, process="b")
    .poll((0, 1), (1, 2), (2, 3)),
    "int-nonmonotonic-send": Story().add(Kind.TXN, Send(LOG, 1, 1), Send(LOG, 2, 0)),
    "nonmonotonic-send": Story().send(1, 1).send(2, 0),
    "G0": Story().send(1, 1).send(2, 0, process="b"),
    "G1c": Story()
    .add(Kind.TXN, Poll(LOG, ((0, 2),)), Send(OTHER, 1, 0))
    .add(Kind.TXN, Poll(OTHER, ((0, 1),)), Send(LOG, 2, 0), process="b", at=(0.5, 1.5)),
    "wrong-cluster": Story().add(Kind.MOVE, Moved("t", "c2")).send(1, 0, C1),
    "two-writers": Story().add(Kind.MOVE, Moved("t", "c2"), at=(0, 100)).send(1, 0, C2).send(2, 0, C1, process="b"),
    "not-continuous": Story()
    .send(1, 0, C1)
    .send(2, 1, C1)
    .add(Kind.MOVE, Moved("t", "c2"), note="unbroken offsets")
    .send(3, 0, C2),
    "misrouted": Story().add(Kind.MOVE, Moved("t", "c2"), revision=7).send(1, 0, C1, via="gateway", revision=8),
    "accepted-again": Story().send(1, 0).take(0, 1, 1).take(0, 1, 2, process="other"),
    "never-given": Story()
    .send(1, 0)
    .send(2, 1)
    .take(0, 1, 1)
    .add(Kind.DRAINED, Poll(LOG, ()), process="sharer", group="s")
    .sweep((0, 1), (1, 2)),
    "lost-commit": Story().add(Kind.COMMIT, _mark(5)).add(Kind.COMMIT, _mark(7)).add(Kind.COMMITTED, _mark(5)),
    "commits-disagree": Story()
    .add(Kind.COMMIT, _mark(5), outcome=_INFO)
    .add(Kind.COMMITTED, _mark(5), note="at rest", via="c1")
    .add(Kind.COMMITTED, _mark(-1), note="at rest", via="gateway"),
    "did-not-recover": Story().add(Kind.RECOVER, outcome=_FAIL, note="a send does not succeed"),
    "unexplained-failure": Story().send(1, None, outcome=_INFO),
}


def _without_a_marker() -> Story:
    return (
        Story()
        .add(Kind.TXN, Send(LOG, 1, 0))
        .add(Kind.UNMARKED, Poll(LOG, ()), process="kafka-c1-1", note="a", at=(0.9, 0.9))
        .add(Kind.TXN, Send(LOG, 2, 1), outcome=_FAIL, note="meant to abort")
    )


INNOCENT: dict[str, Story] = {
    "a plain run": _healthy(),
    "gaps where brokers put marks": Story().send(1, 0).send(2, 3).poll((0, 1), (3, 2)).sweep((0, 1), (3, 2)),
    "a send whose end is unknown is nowhere": Story()
    .add(Kind.FAULT, at=(0, 5))
    .send(1, None, outcome=_INFO, at=(1, 2))
    .send(2, 0)
    .sweep((0, 2)),
    "a reader goes back after a rebalance": Story().send(1, 0).poll((0, 1)).poll((0, 1), rebalanced=True),
    "a reader goes back after an assign": Story()
    .send(1, 0)
    .poll((0, 1))
    .add(Kind.ASSIGN, process="reader")
    .poll((0, 1)),
    "a library goes back soon after a move": Story()
    .send(1, 0)
    .add(Kind.MOVE, Moved("t", "c2"), at=(11, 16))
    .poll((0, 1), client="librdkafka")
    .poll((0, 1), client="librdkafka"),
    "a plain producer's repetition": Story().send(1, 0, guarantee=Guarantee.PLAIN).poll((0, 1), (1, 1)),
    "a topic that moved has two logs": Story()
    .send(1, 0)
    .add(Kind.MOVE, Moved("t", "c2"))
    .send(2, 0)
    .sweep((0, 1), place=C1)
    .sweep((0, 2), place=C2),
    "a commit whose end is unknown may count": Story()
    .add(Kind.FAULT, at=(0, 5))
    .add(Kind.COMMIT, _mark(5), at=(1, 2))
    .add(Kind.COMMIT, _mark(7), outcome=_INFO, at=(3, 4))
    .add(Kind.COMMITTED, _mark(7)),
    "a member has what its group gave it before another one took it over": Story()
    .send(1, 0)
    .take(0, 1, 2)
    .take(0, 1, 1, process="slow"),
    "a group gives again what it got back": Story()
    .send(1, 0)
    .take(0, 1, 1, outcome=_FAIL)
    .take(0, 1, 2, process="other"),
    "a group that was not asked to the end": Story()
    .send(1, 0)
    .add(Kind.DRAINED, Poll(LOG, ()), process="sharer", group="s", outcome=_INFO)
    .sweep((0, 1)),
    "a table of which nobody knows whether it came into force": Story()
    .add(Kind.MOVE, Moved("t", "c2"), revision=7)
    .add(Kind.MOVE, Moved("t", "c1"), outcome=_INFO)
    .send(1, 0, C1, via="gateway", revision=8)
    .add(Kind.FAULT, at=(0, 50)),
    "a commit without effect, whose marker Kafka skipped": _without_a_marker().add(
        Kind.SWEEP, Poll(LOG, ()), process="sweep"
    ),
    "a reader that reads both parts of a transaction": Story()
    .add(Kind.ASSIGN, process="reader")
    .add(Kind.TXN, Send(LOG, 1, 0), Send(OTHER, 2, 0))
    .poll((0, 1))
    .poll((0, 2), place=OTHER),
    "a reader that has not come to the other part yet": Story()
    .add(Kind.ASSIGN, process="reader")
    .send(3, 0, OTHER)
    .add(Kind.TXN, Send(LOG, 1, 0), Send(OTHER, 2, 1))
    .poll((0, 1))
    .poll((0, 3), place=OTHER),
    "a member that was given a partition behind a part": Story()
    .add(Kind.TXN, Send(LOG, 1, 0), Send(OTHER, 2, 0))
    .send(3, 1, OTHER)
    .poll((0, 1))
    .poll((1, 3), place=OTHER, rebalanced=True)
    .poll((0, 2), place=OTHER, process="the other member"),
    "an aborted transaction that nobody sees": Story()
    .add(Kind.TXN, Send(LOG, 1), outcome=_FAIL, note="meant to abort")
    .send(2, 2)
    .sweep((2, 2)),
}
