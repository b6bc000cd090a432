"""Kafka's own clients, in Java: producer, consumer, and the consumer of a share group."""

from __future__ import annotations

import base64
import contextlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from judge.clients.client import Committed, Given, Polled, Sent
from judge.clients.java_host import JavaError, JavaHost
from judge.history import Guarantee, Mark, Outcome, Place, Poll, Send, Taken
from judge.values import record, value_of

DELIVERY_S = 20.0
POLL_S = 0.3
CLOSE_S = 5.0
FATAL = frozenset(
    {
        "ProducerFencedException",
        "InvalidProducerEpochException",
        "OutOfOrderSequenceException",
        "InvalidPidMappingException",
        "IllegalStateException",
        "HostEnded",
        "NoAnswer",
    }
)
"""After these a producer can't abort."""
_NUMBERS = itertools.count()


class JavaProducer:
    name = "java"

    def __init__(
        self,
        host: JavaHost,
        bootstrap: str,
        guarantee: Guarantee,
        transactional_id: str,
        compression: str,
        client_id: str,
    ) -> None:
        self.guarantee = guarantee
        self._host = host
        self._client_id = client_id
        self._door = bootstrap
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "compression.type": compression,
            "enable.idempotence": guarantee is not Guarantee.PLAIN,
            "acks": "all",
            "delivery.timeout.ms": int(DELIVERY_S * 1000),
            "request.timeout.ms": 10_000,
            "max.block.ms": int(DELIVERY_S * 1000),
            "linger.ms": 2,
        }
        if transactional_id:
            self._settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": 20_000}
        self._at = ""
        """The name of the producer that is open; none: the next send opens one."""

    def send(self, place: Place, values: Sequence[int]) -> Sent:
        sends = [(place, value) for value in values]
        try:
            self._open()
            return self._sent(sends)
        except JavaError as error:
            self._leave()
            return Sent(Outcome.INFO, tuple(Send(place, value) for value in values), self._door, str(error))

    def transaction(self, sends: Sequence[tuple[Place, int]], *, commit: bool, between: Callable[[], None]) -> Sent:
        told = Sent(Outcome.FAIL, tuple(Send(place, value) for place, value in sends))
        committing = False
        try:
            self._open()
            self._ask("begin")
            told = self._sent(sends)
            between()
            if not commit or told.outcome is not Outcome.OK:
                self._ask("abort-transaction")
                note = f"{'' if commit else 'meant to '}abort {told.note}"
                return Sent(Outcome.FAIL, told.sends, self._door, note)
            committing = True
            self._commit()
        except JavaError as error:
            return self._after(error, told, committing=committing)
        return Sent(Outcome.OK, told.sends, self._door)

    def _commit(self) -> None:
        """A commit that times out is to be asked for again: nothing else may follow it."""
        for tries_left in (2, 1, 0):
            try:
                self._ask("commit-transaction")
            except JavaError as error:
                if error.name != "TimeoutException" or not tries_left:
                    raise
            else:
                return

    def _after(self, error: JavaError, told: Sent, *, committing: bool) -> Sent:
        aborted = False
        if error.name not in FATAL | {"TimeoutException"}:
            with contextlib.suppress(JavaError):
                self._ask("abort-transaction")
                aborted = True
        if not aborted:
            self._leave()
        outcome = Outcome.INFO if committing and not aborted else Outcome.FAIL
        return Sent(outcome, told.sends, self._door, f"{'commit' if committing else 'aborted'}: {error}")

    def _open(self) -> None:
        if not self._at:
            name = f"{self._client_id}-{next(_NUMBERS)}"
            self._host.ask(name, "producer", DELIVERY_S, settings=self._settings)
            self._at = name
            if "transactional.id" in self._settings:
                try:
                    self._ask("init")
                except JavaError:
                    self._leave()
                    raise

    def _sent(self, sends: Sequence[tuple[Place, int]]) -> Sent:
        records = [[place.topic, place.partition, base64.b64encode(record(value)).decode()] for place, value in sends]
        answer = self._ask("send", records=records)
        told = [
            Send(place, value, offset if offset >= 0 else None)
            for (place, value), offset in zip(sends, answer["offsets"], strict=True)
        ]
        errors = [error for error in answer["errors"] if error]
        if errors and self.guarantee is not Guarantee.TRANSACTIONAL:
            self._leave()
        return Sent(Outcome.INFO if errors else Outcome.OK, tuple(told), self._door, "; ".join(errors[:3]))

    def _ask(self, do: str, **what: Any) -> dict[str, Any]:
        return self._host.ask(self._at, do, DELIVERY_S + 5, **what)

    def _leave(self) -> None:
        """Ends without a goodbye: requests on their way may still arrive."""
        if self._at:
            with contextlib.suppress(JavaError):
                self._host.ask(self._at, "close", 0)
        self._at = ""

    def close(self) -> None:
        self._leave()


