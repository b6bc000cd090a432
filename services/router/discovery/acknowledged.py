"""How far gateways have acknowledged the logs under standby, for control: also what gateways said that are gone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mesh.acknowledgements import merged
from mesh.rpc import acknowledgements

MOST_LOGS = 5_000
"""The topics of all standbys."""


class AcknowledgedLogs:
    """The last logs that any gateway reported, by topic. Messages are never changed in place."""

    def __init__(self) -> None:
        self._logs: dict[str, acknowledgements.AcknowledgedLog] = {}

    def heard(self, logs: Iterable[acknowledgements.AcknowledgedLog]) -> None:
        """A gateway has reported these logs."""
        for each in logs:
            self._logs[each.topic] = merged(self._logs.pop(each.topic, None), each)
        while len(self._logs) > MOST_LOGS:
            del self._logs[next(iter(self._logs))]

    def known(self) -> Mapping[str, acknowledgements.AcknowledgedLog]:
        """By topic."""
        return dict(self._logs)
