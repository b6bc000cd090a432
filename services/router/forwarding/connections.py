"""The connections of workers: librdkafka's clients for a cluster of the mesh, and their errors as setbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from mesh.cluster_properties import allowed
from mesh.connection_security import connection_properties
from mesh.lost_brokers import STATISTICS_MS, BrokerWatch
from mesh.rpc import routing
from mesh.secret_references import UnresolvedReferenceError, resolve_property

REQUEST_TIMEOUT = 10.0
"""Seconds for one request to a cluster."""
TRANSACTION_TIMEOUT = 30.0
"""Seconds after which the cluster itself ends the transaction of a worker that is gone without a word."""
DELIVERY_TIMEOUT = 25.0
"""Seconds for the records of a transaction to arrive; less than the transaction may last."""
QUEUE_KILOBYTES = 32 * 1024
"""Kilobytes of fetched records that are not copied yet, and as many of written records without acknowledgement, per
rule.
"""
LARGEST_BATCH = 1_000_000
"""Bytes, before compression."""
SMALLEST_BATCH = 16_384
"""Bytes; where the target takes no larger ones (`max.message.bytes`), batches are halved down to this."""
LARGEST_RECORD = 100 * 1024 * 1024
"""Bytes. librdkafka alone would refuse records larger than 1 MB; here the target decides what is too large."""
_OWN = frozenset({"bootstrap.servers", "client.id", "group.id", "transactional.id", "enable.idempotence", "acks"})
"""Properties that a cluster's configuration can't change: the theory stands on them."""
_REFUSALS = frozenset({KafkaError._AUTHENTICATION, KafkaError._SSL})
"""Why a cluster refuses the login. librdkafka reports the reason by a callback; its answers only report a broken
connection.
"""

log = logging.getLogger(__name__)


class Setback(Exception):  # noqa: N818  # it is no failure of the worker: it tries again
    """The worker can't go on now. An operator reads the message as the rule's problem."""

    def __init__(self, problem: str, *, too_large: bool = False) -> None:
        super().__init__(problem)
        self.too_large = too_large
        """Whether smaller batches may help."""


def setback(place: str, error: BaseException) -> Setback:
    """The error and its place, for an operator."""
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        cause = error.args[0]
        return Setback(f"{place}: {cause.str()}", too_large=cause.code() == KafkaError.MSG_SIZE_TOO_LARGE)
    return Setback(f"{place}: {str(error) or type(error).__name__}")


class Cluster:
    """One cluster, as a rule reaches it."""

    def __init__(self, spec: routing.ClusterSpec, rule_id: str) -> None:
        self.name = spec.cluster_name
        self._spec = spec
        self._client_id = f"mesh.record-rule.{rule_id}"
        self._admin: AdminClient | None = None
        self._refusal = ""
        self._watches: WeakSet[BrokerWatch] = WeakSet()
        """One for each open consumer. Producers and admin clients need none: their calls end with an error."""

    @property
    def admin(self) -> AdminClient:
        """For questions and for topics; one, as long as the rule's session lasts."""
        if self._admin is None:
            self._admin = AdminClient(self._settings({"error_cb": self._heed}))
        return self._admin

    def ask(self, question: Callable[[AdminClient], Any]) -> Any:
        """The cluster's answer. Setback: there is none."""
        try:
            return question(self.admin)
        except (KafkaException, TimeoutError) as error:
            if self._admin is not None:
                self._admin.poll(0)  # _heed
            because = f", {self._refusal}" if self._refusal else ""
            raise setback(f"cluster {self.name!r}{because}", error) from error

    def metadata(self) -> Any:
        """Topics, brokers, and Kafka's own cluster id."""
        return self.ask(lambda admin: admin.list_topics(timeout=REQUEST_TIMEOUT))

    def consumer(self, **settings: Any) -> Any:
        """Reads committed records from assigned offsets; in no group, although librdkafka needs a group id."""
        own = {
            "group.id": self._client_id,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": QUEUE_KILOBYTES,
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 10,  # by itself it fetches nothing for a second when that is full
            "check.crcs": True,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": (watch := BrokerWatch()),
        }
        self._watches.add(watch)
        return Consumer(self._settings({**self._further(self._spec.consumer_config), **own, **settings}))

    def producer(self, transactional_id: str, largest_batch: int) -> Any:
        """Writes in transactions. Compression and similar settings come from the cluster's producer_config."""
        usual = {"compression.type": "lz4", "linger.ms": 5}
        own = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(1000 * TRANSACTION_TIMEOUT),
            "delivery.timeout.ms": int(1000 * DELIVERY_TIMEOUT),
            "partitioner": "murmur2_random",
            "batch.size": largest_batch,
            "message.max.bytes": LARGEST_RECORD,
            "queue.buffering.max.kbytes": QUEUE_KILOBYTES,
            "queue.buffering.max.messages": 100_000,
        }
        return Producer(self._settings({**usual, **self._further(self._spec.producer_config), **own}))

    def check(self) -> None:
        """Setback: a consumer has lost all brokers for good, so that the session needs a new one."""
        if any(watch.is_lost for watch in self._watches):
            raise Setback(
                f"cluster {self.name!r} named no brokers, and librdkafka does not ask again; the rule starts again"
            )

    def _heed(self, error: KafkaError) -> None:
        if error.code() in _REFUSALS:
            self._refusal = error.str()

    def _further(self, config: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in allowed(config).items() if name not in _OWN}

    def _settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        security = connection_properties(self._spec.producer_config, self._spec.consumer_config)
        try:
            resolved = {
                name: resolve_property(name, value) if isinstance(value, str) else value
                for name, value in {**settings, **security}.items()
            }
        except UnresolvedReferenceError as error:
            raise Setback(f"cluster {self.name!r}: {error}") from None
        return {
            **resolved,
            "bootstrap.servers": ",".join(self._spec.bootstrap_servers),
            "client.id": self._client_id,
            "socket.connection.setup.timeout.ms": int(1000 * REQUEST_TIMEOUT),
            "reconnect.backoff.max.ms": 2000,
            "logger": log,
        }


def answers(futures: Mapping[Any, Any], place: str, accepted: Sequence[int] = ()) -> dict[Any, Any]:
    """The result of each part of an admin request. Setback: a part failed with an error that is not in `accepted`."""
    results = {}
    for about, future in futures.items():
        try:
            results[about] = future.result(REQUEST_TIMEOUT)
        except KafkaException as error:
            if error.args[0].code() not in accepted:
                raise setback(f"{place}, {about}", error) from error
        except TimeoutError as error:
            raise setback(f"{place}, {about}", TimeoutError("no answer in time")) from error
    return results
