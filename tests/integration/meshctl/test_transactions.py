"""Transactions over two real clusters, ended by an operator while their application or all gateways are gone."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from services.gateway.requests.plan import Command
from services.gateway.requests.transactions import end, sweep
from services.gateway.wire.errors import ErrorCode
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.leaders import await_leaders
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.transacting import LibrdkafkaTransacting, TransactionError, read_committed
from tests.integration.meshctl.conftest import Meshctl

ANSWER_S = 30.0
GIVEN_UP_S = 5.0
"""So long an application waits for a commit that nobody will answer."""


@dataclass(frozen=True, slots=True)
class Orchard:
    """apples are on c1, which is home, bananas on c2."""

    apples: str
    bananas: str
    c1: KafkaCluster
    c2: KafkaCluster
    gateway: RunningGateway

    @property
    def transactional_id(self) -> str:
        return f"{self.apples}/id"

    def committed(self) -> tuple[list[str], list[str]]:
        """apples on c1, bananas on c2."""
        return read_committed(self.c1.bootstrap, self.apples), read_committed(self.c2.bootstrap, self.bananas)


@pytest.fixture
def orchard(meshctl: Meshctl, kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, tmp_path: Path) -> Iterator[Orchard]:
    listed = json.loads(meshctl("cluster", "list", "-o", "json").stdout)["clusters"]
    registered = {each["spec"]["cluster_name"] for each in listed}
    for name, cluster in (("c1", kafka_c1), ("c2", kafka_c2)):
        if name not in registered:
            meshctl("cluster", "register", name, cluster.bootstrap)
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    apples, bananas = f"{name}-apples", f"{name}-bananas"
    rules = Rules({"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap})
    for cluster_name, cluster, topic in (("c1", kafka_c1, apples), ("c2", kafka_c2, bananas)):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(ANSWER_S)
        await_leaders(admin, topic, 2)
        rules.to(cluster_name, [topic])
    gateway = RunningGateway(tmp_path / "gateway", rules.table)
    yield Orchard(apples, bananas, kafka_c1, kafka_c2, gateway)
    gateway.close()


def shown(meshctl: Meshctl, *arguments: str) -> Any:
    return json.loads(meshctl("transactions", *arguments, "-o", "json").stdout)


def begun(orchard: Orchard) -> LibrdkafkaTransacting:
    """A producer with an open transaction on both clusters."""
    producer = LibrdkafkaTransacting(orchard.gateway.address, orchard.transactional_id)
    producer.init()
    producer.begin()
    producer.send(orchard.apples, "half")
    producer.send(orchard.bananas, "other half")
    assert producer.flush() == []
    return producer


def test_an_open_transaction_is_shown_with_all_its_parts_and_aborted_on_all_clusters(
    orchard: Orchard, meshctl: Meshctl
) -> None:
    producer = begun(orchard)
    wanted = ("--id-prefix", orchard.apples)
    (listed,) = shown(meshctl, "list", *wanted)["transactions"]
    assert listed["state"] == "TRANSACTION_STATE_UNDECIDED"
    assert not listed["hanging"]
    assert shown(meshctl, "list", *wanted, "--hanging")["transactions"] == []
    assert shown(meshctl, "list", *wanted, "--older-than", "1d")["transactions"] == []
    assert [each["name"] for each in shown(meshctl, "list", *wanted, "--older-than", "0s")["transactions"]] == [
        listed["name"]
    ]
    described = shown(meshctl, "describe", orchard.transactional_id)
    assert [(part["cluster"], part["state"]) for part in described["parts"]] == [("c1", "Ongoing"), ("c2", "Ongoing")]
    written = {part["cluster"]: [each["topic"] for each in part["topics"]] for part in described["parts"]}
    assert written == {"c1": [orchard.apples], "c2": [orchard.bananas]}
    refused = meshctl("transactions", "finish", orchard.transactional_id, check=False)
    assert refused.returncode != 0
    assert "is not decided, and open on c1, c2. Abort it instead" in refused.stderr

    said = meshctl("transactions", "abort", orchard.transactional_id, "--reason", "nobody knows its application")
    assert f"{orchard.transactional_id}: aborted on c1, c2; its producer is fenced" in said.stdout
    with pytest.raises(TransactionError):
        producer.commit()
    producer.close()
    assert orchard.committed() == ([], [])
    assert shown(meshctl, "list", *wanted)["transactions"] == []
    (ended,) = shown(meshctl, "list", *wanted, "--state", "ended")["transactions"]
    assert [part["topics"] for part in ended["parts"]] == [[], []]
    history = json.loads(meshctl("history", "-n", "5", "-o", "json").stdout)["entries"]
    told = [(each["reason"], each["changes"]) for each in history]
    sentence = f"transactional id {orchard.transactional_id}: the open transaction is aborted on c1, c2"
    assert ("nobody knows its application", [sentence]) in told

    again = LibrdkafkaTransacting(orchard.gateway.address, orchard.transactional_id)
    again.init()
    again.begin()
    again.send(orchard.bananas, "after the abort")
    again.commit()
    again.close()
    assert orchard.committed() == ([], ["after the abort"])


def test_a_decided_transaction_is_finished_while_all_gateways_are_gone_and_can_not_be_aborted(
    orchard: Orchard, meshctl: Meshctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = begun(orchard)

    def dies(*_: object) -> Generator[Command, Any, ErrorCode]:
        yield from ()
        return ErrorCode.COORDINATOR_NOT_AVAILABLE

    monkeypatch.setattr(end, "commit_parts", dies)
    monkeypatch.setattr(end, "finish_all", dies)
    monkeypatch.setattr(sweep, "finish", dies)
    with ThreadPoolExecutor(1) as elsewhere:
        committing = elsewhere.submit(producer.commit, GIVEN_UP_S)

        def decided() -> bool:
            return bool(shown(meshctl, "list", "--id-prefix", orchard.apples, "--state", "decided")["transactions"])

        wait_until(decided, "the commit is decided")
        orchard.gateway.close()
        described = shown(meshctl, "describe", orchard.transactional_id)
        assert [part["waits_for_commit"] for part in described["parts"]] == [False, True]
        assert "the commit is still to come on c2" in described["decision"]
        assert read_committed(orchard.c1.bootstrap, orchard.apples) == ["half"]
        assert read_committed(orchard.c2.bootstrap, orchard.bananas, left_open=True) == []
        refused = meshctl("transactions", "abort", orchard.transactional_id, check=False)
        assert refused.returncode != 0
        assert "is decided: committed by producer" in refused.stderr
        assert "Finish it instead" in refused.stderr
        said = meshctl("transactions", "finish", orchard.transactional_id, "--reason", "all gateways are down")
        assert f"{orchard.transactional_id}: committed on c2" in said.stdout
        assert orchard.committed() == (["half"], ["other half"])
        with contextlib.suppress(TransactionError):
            committing.result()
    producer.close()
    assert meshctl("transactions", "finish", orchard.transactional_id, check=False).returncode != 0


def test_an_id_that_no_cluster_knows_is_named(orchard: Orchard, meshctl: Meshctl) -> None:
    for command in ("describe", "finish", "abort"):
        refused = meshctl("transactions", command, "nobody-s", check=False)
        assert refused.returncode != 0
        assert "no cluster knows the transactional id 'nobody-s'" in refused.stderr
