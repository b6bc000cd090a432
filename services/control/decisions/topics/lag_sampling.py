"""The leading control samples the lag of all groups every few seconds, within a bound on partitions."""

from __future__ import annotations

import asyncio
from collections import Counter as Sums
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Final

import structlog
from prometheus_client import Counter, Gauge

from services.control.decisions.clusters.probes import Probes
from services.control.decisions.topics.looking import Looking
from services.control.domain.errors import Refusal
from services.control.domain.topics.groups import MeshGroup
from services.control.domain.topics.lag_ages import Ages
from services.control.domain.topics.lag_samples import Round, Seen, Series, Thinning, by_need, seen, within
from services.control.steady_clock import Clock
from services.control.store.database import StoreUnavailableError
from services.control.store.lag import LagTables

MOST_NAMED: Final = 200
"""Pairs of group and topic with a series of their own in Prometheus."""
OTHER: Final = "other"

log = structlog.get_logger(__name__)
lag_gauge = Gauge(
    "kafka_mesh_control_group_lag_records",
    f"Records between a group and the end of a topic. Beyond {MOST_NAMED} pairs of group and topic, those with the "
    "least lag count as `other`.",
    ["group", "topic"],
)
age_gauge = Gauge(
    "kafka_mesh_control_group_lag_seconds",
    "Time since the oldest record was written that a group has not passed yet; since control began to sample, if the "
    "record is older. `other` is the oldest of all others.",
    ["group", "topic"],
)
unnamed_gauge = Gauge(
    "kafka_mesh_control_group_lag_other_series", "Pairs of group and topic whose lag counts as `other`."
)
groups_gauge = Gauge(
    "kafka_mesh_control_groups", "Groups of all clusters by state and protocol, at the last samples.", ["state", "type"]
)
partitions_gauge = Gauge(
    "kafka_mesh_control_group_lag_partitions",
    "Partitions of the last samples of lag, once for each group: sampled ones, and those beyond the bound (left_out).",
    ["kind"],
)
seconds_gauge = Gauge("kafka_mesh_control_group_lag_sampling_seconds", "Time that the last samples of lag took.")
rows_total = Counter("kafka_mesh_control_group_lag_rows_total", "Rows of lag that were stored.")


class LagSampling:
    """Takes the samples, and stores them."""

    def __init__(
        self,
        looking: Looking,
        probes: Probes,
        tables: LagTables,
        clock: Clock,
        interval_s: float,
        most_partitions: int,
    ) -> None:
        """`probes`: a cluster that did not answer the last one is not asked. It would cost a thread for seconds."""
        self._looking = looking
        self._probes = probes
        self._tables = tables
        self._clock = clock
        self._interval_s = interval_s
        self._most_partitions = most_partitions
        self._thinning = Thinning()
        self._problem = ""
        self._ages = Ages()
        self._named: set[tuple[str, str]] = set()
        self._states: set[tuple[str, str]] = set()
        """States and types that groups had."""
        self.read: Mapping[str, Collection[str]] = {}
        """Group -> topics of its offsets, in the last samples."""

    async def run(self) -> None:
        """Samples until cancelled; a round that takes longer than the interval delays the next one."""
        if not self._most_partitions:
            return
        self._thinning.forget()  # another control may have led meanwhile
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                await self._take()
                took = loop.time() - began
                seconds_gauge.set(took)
                await asyncio.sleep(max(0.0, self._interval_s - took))
        finally:  # the control that leads now shows the groups
            self._hide(self._named)
            self._named = set()
            self._ages.forget()
            groups_gauge.clear()
            self._states = set()

    async def _take(self) -> None:
        try:
            sampled, taken = await self.sample()
            rows = list(self._thinning.rows(taken.time, sampled))
            await self._tables.store(rows, taken)
        except (Refusal, StoreUnavailableError) as error:
            self._thinning.forget()
            self._tell(str(error))
            return
        rows_total.inc(len(rows))
        self._tell(taken.problem)
        self._show(sampled, taken)
        read: dict[str, set[str]] = {}
        for series in sampled:
            read.setdefault(series.group, set()).add(series.topic)
        self.read = read

    async def sample(self) -> tuple[dict[Series, Seen], Round]:
        """The state of all groups now, as far as clusters tell it and the bound permits."""
        away = self._probes.unreachable()
        known = await self._looking.groups_without(away)
        self._count(known.groups.values())
        groups = by_need(known.groups)
        offsets = await self._looking.offsets(groups)
        names = [each.name for each in groups]
        fitting, left_groups, left_partitions = within(offsets.by_group, names, self._most_partitions)
        read: dict[str, int] = {}
        for topic, committed in chain.from_iterable(each.items() for each in fitting.values()):
            read[topic] = max(read.get(topic, 0), max(committed) + 1)
        logs, silent = await self._looking.known_logs(read, away)
        sampled = {}
        for group, topics in fitting.items():
            for topic, committed in topics.items():
                if (state := seen(committed, logs.get(topic, {}))) is not None:
                    sampled[Series(group, topic)] = state
        return sampled, Round(
            self._clock(),
            groups=len({each.group for each in sampled}),
            partitions=sum(len(each.partitions) for each in sampled.values()),
            left_out_groups=left_groups,
            left_out_partitions=left_partitions,
            problem="; ".join(dict.fromkeys([*away.values(), *known.problems, *offsets.problems, *silent])),
        )

    def _tell(self, problem: str) -> None:
        if problem and not self._problem:
            log.warning("the lag of some groups is not sampled", reason=problem)
        elif self._problem and not problem:
            log.info("the lag of all groups is sampled again")
        self._problem = problem

    def _show(self, sampled: Mapping[Series, Seen], taken: Round) -> None:
        ages = self._ages.after(taken.time, sampled)
        most = sorted(sampled, key=lambda each: (-sampled[each].lag, -ages[each], each))
        named = {(each.group, each.topic): (sampled[each].lag, ages[each]) for each in most[:MOST_NAMED]}
        if others := most[MOST_NAMED:]:
            lag, age = named.get((OTHER, OTHER), (0, 0.0))
            lags = sum(sampled[each].lag for each in others)
            named[OTHER, OTHER] = lag + lags, max(age, *(ages[each] for each in others))
        self._hide(self._named - named.keys())
        for labels, (lag, age) in named.items():
            lag_gauge.labels(*labels).set(lag)
            age_gauge.labels(*labels).set(age)
        self._named = set(named)
        unnamed_gauge.set(len(others))
        partitions_gauge.labels("sampled").set(taken.partitions)
        partitions_gauge.labels("left_out").set(taken.left_out_partitions)

    def _hide(self, gone: Iterable[tuple[str, str]]) -> None:
        for labels in gone:
            lag_gauge.remove(*labels)
            age_gauge.remove(*labels)

    def _count(self, groups: Iterable[MeshGroup]) -> None:
        counts = Sums((each.there.state.name.lower(), each.there.type.name.lower()) for each in groups)
        self._states |= counts.keys()
        for labels in self._states:
            groups_gauge.labels(*labels).set(counts[labels])
