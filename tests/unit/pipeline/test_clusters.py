"""Which clusters there are, as control or the operator tells it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from mesh.rpc import admin, admin_grpc, routing
from services.pipeline.kafka.clusters import (
    KEPT_FILE,
    ClustersError,
    home_of,
    properties_of,
    read_clusters,
    read_places,
    set_clusters,
    told_clusters,
)

TIMEOUT_S = 10.0
NOBODY = "127.0.0.1:1"


class Control(admin_grpc.ClusterServiceServicer):
    """Tells two clusters, one on each page."""

    def ListClusters(self, request: admin.ListClustersRequest, context: Any) -> admin.ListClustersResponse:
        if not request.page_token:
            c1 = routing.ClusterSpec(
                cluster_name="c1",
                bootstrap_servers=["kafka-1:9092", "kafka-2:9092"],
                producer_config={"security.protocol": "SASL_SSL", "sasl.password": "${env:OF_C1}", "linger.ms": "5"},
            )
            return admin.ListClustersResponse(clusters=[admin.Cluster(spec=c1, ordinal=1)], next_page_token="2")
        c2 = routing.ClusterSpec(cluster_name="c2", bootstrap_servers=["kafka-3:9092"])
        return admin.ListClustersResponse(clusters=[admin.Cluster(spec=c2, home=True, ordinal=7)])


class Past(admin_grpc.QueryServiceServicer):
    """Tells the places of a topic, one decision on each page."""

    def ListHistory(self, request: admin.ListHistoryRequest, context: Any) -> admin.ListHistoryResponse:
        entries = [
            admin.HistoryEntry(place="c3", outcome="aborted: a gateway did not answer"),
            admin.HistoryEntry(place="c2", outcome="switched"),
            admin.HistoryEntry(place=""),
            admin.HistoryEntry(place=f"c1/old.{request.topic}"),
        ]
        page = int(request.page_token or 0)
        token = str(page + 1) if page + 1 < len(entries) else ""
        return admin.ListHistoryResponse(entries=entries[page : page + 1], next_page_token=token)


@pytest.fixture
def control() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1))
    admin_grpc.add_ClusterServiceServicer_to_server(Control(), server)  # type: ignore[abstract]  # the rest is not asked
    admin_grpc.add_QueryServiceServicer_to_server(Past(), server)  # type: ignore[abstract]  # the rest is not asked
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


def test_control_tells_them_all_with_their_security_and_secrets_are_resolved(
    control: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_C1", "a secret")
    clusters = read_clusters((control,), TIMEOUT_S)
    assert list(clusters) == ["c1", "c2"]
    assert clusters["c1"].properties == {
        "bootstrap.servers": "kafka-1:9092,kafka-2:9092",
        "security.protocol": "SASL_SSL",
        "sasl.password": "a secret",
    }
    assert home_of(clusters).name == "c2"
    assert "a secret" not in repr(clusters)


def test_a_secret_that_is_not_here_is_named_where_its_cluster_is_used_and_nowhere_else(control: str) -> None:
    clusters = read_clusters((control,), TIMEOUT_S)
    assert properties_of(clusters, ["c2"]) == {"c2": {"bootstrap.servers": "kafka-3:9092"}}
    with pytest.raises(ClustersError, match=r"cluster 'c1': sasl.password: \$\{env:OF_C1\} refers to an environment"):
        properties_of(clusters, ["c1", "c2"])


def test_a_cluster_that_nobody_knows_is_named(control: str) -> None:
    with pytest.raises(ClustersError, match=r"^cluster c8, c9 is not registered \(known: c1, c2\)$"):
        properties_of(read_clusters((control,), TIMEOUT_S), ["c9", "c1", "c8"])


def test_while_control_is_away_its_clusters_are_those_that_it_told_last(
    control: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_C1", "a secret")
    told = read_clusters((control,), TIMEOUT_S, tmp_path / "state")
    kept = read_clusters((NOBODY,), TIMEOUT_S, tmp_path / "state")
    assert kept == told
    assert [each.properties for each in kept.values()] == [each.properties for each in told.values()]
    assert [each.node for each in kept.values()] == ["101", "107"], "gateways show these nodes"

    [file] = (tmp_path / "state").iterdir()
    assert "${env:OF_C1}" in file.read_text()
    assert "a secret" not in file.read_text()


@pytest.mark.parametrize("content", [None, "", "{broken", '{"clusters": 7}'])
def test_without_anything_kept_it_is_said_that_control_is_away(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / KEPT_FILE).write_text(content)
    with pytest.raises(ClustersError, match="does not tell the clusters"):
        read_clusters((NOBODY,), TIMEOUT_S, tmp_path)


def test_a_disk_that_keeps_nothing_is_no_reason_not_to_go_on(control: str, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file, where a folder should be")
    assert list(read_clusters((control,), TIMEOUT_S, tmp_path / "state")) == ["c1", "c2"]


def test_any_replica_of_control_may_tell_the_clusters(control: str) -> None:
    assert list(read_clusters((NOBODY, control), TIMEOUT_S)) == ["c1", "c2"]


def test_the_places_of_a_topic_are_those_that_it_really_had_the_newest_first(control: str) -> None:
    assert read_places((NOBODY, control), "apples", TIMEOUT_S) == ["c2", "c1/old.apples"]
    with pytest.raises(ClustersError, match=r"control at 127.0.0.1:1 does not tell the places of topic apples"):
        read_places((NOBODY,), "apples", TIMEOUT_S)


def test_without_control_it_is_said_what_to_do() -> None:
    with pytest.raises(ClustersError, match=r"control at 127.0.0.1:1 does not tell .* name them: --cluster NAME="):
        read_clusters((NOBODY,), TIMEOUT_S)


def test_the_operator_may_name_them_and_the_first_is_home() -> None:
    clusters = told_clusters(["c1=a:1,b:2", "c2=[::1]:3"], {"security.protocol": "SSL"})
    assert clusters["c1"].properties == {"bootstrap.servers": "a:1,b:2", "security.protocol": "SSL"}
    assert home_of(clusters).name == "c1"


@pytest.mark.parametrize("word", ["c1", "=a:1", "c1=", "c1=a", "c1=a:1,"])
def test_what_names_no_cluster_is_refused(word: str) -> None:
    with pytest.raises(ClustersError, match="it is NAME=HOST:PORT"):
        told_clusters([word], {})


def test_settings_may_hold_each_with_its_own_security(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_C2", "another")
    clusters = set_clusters({"c2": {"bootstrap.servers": "a:1", "sasl.password": "${env:OF_C2}"}})
    assert clusters["c2"].properties["sasl.password"] == "another"
    with pytest.raises(ClustersError, match=r"'c3' has no bootstrap.servers"):
        set_clusters({"c3": {}})
    with pytest.raises(ClustersError, match="none of the clusters is home"):
        home_of({})
