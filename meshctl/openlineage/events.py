"""Lineage as RunEvents of OpenLineage 2-0-2. No I/O.

Theory of operation
1. A job is an application, or a record rule (also the copy of a move). Its inputs are the topics that it reads, for a
   group or without one; its outputs are the topics that it writes. Groups and backends are no nodes of OpenLineage.
2. A dataset is a topic of its cluster: the namespace is "kafka://" with the first bootstrap server, the name is the
   topic's name on that cluster. A topic that no cluster has any more is left out.
3. A run is the time in which control sees edges of the job. It has a START at its first edge. After that it has a
   RUNNING event with what the job reads and writes at present, or a COMPLETE event with all that it did if the job is
   away. The id of a run follows from the names and the start. So two exports of one state give the same events.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import lineage as pb

SCHEMA: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
JOB_TYPE_SCHEMA: Final = "https://openlineage.io/spec/facets/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet"
PRODUCER: Final = f"urn:kafka-mesh:meshctl:{version('kafka-mesh')}"
APPLICATION, RECORD_RULE = "APPLICATION", "RECORD_RULE"

Event = dict[str, Any]
_Dataset = tuple[str, str]
"""Namespace and name."""


@dataclass(slots=True)
class Job:
    """A job with the edges that control keeps of it."""

    name: str
    kind: str
    inputs: dict[_Dataset, bool] = field(default_factory=dict)
    outputs: dict[_Dataset, bool] = field(default_factory=dict)
    """Each with whether the job uses it at present."""
    first: Timestamp = field(default_factory=Timestamp)
    last: Timestamp = field(default_factory=Timestamp)
    present: bool = False

    @property
    def state(self) -> tuple[object, ...]:
        """The part of a job whose changes a follower reports."""
        return *self.used(self.inputs), None, *self.used(self.outputs), self.present

    def used(self, datasets: Mapping[_Dataset, bool]) -> list[_Dataset]:
        """The datasets of its last event, in order."""
        return sorted(each for each, is_used in datasets.items() if is_used or not self.present)


def jobs_of(edges: Iterable[pb.LineageEdge]) -> dict[str, Job]:
    """The jobs that read or write a topic, by name."""
    found: dict[str, Job] = {}
    read: dict[str, list[pb.LineageEdge]] = {}
    members: list[pb.LineageEdge] = []
    for each in edges:
        match each.kind:
            case pb.LINEAGE_EDGE_KIND_PRODUCES:
                _note(_job(found, each.source.name, APPLICATION), each, outputs=[each.target])
            case pb.LINEAGE_EDGE_KIND_COPIES:
                _note(_job(found, each.rule, RECORD_RULE), each, inputs=[each.source], outputs=[each.target])
            case pb.LINEAGE_EDGE_KIND_CONSUMES if each.target.kind == pb.LINEAGE_NODE_KIND_APPLICATION:
                _note(_job(found, each.target.name, APPLICATION), each, inputs=[each.source])
            case pb.LINEAGE_EDGE_KIND_CONSUMES:
                read.setdefault(each.target.name, []).append(each)
            case pb.LINEAGE_EDGE_KIND_MEMBER:
                members.append(each)
    for member in members:
        for consumed in read.get(member.source.name, ()):
            _note(_job(found, member.target.name, APPLICATION), member, consumed, inputs=[consumed.source])
    return {name: job for name, job in sorted(found.items()) if job.inputs or job.outputs}


def _job(found: dict[str, Job], name: str, kind: str) -> Job:
    return found.setdefault(name, Job(name, kind))


def _note(
    job: Job, *edges: pb.LineageEdge, inputs: Sequence[pb.LineageNode] = (), outputs: Sequence[pb.LineageNode] = ()
) -> None:
    """Adds a way of records over some edges: the way is there while all of them are."""
    present = all(each.present for each in edges)
    for known, nodes in ((job.inputs, inputs), (job.outputs, outputs)):
        for dataset in _datasets(nodes):
            known[dataset] = known.get(dataset, False) or present
    first = max((each.first_time for each in edges), key=_nanoseconds)
    last = min((each.last_time for each in edges), key=_nanoseconds)
    if not job.first.ByteSize() or _nanoseconds(first) < _nanoseconds(job.first):
        job.first.CopyFrom(first)
    if _nanoseconds(last) > _nanoseconds(job.last):
        job.last.CopyFrom(last)
    job.present = job.present or present


def _nanoseconds(time: Timestamp) -> int:
    return time.ToNanoseconds()


def _datasets(nodes: Iterable[pb.LineageNode]) -> Iterator[_Dataset]:
    for each in nodes:
        if each.bootstrap_servers and each.upstream_topic:
            yield f"kafka://{each.bootstrap_servers[0]}", each.upstream_topic


def whole(jobs: Mapping[str, Job], namespace: str) -> Iterator[Event]:
    """The events of the present state: two for each job."""
    for job in jobs.values():
        run = _run(namespace, job, job.first)
        yield _event(namespace, job, run, "START", job.first)
        yield _event(namespace, job, run, "RUNNING" if job.present else "COMPLETE", job.last)


@dataclass(slots=True)
class Following:
    """The events of changes between two lists of the jobs."""

    namespace: str
    now: Callable[[], Timestamp]
    _runs: dict[str, str] = field(default_factory=dict)
    _states: dict[str, tuple[object, ...]] = field(default_factory=dict)

    def events(self, jobs: Mapping[str, Job]) -> Iterator[Event]:
        """The events of one list. A job that is present again begins another run. A job that control forgets ends."""
        now = self.now()
        for name, job in jobs.items():
            before = self._states.get(name)
            if before == job.state:
                continue
            was_present = before is not None and bool(before[-1])
            self._states[name] = job.state
            if not was_present:
                start = job.first if before is None else now
                self._runs[name] = _run(self.namespace, job, start)
                yield _event(self.namespace, job, self._runs[name], "START", start)
            yield _event(
                self.namespace,
                job,
                self._runs[name],
                "RUNNING" if job.present else "COMPLETE",
                now if job.present else job.last,
            )
        for name in self._states.keys() - jobs.keys():
            del self._states[name], self._runs[name]


def _run(namespace: str, job: Job, start: Timestamp) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{namespace}\n{job.name}\n{start.ToJsonString()}"))


def _event(namespace: str, job: Job, run: str, event_type: str, time: Timestamp) -> Event:
    facet = {
        "_producer": PRODUCER, "_schemaURL": JOB_TYPE_SCHEMA,
        "processingType": "STREAMING", "integration": "KAFKA_MESH", "jobType": job.kind,
    }  # fmt: skip
    return {
        "eventType": event_type,
        "eventTime": time.ToJsonString(),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
        "run": {"runId": run},
        "job": {"namespace": namespace, "name": job.name, "facets": {"jobType": facet}},
        "inputs": [{"namespace": where, "name": name} for where, name in job.used(job.inputs)],
        "outputs": [{"namespace": where, "name": name} for where, name in job.used(job.outputs)],
    }
