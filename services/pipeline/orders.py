"""What `serve` and the driver of a job tell each other: the order as one line on stdin, reports as lines on stdout.

The order holds secrets, so it is neither an argument nor a file. A report is a ReportReplayRequest of replays.proto:
the partitions that changed, RUNNING or how it ended, and why.

1. A driver reports its plan before it writes the first record, and in the end how it ended: DONE, FAILED, CANCELLED.
   One that ends without that has crashed, and is started again: with the same order, in which the partitions are as
   they were reported last.
2. SIGTERM: it stops, sweeps what it left open, reports CANCELLED with where each partition is, and exits with 0.
   Whether the replay is cancelled by that, or goes on later, is not the driver's to know: serve stops drivers too when
   it stops itself.
3. An order that says `cancelling` is of a driver that died before it could do so: sweep, report CANCELLED, exit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf import json_format

from mesh.rpc import replays


class InvalidOrderError(ValueError):
    """The line is no order."""


class InvalidReportError(ValueError):
    """The line is no report."""


@dataclass(frozen=True, slots=True)
class Order:
    """A replay that a driver has to carry out, or to go on with."""

    replay: replays.Replay
    """With `places`, and with how far it is known to be."""
    clusters: Mapping[str, Mapping[str, str]]
    """librdkafka's properties of every cluster that it needs, secrets resolved."""
    archive: str = ""
    """Folder of the archive; empty for none."""

    def to_line(self) -> str:
        return json.dumps(
            {
                "replay": json_format.MessageToDict(self.replay, preserving_proto_field_name=True),
                "clusters": {name: dict(properties) for name, properties in self.clusters.items()},
                "archive": self.archive,
            }
        )

    @classmethod
    def from_line(cls, line: str) -> Order:
        """InvalidOrderError says what is wrong, and never what stands in the line."""
        try:
            said = json.loads(line)
            replay = json_format.ParseDict(said["replay"], replays.Replay())
            return cls(replay, said["clusters"], said["archive"])
        except (ValueError, KeyError, TypeError, json_format.ParseError) as error:
            raise InvalidOrderError(f"the order can't be read: {type(error).__name__}") from None


def report_to_line(report: replays.ReportReplayRequest) -> str:
    """One line, without its end."""
    return json_format.MessageToJson(report, preserving_proto_field_name=True, indent=None)


def report_from_line(line: str) -> replays.ReportReplayRequest:
    """InvalidReportError for a line that is none."""
    try:
        return json_format.Parse(line, replays.ReportReplayRequest())
    except json_format.ParseError as error:
        raise InvalidReportError(f"the report can't be read: {error}") from None
