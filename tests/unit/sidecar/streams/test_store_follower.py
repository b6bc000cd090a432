"""The thread that brings stores up to date outlives whatever goes wrong, and whoever waits hears of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from services.sidecar.streams import Topology, store_follower
from services.sidecar.streams.store_follower import Follower, StorePlace

WITHIN_SECONDS = 60
PLACE = StorePlace("counts", 0)


class Changelogs:
    """A consumer of a changelog that ends at `end`."""

    end = 5
    surprise: Exception | None = None
    complaint: KafkaError | None = None

    def __init__(self, properties: dict[str, Any]) -> None:
        pass

    def get_watermark_offsets(self, partition: object, timeout: float) -> tuple[int, int]:
        return 0, self.end

    def consume(self, most: int, timeout: float) -> list[object]:
        if self.surprise is not None:
            raise self.surprise
        return [] if self.complaint is None else [Complaint(self.complaint)]

    def incremental_assign(self, partitions: object) -> None: ...

    def incremental_unassign(self, partitions: object) -> None: ...

    def unassign(self) -> None: ...

    def close(self) -> None: ...


class Complaint:
    """An error of the client that is about no topic."""

    def __init__(self, error: KafkaError) -> None:
        self._error = error

    def error(self) -> KafkaError:
        return self._error

    def topic(self) -> None: ...

    def partition(self) -> None: ...


@pytest.mark.parametrize(
    ("member", "value", "reason"),
    [
        ("surprise", RuntimeError("nobody thought of it"), "nobody thought of it"),
        ("complaint", KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), "(?i)group authorization failed"),
    ],
    ids=["a surprise", "an error about no topic"],
)
def test_what_goes_wrong_is_told_to_whoever_waits_and_the_next_order_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, member: str, value: object, reason: str
) -> None:
    monkeypatch.setattr(store_follower, "Consumer", Changelogs)
    monkeypatch.setattr(Changelogs, member, value)
    topology = Topology("shop")
    topology.stream("orders").group().count(store="counts")
    follower = Follower(topology.plan("app"), {}, tmp_path, max_store_bytes=1 << 20, keep_ready=False)
    follower.start([PLACE])
    try:
        waiting = follower.ask_for(PLACE)
        with pytest.raises(OSError, match=reason):
            waiting.result(WITHIN_SECONDS)
        assert re.search(reason, follower.status.failure)
        monkeypatch.setattr(Changelogs, "end", 0)
        store = follower.ask_for(PLACE).result(WITHIN_SECONDS)
        assert store.checkpoint == 0
        store.close()
    finally:
        follower.stop(WITHIN_SECONDS)
