"""Notices a librdkafka client that has lost all brokers, and never asks one again.

If a broker answers Metadata without any broker, a client drops all brokers that it knows. Brokers answer so as they
wake or start. The client should begin again at its bootstrap servers, and sometimes does not:
https://github.com/confluentinc/librdkafka/issues/5301 (open; versions since 2.10). Only a new client helps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

STATISTICS_MS: Final = 15_000
"""Milliseconds between two reports of a client (`statistics.interval.ms`)."""
_REPORTS: Final = 2
"""Reports in a row without a broker; a client that begins again has its bootstrap servers within milliseconds."""
_LOGICAL: Final = "logical"
"""The source of an entry that stands for a group's coordinator, and has no address of its own."""


class BrokerWatch:
    """The `stats_cb` of one client. The client calls it in the thread that polls the client."""

    def __init__(self) -> None:
        self._reports_without = 0

    def __call__(self, document: str) -> None:
        self.heed(json.loads(document))

    def heed(self, report: Mapping[str, Any]) -> None:
        """Takes one report (librdkafka's STATISTICS.md)."""
        knows_one = any(broker.get("source") != _LOGICAL for broker in report.get("brokers", {}).values())
        self._reports_without = 0 if knows_one else self._reports_without + 1

    @property
    def is_lost(self) -> bool:
        """Whether the client has to be replaced."""
        return self._reports_without >= _REPORTS
