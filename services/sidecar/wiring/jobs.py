"""Assembles the parts that bring records again (jobs and dead letters) and their callers (HTTP, control, Kafka)."""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.dead_letters import DeadLetterEndpoints, PeekEndpoints
from services.sidecar.api.produce_answers import produce_answer
from services.sidecar.api.replays import ReplayEndpoints
from services.sidecar.auditing.active import ActiveAudit
from services.sidecar.consuming.instances import Instances
from services.sidecar.control.replay_follower import ReplayFollower
from services.sidecar.dead_letters.peek import Peek
from services.sidecar.delivering.batch import Settlement
from services.sidecar.delivering.deliverer import Deliverer
from services.sidecar.delivering.policy import WhenExhausted
from services.sidecar.delivering.replies import ReplyWriter
from services.sidecar.formats import Format
from services.sidecar.jobs.dead_letter_batches import DeadLetterBatches
from services.sidecar.jobs.job import Job, JobSpec
from services.sidecar.jobs.jobs import Jobs
from services.sidecar.jobs.original_command import SCHEMA, command_record
from services.sidecar.jobs.replay_commands import Commands
from services.sidecar.jobs.run import JobLimits, JobTools
from services.sidecar.jobs.shown_delivery import ShownDelivery
from services.sidecar.producing.headers import HeaderWriter, RequestHeaders
from services.sidecar.producing.produce_request import ProduceRequest, RecordRequest, SchemaChoice, Side
from services.sidecar.records import RawRecord
from services.sidecar.wiring.delivering import delivery_policy
from services.sidecar.wiring.instance_recovery import InstanceRecovery
from services.sidecar.wiring.kafka_properties import consumer_properties, transaction_properties
from services.sidecar.wiring.shared_parts import SharedParts
from services.sidecar.wiring.subscriptions import Subscribed, Subscriptions

FILE = "replays.json"


