"""`/adm/kafka/replay`: records are consumed again, as jobs."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from services.sidecar.api.components import NO_PRODUCER
from services.sidecar.api.consumers import epoch_ms
from services.sidecar.api.contract import CONTRACT, parameters
from services.sidecar.api.requests import checked_body
from services.sidecar.api.status import json_response
from services.sidecar.consuming.positions import AtOffset, AtTime, Edge
from services.sidecar.faults import Fault, FaultKind
from services.sidecar.jobs.job import (
    Filter,
    Job,
    JobSpec,
    PartitionProgress,
    Range,
    RefusedError,
    ToBackend,
    ToTopic,
)
from services.sidecar.jobs.jobs import Jobs, TooManyJobsError
from services.sidecar.jobs.original_command import MEMBERS, job_spec
from services.sidecar.settings import SidecarSettings

_OF_BOTH = {"lastRetry"}
_OF_THE_ORIGINAL = frozenset(MEMBERS) - _OF_BOTH

Start = Callable[[JobSpec], Awaitable[Job]]
"""Has a job begun, known to control if that is there. RefusedError, TooManyJobsError."""
Cancel = Callable[[str], Awaitable[Job | None]]
Announce = Callable[[Mapping[str, Any]], Awaitable[Response]]
"""Writes the original's command for the sidecar that carries the command out."""


class ReplayEndpoints:
    """The operators' calls on jobs."""

    def __init__(
        self, settings: SidecarSettings, jobs: Jobs, start: Start, cancel: Cancel, announce: Announce | None
    ) -> None:
        """`announce`: None where there is no topic of commands."""
        self._settings = settings
        self._jobs = jobs
        self._start = start
        self._cancel = cancel
        self._announce = announce

    def routes(self) -> list[Route]:
        return CONTRACT.routes(self.start_replay, self.list_replays, self.get_replay, self.cancel_replay)

    async def start_replay(self, request: Request) -> Response:
        if not self._settings.producer_enabled:
            raise Fault(NO_PRODUCER.kind, NO_PRODUCER.description)
        asked: dict[str, Any] = await checked_body(request, self._settings.max_request_bytes)
        try:
            if "ranges" in asked:
                spec = _spec(asked)
            else:
                spec = self._of_original(asked)
                if self._announce is not None:
                    return await self._announce(asked)
            return json_response(shown_job(await self._start(spec)), 202)
        except RefusedError as refused:
            raise Fault(FaultKind.TOPICREPLAY_METADATA_ERROR, str(refused)) from None
        except TooManyJobsError as too_many:
            raise Fault(FaultKind.TOO_MANY_REPLAYS, str(too_many)) from None

    async def list_replays(self, request: Request) -> Response:
        return json_response([shown_job(job) for job in self._jobs])

    async def get_replay(self, request: Request) -> Response:
        return json_response(shown_job(_found(request, self._jobs.get(_id(request)))))

    async def cancel_replay(self, request: Request) -> Response:
        return json_response(shown_job(_found(request, await self._cancel(_id(request)))))

    def _of_original(self, asked: Mapping[str, Any]) -> JobSpec:
        if strange := asked.keys() - frozenset(MEMBERS):
            raise RefusedError(f"{', '.join(sorted(strange))}: only with ranges, and topicName is none")
        spec = job_spec(asked, self._settings.dead_letter_extension)
        self._jobs.check(spec)
        return spec


def shown_job(job: Job) -> dict[str, object]:
    spec = job.spec
    shown: dict[str, object] = {
        "id": job.id,
        "state": job.state.value,
        "description": job.description,
        **_destination(spec),
        "deadLetters": spec.dead_letters,
        "dryRun": spec.dry_run,
        "rate": spec.rate,
        "group": job.group,
        "byControl": job.by_control,
        "created": job.created,
        "records": job.records,
        "failed": job.failed,
        "partitions": [_shown_progress(one) for one in job.partitions.values()],
    }
    if job.ended is not None:
        shown["ended"] = job.ended
    return shown


def _id(request: Request) -> str:
    return str(parameters(request)["id"])


def _found(request: Request, job: Job | None) -> Job:
    if job is None:
        raise Fault(
            FaultKind.REPLAY_NOT_FOUND, f"No replay {_id(request)[:100]!r} here; GET /adm/kafka/replay has them all"
        )
    return job


def _spec(asked: Mapping[str, Any]) -> JobSpec:
    if mixed := asked.keys() & _OF_THE_ORIGINAL:
        raise RefusedError(f"ranges exclude {', '.join(sorted(mixed))}: say it in the ranges, or leave these out")
    chosen = asked.get("filter", {})
    return JobSpec(
        ranges=tuple(_range(one, f"/ranges/{index}") for index, one in enumerate(asked["ranges"])),
        destination=_asked_destination(asked),
        group=asked.get("group", ""),
        rate=asked.get("rate", 0.0),
        dry_run=asked.get("dryRun", False),
        dead_letters=asked.get("deadLetters", False),
        filter=Filter(
            frozenset(chosen.get("reasons", ())),
            frozenset(key.encode() for key in chosen.get("keys", ())),
            frozenset(chosen.get("offsets", ())),
        ),
    )


def _asked_destination(asked: Mapping[str, Any]) -> ToBackend | ToTopic:
    match asked.get("to", "backend"):
        case "source":
            return ToTopic()
        case "topic":
            if not asked.get("topic"):
                raise RefusedError("name the topic that gets the records")
            return ToTopic(asked["topic"])
        case _:
            return ToBackend(asked.get("path", ""), asked.get("lastRetry", False))


def _range(asked: Mapping[str, Any], pointer: str) -> Range:
    start: AtOffset | AtTime | Edge = Edge.FIRST
    end: AtOffset | AtTime | Edge = Edge.LAST
    for one, other in (("startOffset", "startTime"), ("endOffset", "endTime")):
        if one in asked and other in asked:
            raise RefusedError(f"{one} and {other} exclude each other in {pointer}")
    if "startOffset" in asked:
        start = AtOffset(asked["startOffset"])
    elif "startTime" in asked:
        start = AtTime(epoch_ms(asked["startTime"], f"{pointer}/startTime"))
    if "endOffset" in asked:
        end = AtOffset(asked["endOffset"])
    elif "endTime" in asked:
        end = AtTime(epoch_ms(asked["endTime"], f"{pointer}/endTime"))
    return Range(asked["topic"], asked.get("partition"), start, end)


def _destination(spec: JobSpec) -> dict[str, str]:
    if isinstance(spec.destination, ToBackend):
        return {"to": "backend"}
    return {"to": "topic", "topic": spec.destination.topic} if spec.destination.topic else {"to": "source"}


def _shown_progress(one: PartitionProgress) -> dict[str, object]:
    shown: dict[str, object] = {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "startOffset": one.start,
        "endOffset": one.end,
        "position": one.position,
        "records": one.records,
        "failed": one.failed,
    }
    if one.planned is not None:
        shown["planned"] = one.planned
    return shown
