"""Requests to one cluster, for all code that reads, archives or copies, by confluent-kafka's admin client.

An error names the request, the cluster and the reason. The calls block; each request has a time-out.
"""

from __future__ import annotations

import base64
import binascii
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined]  # exported, but not by name

from services.pipeline.kafka.positions import Place, Stamp, StreamError, UnreachableError

CLIENT_ID = "kafka-mesh-pipeline"
EARLIEST, LATEST, LAST = OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
COMMITTED, ALL = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
VERSION_OF_MESH_IDS = 5
"""The UUID version of topic ids that a gateway makes; Kafka's own ids are random.

A gateway derives an id from the topic's name, so the id does not change if the topic is created again, or moves.
"""
NO_ID = str(Uuid(0, 0))
"""The topic id in answers of clusters before Kafka 2.8, which have no ids."""
GRACE_S = 5.0
"""Extra seconds in which the client itself gives up a request after its time-out."""
NOTICE = "5"
"""A level of syslog that hides librdkafka's message about each client that ends."""
REFUSED_CONNECTIONS = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE)
UNAUTHORIZED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
LEADERS_ON_THE_WAY = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
"""Errors of a partition that is new, or whose leader changes."""
ON_THE_WAY_POLL_S = 0.1
"""Seconds until the next request to such a partition."""
Answer = TypeVar("Answer")


class UnauthorizedError(UnreachableError):
    """The cluster denies this request to the user."""


class UnknownTopicError(StreamError):
    """The cluster does not have the topic."""

    def __init__(self, message: str, what: str = "") -> None:
        super().__init__(message)
        self.what = what
        """The name of the missing thing."""


