"""Profiles topics of clusters by Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped,unused-ignore]  # where it is installed
from pyspark.errors import PySparkException

from mesh.rpc import profiles
from services.pipeline.jobs import profile
from services.pipeline.kafka.positions import Span, StreamError
from services.pipeline.kafka.source import KafkaSource
from services.pipeline.profiling.ordered import Asked, RefusedOrderError, read_of
from services.pipeline.profiling.registry import RegistryAccess
from services.pipeline.settings import PipelineSettings
from services.pipeline.spark.data_source import open_batch
from services.pipeline.spark.session import our_sentence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB_GROUP = "kafka-mesh-profile"


class SparkLooking:
    """`ordered.Looking`. Spark starts only if there are records to read."""

    def __init__(
        self,
        session: Callable[[], SparkSession],
        clusters: Mapping[str, Mapping[str, str]],
        settings: PipelineSettings,
        registry: RegistryAccess,
    ) -> None:
        self._session, self._clusters, self._settings, self._registry = session, clusters, settings, registry
        self._running: SparkSession | None = None
        self._is_cancelled = False

    def spans(self, asked: Asked) -> Sequence[Span]:
        found = self._source(asked).spans(asked.ranges)
        return [replace(each, topic=asked.topic) for each in found]

    def profile(self, asked: Asked, spans: Sequence[Span]) -> profiles.TopicProfile:
        if not (ranges := read_of(spans, asked)):
            return profiles.TopicProfile()
        session = self._session()
        session.sparkContext.setJobGroup(JOB_GROUP, f"profile of {asked.topic}", interruptOnCancel=True)
        self._running = session
        if self._is_cancelled:
            raise StreamError("cancelled before Spark had started")
        try:
            return profile.run(open_batch(self._source(asked), session, ranges), self._registry)
        except (Py4JError, PySparkException) as error:
            if sentence := our_sentence(error):
                raise StreamError(sentence) from error
            raise

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._running is not None:
            self._running.sparkContext.cancelJobGroup(JOB_GROUP)

    def _source(self, asked: Asked) -> KafkaSource:
        if asked.cluster not in self._clusters:
            known = ", ".join(self._clusters) or "none"
            raise RefusedOrderError(f"cluster {asked.cluster!r} is not registered (known: {known})")
        return KafkaSource.of_settings(
            self._settings,
            topics=(asked.upstream_topic,),
            clusters={asked.cluster: self._clusters[asked.cluster]},
            accept_loss=True,  # records that retention takes meanwhile are left out
        )