class _JavaReader:
    name = "java"

    def __init__(self, host: JavaHost, kind: str, client_id: str, settings: dict[str, Any]) -> None:
        self._host = host
        self._at = f"{client_id}-{next(_NUMBERS)}"
        self._host.ask(self._at, kind, DELIVERY_S, settings={"client.id": client_id, **settings})

    def _ask(self, do: str, within_s: float, **what: Any) -> dict[str, Any]:
        return self._host.ask(self._at, do, within_s, **what)

    def subscribe(self, topics: Sequence[str]) -> None:
        self._ask("subscribe", DELIVERY_S, topics=list(topics))

    def close(self) -> None:
        with contextlib.suppress(JavaError):
            self._ask("close", CLOSE_S)


class JavaConsumer(_JavaReader):
    def __init__(self, host: JavaHost, bootstrap: str, group: str, protocol: str, client_id: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.max.wait.ms": 200,
        }
        if protocol == "classic":
            settings |= {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1000}
        self._group = group
        self._door = bootstrap
        super().__init__(host, "consumer", client_id, settings)

    def assign(self, places: Sequence[Place]) -> None:
        self._ask("assign", DELIVERY_S, partitions=[[place.topic, place.partition] for place in places])

    def poll(self) -> Polled:
        try:
            answer = self._ask("poll", POLL_S)
        except JavaError as error:
            return Polled((), False, self._door, str(error))
        found: dict[Place, list[tuple[int, int]]] = defaultdict(list)
        for topic, partition, offset, value, *_ in answer["records"]:
            found[Place(topic, partition)].append((offset, value_of(base64.b64decode(value))))
        polls = tuple(Poll(place, tuple(records)) for place, records in found.items())
        return Polled(polls, answer["rebalanced"], self._door)

    def commit(self) -> Committed:
        try:
            answer = self._ask("positions", DELIVERY_S)
        except JavaError as error:
            return Committed(Outcome.FAIL, (), note=f"meant: {error}")
        marks = tuple(Mark(self._group, Place(topic, part), offset) for topic, part, offset in answer["marks"])
        if not marks:
            return Committed(Outcome.FAIL, (), note="meant: nothing was read")
        try:
            self._ask("commit", DELIVERY_S, marks=answer["marks"])
        except JavaError as error:
            return Committed(Outcome.INFO, marks, self._door, str(error))
        return Committed(Outcome.OK, marks, self._door)


class JavaShareConsumer(_JavaReader):
    """A member of a share group; it acknowledges or releases each record itself, before the next poll."""

    def __init__(self, host: JavaHost, bootstrap: str, group: str, client_id: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": "explicit"}
        super().__init__(host, "share", client_id, settings)

    def take(self, *, accept: bool) -> Given:
        try:
            answer = self._ask("poll", POLL_S)
        except JavaError as error:
            return Given(Outcome.INFO, (), str(error))
        found: dict[Place, list[tuple[int, int, int]]] = defaultdict(list)
        for topic, partition, offset, value, count in answer["records"]:
            found[Place(topic, partition)].append((offset, value_of(base64.b64decode(value)), count))
        taken = tuple(Taken(place, tuple(records)) for place, records in found.items())
        if not taken:
            return Given(Outcome.OK, ())
        how = "ACCEPT" if accept else "RELEASE"
        try:
            errors = self._ask("acknowledge", DELIVERY_S, **{"as": how})["errors"]
        except JavaError as error:
            errors = [str(error)]
        outcome = Outcome.INFO if errors else Outcome.OK if accept else Outcome.FAIL
        return Given(outcome, taken, "; ".join(errors[:3]) or ("" if accept else "meant to release"))
