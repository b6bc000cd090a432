"""`meshctl traffic` against a real control and its tables."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from services.control.domain.traffic.queries import HOW_TO_START
from tests.fixtures.traffic_tables import TrafficTables

Meshctl = Callable[..., subprocess.CompletedProcess[str]]


def test_who_has_the_most_and_how_a_topic_grew(meshctl: Meshctl, control_database: str) -> None:
    assert HOW_TO_START in meshctl("traffic", "top").stderr
    tables = TrafficTables(control_database)
    this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    for hours, count in ((4, 1_000_000), (3, 1_000_000), (2, 1_500_000), (1, 1_500_000)):
        at = this_hour - timedelta(hours=hours)
        tables.add("hour", at, client="billing", topic="orders", bytes=count, records=7, latencies=[1.0, 2.0, 30.0])
        tables.add("hour", at, client="shop", topic="returns", bytes=9)
    tables.tell(complete_until=datetime.now(UTC))
    when = ("--since", (this_hour - timedelta(hours=4)).isoformat(), "--until", this_hour.isoformat())

    top = meshctl("traffic", "top", "--by", "client,topic", *when)
    assert top.stderr == ""
    _, first, second, _ = (line.split() for line in top.stdout.splitlines())
    assert first == ["billing", "orders", "5", "MB", "28", "12", "0", "2", "30", "30", "30"]
    assert second[:4] == ["shop", "returns", "36", "B"]

    show = meshctl("traffic", "show", "--topic", "orders", "--step", "hour", *when)
    assert len(show.stdout.splitlines()) == 1 + 4 + 1 + 1
    assert show.stdout.splitlines()[-1].startswith("50.0% more bytes")
    told = json.loads(meshctl("traffic", "show", "--topic", "orders", "--step", "hour", *when, "-o", "json").stdout)
    assert [point["figures"]["bytes"] for point in told["points"]] == ["1000000", "1000000", "1500000", "1500000"]

    wrong = meshctl("traffic", "show", "--since", "9999d", "--step", "minute", check=False)
    assert wrong.returncode == 2
    assert "step: " in wrong.stderr
