"""The messages between `serve` and a driver: the order as one line on stdin, reports as lines on stdout.

The order contains secrets, so it is neither an argument nor a file. A report is a ReportReplayRequest of replays.proto:
the changed partitions, the state (RUNNING or the final state), and the reason.

1. A driver reports its plan before it writes the first record, and at the end its final state: DONE, FAILED, CANCELLED.
   A driver that ends without a final state has crashed. `serve` starts another driver with the same order, which has
   the last reported state of the partitions.
2. After SIGTERM, the driver stops, ends its open transactions, reports CANCELLED with the position of each partition,
   and exits with 0. The driver does not know whether the replay is cancelled or resumes later: `serve` also stops its
   drivers when it stops itself.
3. An order with `cancelling` follows a driver that died before it could do so. The new driver ends the open
   transactions, reports CANCELLED, and exits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from google.protobuf import json_format

from mesh.rpc import replays

Report = Callable[[replays.ReportReplayRequest], None]
"""Takes the reports of a driver."""


class InvalidOrderError(ValueError):
    """The line is no order."""


class InvalidReportError(ValueError):
    """The line is no report."""


@dataclass(frozen=True, slots=True)
class Order:
    """A replay that a driver has to carry out or resume."""

    replay: replays.Replay
    """The replay with its `places` and its last known progress."""
    clusters: Mapping[str, Mapping[str, str]]
    """librdkafka's properties of each cluster of the replay, with resolved secrets."""
    archive: str = ""
    """Folder of the archive; empty: no archive."""

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
        """InvalidOrderError says what is wrong, and shows nothing of the line."""
        try:
            said = json.loads(line)
            replay = json_format.ParseDict(said["replay"], replays.Replay())
            return cls(replay, said["clusters"], said["archive"])
        except (ValueError, KeyError, TypeError, json_format.ParseError) as error:
            raise InvalidOrderError(f"the order can't be read: {type(error).__name__}") from None


def report_to_line(report: replays.ReportReplayRequest) -> str:
    """One line, without a line break."""
    return json_format.MessageToJson(report, preserving_proto_field_name=True, indent=None)


def report_from_line(line: str) -> replays.ReportReplayRequest:
    """InvalidReportError for a line that is no report."""
    try:
        return json_format.Parse(line, replays.ReportReplayRequest())
    except json_format.ParseError as error:
        raise InvalidReportError(f"the report can't be read: {error}") from None
