"""`run replay` and `run restore`: which of them go on with what was begun."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.rpc import replays
from services.pipeline.commands import copies
from services.pipeline.commands.copies import HowToCopy, copy_by_hand
from services.pipeline.driver_protocol.orders import Order
from services.pipeline.kafka.clusters import Cluster
from services.pipeline.settings import PipelineSettings

ONLY, AUTO, NEVER = replays.REPLAY_ARCHIVE_ONLY, replays.REPLAY_ARCHIVE_AUTO, replays.REPLAY_ARCHIVE_NEVER
HOW: dict[str, Any] = {"since": None, "until": None, "by_key": False, "retime": False, "rate": 0.0, "group": None}


class ByHand:
    """What is ordered when somebody types it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._orders: list[Order] = []

        def take(order: Order, *_others: object) -> replays.ReplayState.ValueType:
            self._orders.append(order)
            return replays.REPLAY_STATE_DONE

        monkeypatch.setattr(copies, "carry_out", take)

    def replay(
        self, archive: replays.ReplayArchive.ValueType = AUTO, folder: str = "/data", **said: Any
    ) -> replays.ReplayToTopic:
        copy = replays.ReplayToTopic(topic="pears", cluster="c2", source_cluster="c1", archive=archive)
        how = HowToCopy(**{**HOW, "force": False, "dry_run": False, "told": (), "config": None, **said})
        clusters = {name: Cluster(name, {"bootstrap.servers": f"{name}:9092"}) for name in ("c1", "c2")}
        copy_by_hand(["apples"], copy, how, clusters, PipelineSettings(), folder, "replay")
        return self._orders[-1].replay.spec.topic


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> ByHand:
    return ByHand(monkeypatch)


def test_what_is_forced_or_reads_an_archive_too_goes_on_with_what_was_begun_without(by_hand: ByHand) -> None:
    begun = by_hand.replay().group
    assert by_hand.replay(force=True, rate=7.0).group == begun
    assert by_hand.replay(NEVER).group == begun
    assert by_hand.replay(by_key=True).group != begun


def test_an_archive_is_the_same_however_its_folder_is_written(by_hand: ByHand) -> None:
    begun = by_hand.replay(ONLY, "/data/fruit").group
    assert by_hand.replay(ONLY, "/data/fruit/").group == begun
    assert by_hand.replay(ONLY, "/data/other").group != begun


def test_what_is_said_is_ordered(by_hand: ByHand) -> None:
    copy = by_hand.replay(by_key=True, retime=True, force=True, group="mine")
    assert (copy.partitioning, copy.timestamps, copy.force, copy.group) == (
        replays.REPLAY_PARTITIONING_BY_KEY,
        replays.REPLAY_TIMESTAMPS_NOW,
        True,
        "mine",
    )
