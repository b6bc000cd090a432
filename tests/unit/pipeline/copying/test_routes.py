"""From where to where."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.rpc import replays
from services.pipeline.copying.errors import RefusedError
from services.pipeline.copying.routes import Route, mark_of, routes_of


def replay(*topics: str, places: tuple[tuple[str, str, str], ...] = (), **said: Any) -> replays.Replay:
    spec = replays.ReplaySpec(
        ranges=[replays.ReplayRange(topic=topic) for topic in topics], topic=replays.ReplayToTopic(**said)
    )
    known = [replays.ReplayPlace(topic=a, cluster=b, upstream_topic=c) for a, b, c in places]
    return replays.Replay(name="replays/r1", spec=spec, places=known)


def test_clusters_that_are_named_are_meant_with_their_own_names() -> None:
    routes = routes_of(replay("apples", topic="pears", cluster="c2", source_cluster="c1"))
    assert routes == {"apples": Route("apples", "c1", "apples", "c2", "pears", "mesh-replay-r1")}


def test_others_are_where_the_mesh_has_them() -> None:
    places = (("apples", "c1", "v1.apples"), ("pears", "c2", "pears"))
    assert str(routes_of(replay("apples", topic="pears", places=places))["apples"]) == "c1/v1.apples to c2/pears"
    with pytest.raises(RefusedError, match="'kiwis' lives nowhere"):
        routes_of(replay("kiwis", topic="pears", places=places))


def test_several_topics_keep_their_names_and_have_a_group_each() -> None:
    routes = routes_of(replay("a", "b", topic="{topic}.old", cluster="c2", source_cluster="c1", group="g"))
    assert [(each.target_topic, each.group) for each in routes.values()] == [("a.old", "g.a"), ("b.old", "g.b")]
    with pytest.raises(RefusedError, match="would mix in one"):
        routes_of(replay("a", "b", topic="all", cluster="c2", source_cluster="c1"))


def test_a_topic_is_not_copied_into_itself_but_may_be_restored() -> None:
    same: dict[str, Any] = {"topic": "a", "cluster": "c1", "source_cluster": "c1"}
    with pytest.raises(RefusedError, match="would get its own records again"):
        routes_of(replay("a", **same))
    assert routes_of(replay("a", archive=replays.REPLAY_ARCHIVE_ONLY, **same))


def mark(target_id: str = "id-1", **said: Any) -> str:
    asked = replay("a", **{"topic": "b", "cluster": "c2", "source_cluster": "c1", "group": "g", **said})
    [route] = routes_of(asked).values()
    return mark_of(route, asked, target_id)


@pytest.mark.parametrize(
    "other",
    [
        {"topic": "c"},
        {"filter": "key == 'x'"},
        {"timestamps": replays.REPLAY_TIMESTAMPS_NOW},
        {"partitioning": replays.REPLAY_PARTITIONING_BY_KEY},
        {"target_id": "id-2"},
    ],
)
def test_another_copy_is_told_by_its_mark(other: dict[str, Any]) -> None:
    assert mark(**other) != mark()


def test_a_replay_that_is_resumed_is_the_same_copy_however_it_is_carried_out() -> None:
    kept: dict[str, Any] = {
        "timestamps": replays.REPLAY_TIMESTAMPS_KEEP,
        "partitioning": replays.REPLAY_PARTITIONING_SAME,
    }
    assert mark(force=True, pipeline="other", archive=replays.REPLAY_ARCHIVE_NEVER, **kept) == mark()