class Questions:
    """Requests to one cluster, each for all partitions at once. UnreachableError, and the errors above."""

    def __init__(self, properties: Mapping[str, str], timeout_s: float, name: str = "") -> None:
        """`name`: the cluster's name in errors; without it, errors name its servers."""
        self._where = f"cluster {name!r}" if name else properties["bootstrap.servers"]
        self.timeout_s = timeout_s
        # a separate object without a reference to this one: so the client's threads and sockets are freed with this
        # object, and not at the next garbage collection
        self._complaints = _Complaints()
        settings: dict[str, Any] = {"log_level": NOTICE, **properties, "client.id": CLIENT_ID}
        settings["error_cb"] = self._complaints.heed
        self.admin = AdminClient(settings)

    def topics(self, names: Collection[str], *, skip_absent: bool = False) -> dict[str, Any]:
        """Descriptions of topics; `skip_absent` leaves out missing topics."""
        if not names:
            return {}
        asked = self.admin.describe_topics(TopicCollection(list(names)), request_timeout=self.timeout_s)
        found: dict[str, Any] = {}
        for topic, future in asked.items():
            try:
                found |= self.answers({topic: future}, "topic")
            except UnknownTopicError:
                if not skip_absent:
                    raise
        return found

    def offsets(self, specs: Mapping[Place, Any], isolation: Any = COMMITTED) -> dict[Place, int]:
        """An offset of each partition; -1 for a time later than all records."""
        if not specs:
            return {}
        asked = {TopicPartition(*place): spec for place, spec in specs.items()}
        answers = self._offsets(asked, isolation)
        return {(place.topic, place.partition): found.offset for place, found in answers.items()}

    def starts(self, places: Iterable[Place]) -> dict[Place, int]:
        return self.offsets(dict.fromkeys(places, EARLIEST))

    def ends(self, places: Iterable[Place], isolation: Any = COMMITTED) -> dict[Place, int]:
        """The last stable offset of each partition, or the high watermark for uncommitted records."""
        return self.offsets(dict.fromkeys(places, LATEST), isolation)

    def since(self, times: Mapping[Place, int], isolation: Any = COMMITTED) -> dict[Place, int]:
        """Offset of the first record that is not older than the time (ms since 1970); -1 if there is none."""
        return self.offsets({place: OffsetSpec.for_timestamp(at) for place, at in times.items()}, isolation)

    def last(self, places: Iterable[Place]) -> dict[Place, Stamp]:
        """The records with the latest times; only if they have times.

        Brokers before Kafka 3.0 don't support this request.
        """
        asked = {TopicPartition(*place): LAST for place in places}
        if not asked:
            return {}
        answers = self._offsets(asked, ALL, accepted=(KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE))
        return {
            (place.topic, place.partition): Stamp(found.offset, found.timestamp)
            for place, found in answers.items()
            if found.offset >= 0
        }

    def _offsets(
        self, specs: Mapping[TopicPartition, Any], isolation: Any, accepted: Collection[int] = ()
    ) -> dict[TopicPartition, Any]:
        """Repeats the request for partitions whose leader is changing, until the time-out."""
        deadline = time.monotonic() + self.timeout_s
        found: dict[TopicPartition, Any] = {}
        remaining = dict(specs)
        while remaining:
            passing = LEADERS_ON_THE_WAY if time.monotonic() < deadline else ()
            futures = self.admin.list_offsets(remaining, isolation_level=isolation, request_timeout=self.timeout_s)
            found |= self.answers(futures, "offsets of", accepted=(*accepted, *passing))
            remaining = {about: specs[about] for about, future in futures.items() if _code_of(future) in passing}
            if remaining:
                time.sleep(ON_THE_WAY_POLL_S)
        return found

    def answers(
        self, futures: Mapping[Any, Future[Answer]], what: str, accepted: Collection[int] = ()
    ) -> dict[Any, Answer]:
        """The answer to each request, without those whose error is `accepted`."""
        found = {}
        for about, future in futures.items():
            try:
                failure = future.exception(self.timeout_s + GRACE_S)  # raising it would keep this frame alive
            except TimeoutError as late:
                raise UnreachableError(
                    f"{what} {_name_of(about)}: no answer from {self._where} in {self.timeout_s:g} s"
                ) from late
            if failure is None:
                found[about] = future.result()
            elif not isinstance(failure, KafkaException):
                raise failure
            elif failure.args[0].code() not in accepted:
                raise self.problem(failure, f"{what} {_name_of(about)}") from failure
        return found

    def answer(self, question: Callable[[], Answer], what: str) -> Answer:
        """The answer to a request that returns no future."""
        try:
            return question()
        except KafkaException as failure:
            raise self.problem(failure, what) from failure

    def problem(self, failure: KafkaException, what: str) -> StreamError:
        """Converts Kafka's error to an error with a readable message."""
        error: KafkaError = failure.args[0]
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return UnknownTopicError(
                f"{what} is unknown at {self._where}: no rule routes it, or its cluster does not have it", what
            )
        if error.code() in UNAUTHORIZED:
            return UnauthorizedError(f"{what} at {self._where}: {error.str()}; the pipeline's user needs that right")
        self.admin.poll(0)  # runs the callback for errors
        return UnreachableError(f"{what} at {self._where}: {error.str()}{self._complaints.newest}")


class _Complaints:
    """The reason of a refused connection, which librdkafka reports beside its answers."""

    def __init__(self) -> None:
        self.newest = ""

    def heed(self, error: KafkaError) -> None:
        if error.code() in REFUSED_CONNECTIONS:
            self.newest = f" ({error.str()})"


def topic_id_of(description: Any) -> str:
    """Empty if the cluster has no topic ids."""
    text = str(description.topic_id) if description.topic_id is not None else NO_ID
    return "" if text == NO_ID else text


def is_of_a_gateway(topic_id: str) -> bool:
    """Whether a gateway has made the topic id."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(topic_id + "==")).version == VERSION_OF_MESH_IDS
    except (ValueError, binascii.Error):
        return False


def _code_of(answered: Future[Any]) -> int | None:
    """The code of Kafka's error."""
    failure = answered.exception(0)
    return failure.args[0].code() if isinstance(failure, KafkaException) else None


def _name_of(about: Any) -> str:
    match about:
        case TopicPartition():
            return f"{about.topic}/{about.partition}"
        case ConfigResource():
            return str(about.name)
    return str(about)
