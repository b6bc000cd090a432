"""Jobs in the state file: JSON that people can read, with the names of the contract."""

from collections.abc import Iterable
from typing import Any

import orjson
import structlog
from google.protobuf import json_format

from mesh.rpc import replays
from services.sidecar.jobs.job import Job, RefusedError
from services.sidecar.jobs.messages import job_of, replay_message

VERSION = 1

log = structlog.get_logger(__name__)


def encoded(jobs: Iterable[Job]) -> bytes:
    shown = [json_format.MessageToDict(replay_message(job, "")) for job in jobs]
    return orjson.dumps({"version": VERSION, "jobs": shown}, option=orjson.OPT_INDENT_2)


def decoded(content: bytes) -> list[Job]:
    """The jobs in the state file. ValueError if the content is no list of jobs. A job that this release does not
    understand is named in the log, and is left out."""
    try:
        state: Any = orjson.loads(content)
        version, given = state["version"], list(state["jobs"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"not the jobs of a sidecar ({error!r})") from None
    if version != VERSION:
        raise ValueError(f"its version is {version!r}, this release knows {VERSION}")
    found = []
    for one in given:
        try:
            found.append(
                job_of(json_format.ParseDict(one, replays.Replay(), ignore_unknown_fields=True), by_control=False)
            )
        except (json_format.ParseError, RefusedError) as error:
            log.error("a job in the state file is not understood", job=str(one)[:500], reason=str(error))
    return found