class JobParts:
    """The replays of one sidecar."""

    def __init__(self, shared: SharedParts, recovery: InstanceRecovery, subscriptions: Subscriptions) -> None:
        settings = shared.settings
        self._settings = settings
        self._subscriptions = subscriptions
        self._recovery = recovery
        self._producer = shared.producer
        self._serializer = shared.serializer
        self._audit = shared.audit
        self._deliverers: WeakKeyDictionary[Subscribed, Deliverer] = WeakKeyDictionary()
        self._follower: ReplayFollower | None = None
        self._tools = self._made_tools()
        self.jobs = Jobs(self._tools, self._serves, max_running=settings.max_running_jobs, file=recovery.file(FILE))

    def routes(self, instances: Instances) -> list[Route]:
        """The routes of the backend."""
        settings = self._settings
        replay = DeadLetterBatches(self._tools, max_bytes=settings.request_max_bytes)
        audit = ActiveAudit(self._audit)
        return DeadLetterEndpoints(
            settings, instances, self._producer, audit, replay, self._topics, self._formats
        ).routes()

    def admin_routes(self) -> list[Route]:
        """The routes of operators."""
        settings = self._settings
        peek = Peek(consumer_properties(settings), lambda topic: self._of(topic).shower)
        announce = self._announce if settings.dead_letter_controller_topic else None
        return [
            *PeekEndpoints(peek, settings.dead_letter_extension).routes(),
            *ReplayEndpoints(settings, self.jobs, self._start, self.jobs.cancel, announce).routes(),
        ]

    async def restore(self) -> None:
        """Jobs go on; `InstanceRecovery.restore` comes first."""
        await self.jobs.restore()
        if self._recovery.connection is not None:
            self._follower = ReplayFollower(self._recovery.connection, self.jobs)

    def tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that bring jobs, once the reactive consumer's topics are known. They end only when cancelled."""
        tasks = []
        if self._follower is not None:
            tasks.append(asyncio.create_task(self._follower.run(), name="replays"))
        if self._settings.dead_letter_controller_topic:
            tasks.append(asyncio.create_task(self._commands().run(), name="replay commands"))
        return tasks

    async def stop(self) -> None:
        """Jobs stop where they are, and go on with the next process."""
        await self.jobs.close()
        await asyncio.gather(*(one.stop() for one in self._deliverers.values()))

    async def _start(self, spec: JobSpec) -> Job:
        return await (self.jobs.start(spec) if self._follower is None else self._follower.start(spec))

    def _made_tools(self) -> JobTools:
        settings = self._settings
        return JobTools(
            consumer=consumer_properties(settings),
            transactional=partial(transaction_properties, settings),
            send=self._producer.send,
            deliver=self._deliver,
            extension=settings.dead_letter_extension,
            dead_letters=settings.dead_letter_enabled,
            audit=self._audit,
            limits=JobLimits(
                max_batch_records=settings.reactive_max_batch_records,
                max_batch_bytes=settings.batch_bytes_at_most,
                max_round_bytes=settings.max_job_round_bytes,
                transaction_seconds=settings.transaction_timeout_ms / 1000,
            ),
        )

    def _serves(self, topic: str) -> bool:
        """Whether the backend gets records of a topic from a reactive consumer, or their dead letters.

        The topics are those of the subscriptions, or those that an operator has set.
        """
        return self._of(topic).reads(self._source(topic))

    def _source(self, topic: str) -> str:
        return topic.removesuffix(self._settings.dead_letter_extension)

    def _of(self, topic: str) -> Subscribed:
        """The subscription of a topic, or of the topic whose dead letters it has."""
        return self._subscriptions.of(self._source(topic))

    def _topics(self) -> list[str]:
        """The topics that the settings, or the backend's declarations, name."""
        return list(dict.fromkeys(topic for one in self._subscriptions for topic in one.settings.reactive_topics))

    def _formats(self, topics: Sequence[str]) -> tuple[Format, Format]:
        """The formats of keys and values for one reader of all these topics."""
        found = {self._of(topic).settings.instance_formats for topic in topics}
        return found.pop() if len(found) == 1 else (Format.AUTO, Format.AUTO)

    async def _deliver(self, records: Sequence[RawRecord], path: str, occasion: str = "") -> Settlement:
        """Delivers records of one topic as its subscription does. See `ShownDelivery`."""
        subscribed = self._of(records[0].topic)
        deliverer = self._deliverers.get(subscribed)
        if deliverer is None:
            # a job ends, so a record that has used its attempts is a failure, unlike in the reactive consumer
            policy = delivery_policy(subscribed.settings, has_dead_letters=True)
            policy = dataclasses.replace(policy, when_exhausted=WhenExhausted.DEAD_LETTER)
            deliverer = Deliverer(subscribed.target, policy, ReplyWriter(self._serializer))
            self._deliverers[subscribed] = deliverer
        return await ShownDelivery(subscribed.shower, deliverer, subscribed.target.path)(records, path, occasion)

    def _commands(self) -> Commands:
        settings = self._settings
        return Commands(
            consumer_properties(settings),
            settings.dead_letter_controller_topic,
            settings.dead_letter_controller_group or f"{settings.reactive_group}-replaystream",
            settings.dead_letter_extension,
            self.jobs.start,
            self._audit,
        )

    async def _announce(self, command: Mapping[str, Any]) -> Response:
        """Written as the original does: with a schema, where there is a registry."""
        topic = self._settings.dead_letter_controller_topic
        key, value = command_record(command, self._settings.dead_letter_extension)
        has_registry = bool(self._settings.schema_registry_url)
        side = (
            Side("value", Format.JSONSCHEMA, SchemaChoice(raw=SCHEMA)) if has_registry else Side("value", Format.JSON)
        )
        request = ProduceRequest(topic, Side("key", Format.STRING), side, [RecordRequest(key=key, value=value)])
        serialized = await self._serializer.serialize(request, HeaderWriter(RequestHeaders()), on_thread=False)
        return produce_answer(await self._producer.send(topic, serialized.records), serialized)
