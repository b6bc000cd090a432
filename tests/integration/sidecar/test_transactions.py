"""All or nothing, and only once: transactions and Idempotency-Key, on Kafka and through a gateway over two clusters."""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from services.sidecar.api.requests import BIG_BODY_BYTES
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.older_kafka import OlderKafka
from tests.integration.gateway.running import Rules, RunningGateway
from tests.integration.gateway.transacting import LibrdkafkaTransacting, read_committed
from tests.integration.sidecar.world import Kafka, SidecarWorld, started

Json = dict[str, Any]
WITHIN_S = 30.0


@dataclass(frozen=True)
class Writing:
    """A sidecar and the cluster behind it."""

    sidecar: SidecarWorld
    bootstrap: str
    name: str

    def transaction(self, *parts: tuple[str, list[Json]], **headers: str) -> httpx.Response:
        topics = [{"topic": topic, "valueFormat": "string", "records": records} for topic, records in parts]
        return self.sidecar.http.post("/transactions", json={"topics": topics}, headers=headers)

    def once(self, key: str, topic: str, *values: str) -> httpx.Response:
        body = {"valueFormat": "string", "records": [{"value": value} for value in values]}
        return self.sidecar.http.post(f"/producers/{topic}", json=body, headers={"Idempotency-Key": key})

    def committed(self, topic: str) -> list[str]:
        return read_committed(self.bootstrap, topic)


@pytest.fixture(scope="module")
def writing(kafka_c1: KafkaCluster) -> Iterator[Writing]:
    name = f"writing-{uuid.uuid4().hex[:8]}"
    with started(kafka_c1.bootstrap, name=name) as world:
        yield Writing(world, kafka_c1.bootstrap, name)


@pytest.fixture
def new_topic(kafka: Kafka) -> Callable[[], str]:
    def make() -> str:
        name = f"transactions-{uuid.uuid4().hex[:8]}"
        kafka.create(name)
        return name

    return make


@pytest.mark.parametrize(
    ("settings", "milliseconds"), [({}, "7200000"), ({"segment.ms": "86400000"}, "86400000")], ids=["none", "its own"]
)
def test_a_topic_of_answers_from_an_earlier_version_gets_short_segments_unless_it_has_its_own(
    kafka: Kafka, new_topic: Callable[[], str], settings: dict[str, str], milliseconds: str
) -> None:
    name = f"older-{uuid.uuid4().hex[:8]}"
    answers = f"kafka-mesh-sidecar-{name}.idempotency"
    kafka.create(answers, 1, {"retention.ms": "86400000", **settings})
    with started(kafka.bootstrap, name=name) as world:
        writing = Writing(world, kafka.bootstrap, name)
        assert writing.once("a", new_topic(), "apples").status_code == 200
    resource = ConfigResource(ConfigResource.Type.TOPIC, answers)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (found,) = admin.describe_configs([resource]).values()
    assert found.result(WITHIN_S)["segment.ms"].value == milliseconds


def test_records_of_several_topics_are_written_together(writing: Writing, new_topic: Callable[[], str]) -> None:
    apples, bananas = new_topic(), new_topic()
    answer = writing.transaction(
        (apples, [{"value": "a", "partition": 0}, {"value": "b", "partition": 1}]),
        (bananas, [{"value": "c", "partition": 1}]),
    )
    assert (answer.status_code, answer.json()) == (
        200,
        {
            "topics": [
                {"topic": apples, "offsets": [{"partition": 0, "offset": 0}, {"partition": 1, "offset": 0}]},
                {"topic": bananas, "offsets": [{"partition": 1, "offset": 0}]},
            ],
            "requestStatus": "OK",
        },
    )
    assert (writing.committed(apples), writing.committed(bananas)) == (["a", "b"], ["c"])


def test_a_large_transaction_keeps_its_order(writing: Writing, new_topic: Callable[[], str]) -> None:
    topics = new_topic(), new_topic()
    values = [str(number).zfill(300) for number in range(300)]
    records = [{"value": value, "partition": 0} for value in values]
    answer = writing.transaction(*((topic, records) for topic in topics))
    assert len(answer.request.content) > BIG_BODY_BYTES
    offsets = [[one["offset"] for one in part["offsets"]] for part in answer.json()["topics"]]
    assert offsets == [list(range(len(values)))] * 2
    assert [writing.committed(topic) for topic in topics] == [values] * 2


def test_if_one_record_cannot_be_written_none_is(writing: Writing, new_topic: Callable[[], str]) -> None:
    apples, bananas = new_topic(), new_topic()
    answer = writing.transaction((apples, [{"value": "a"}]), (bananas, [{"value": "b", "partition": 77}]))
    assert (answer.status_code, answer.json()["requestStatus"]) == (404, "NOT_FOUND")
    first, second = (part["offsets"][0] for part in answer.json()["topics"])
    assert (first["errorCode"], second["errorCode"]) == (40402, 40402)
    assert "its transaction was aborted" in first["error"]
    assert (writing.committed(apples), writing.committed(bananas)) == ([], [])
    assert writing.transaction((apples, [{"value": "later"}])).status_code == 200
    assert writing.committed(apples) == ["later"]


def test_a_transaction_with_an_unknown_topic_writes_nothing(writing: Writing, new_topic: Callable[[], str]) -> None:
    apples = new_topic()
    answer = writing.transaction((apples, [{"value": "a"}]), (f"{apples}-nowhere", [{"value": "b"}]))
    assert (answer.status_code, answer.json()["topics"][1]["offsets"][0]["errorCode"]) == (404, 40401)
    assert writing.committed(apples) == []


def test_a_request_that_comes_again_gets_the_first_answer_and_writes_nothing(
    writing: Writing, new_topic: Callable[[], str]
) -> None:
    apples = new_topic()
    first = writing.once(f"{apples}-1", apples, "a", "b")
    again = writing.once(f"{apples}-1", apples, "a", "b")
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    assert ("Idempotency-Replayed" in first.headers, again.headers["Idempotency-Replayed"]) == (False, "true")
    assert writing.committed(apples) == ["a", "b"]


def test_a_transaction_that_comes_again_gets_the_first_answer_too(
    writing: Writing, new_topic: Callable[[], str]
) -> None:
    apples, bananas = new_topic(), new_topic()
    parts = ((apples, [{"value": "a"}]), (bananas, [{"value": "b"}]))
    first, again = (writing.transaction(*parts, **{"Idempotency-Key": apples}) for _ in range(2))
    assert (first.json(), again.headers["Idempotency-Replayed"]) == (again.json(), "true")
    assert (writing.committed(apples), writing.committed(bananas)) == (["a"], ["b"])


def test_a_key_is_for_one_request(writing: Writing, new_topic: Callable[[], str]) -> None:
    apples = new_topic()
    assert writing.once(apples, apples, "a").status_code == 200
    other = writing.once(apples, apples, "b")
    assert (other.status_code, other.json()["code"]) == (422, "ERR12950")
    assert writing.committed(apples) == ["a"]


def test_what_could_not_be_written_is_not_kept(writing: Writing, new_topic: Callable[[], str]) -> None:
    apples = new_topic()
    body = {"records": [{"value": 1}, {"value": 2, "partition": 77}]}
    for _ in range(2):
        answer = writing.sidecar.http.post(f"/producers/{apples}", json=body, headers={"Idempotency-Key": apples})
        assert (answer.status_code, "Idempotency-Replayed" in answer.headers) == (404, False)
    assert writing.committed(apples) == []


def test_the_same_request_many_times_at_once_is_written_once(writing: Writing, new_topic: Callable[[], str]) -> None:
    apples = new_topic()
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: writing.once(apples, apples, "a"), range(5)))
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(answer.headers.get("Idempotency-Replayed", "false") for answer in answers) == ["false"] + 4 * ["true"]
    assert writing.committed(apples) == ["a"]


def test_another_sidecar_of_the_same_name_knows_the_answers_and_the_first_one_goes_on(
    writing: Writing, new_topic: Callable[[], str]
) -> None:
    """As after a restart; and when the old one is still there, each is fenced by the other, and nothing is lost."""
    apples = new_topic()
    first = writing.once(f"{apples}-1", apples, "of the first")
    with started(writing.bootstrap, name=writing.name) as world:
        twin = Writing(world, writing.bootstrap, writing.name)
        again = twin.once(f"{apples}-1", apples, "of the first")
        assert (again.json(), again.headers["Idempotency-Replayed"]) == (first.json(), "true")
        second = twin.once(f"{apples}-2", apples, "of the twin")
        assert second.status_code == 200
    again = writing.once(f"{apples}-2", apples, "of the twin")
    assert (again.json(), again.headers["Idempotency-Replayed"]) == (second.json(), "true")
    assert writing.once(f"{apples}-3", apples, "of the first again").status_code == 200
    assert writing.committed(apples) == ["of the first", "of the first again", "of the twin"]


def test_what_a_killed_process_left_open_is_ended(kafka: Kafka, new_topic: Callable[[], str]) -> None:
    apples = new_topic()
    name = f"killed-{uuid.uuid4().hex[:8]}"
    open_transaction = LibrdkafkaTransacting(kafka.bootstrap, f"kafka-mesh-sidecar-{name}")
    open_transaction.init()
    open_transaction.begin()
    open_transaction.send(apples, "never")
    assert open_transaction.flush() == []
    with started(kafka.bootstrap, name=name) as world:
        assert Writing(world, kafka.bootstrap, name).once(apples, apples, "a").status_code == 200
    assert read_committed(kafka.bootstrap, apples) == ["a"]


def test_an_answer_that_is_too_large_to_be_kept_writes_nothing(kafka: Kafka, new_topic: Callable[[], str]) -> None:
    apples = new_topic()
    with started(kafka.bootstrap, name=f"large-{uuid.uuid4().hex[:8]}", max_record_bytes=1500) as world:
        answer = Writing(world, kafka.bootstrap, "").once(apples, apples, *map(str, range(100)))
    assert (answer.status_code, len(answer.json()["offsets"])) == (500, 100)
    assert {one["errorCode"] for one in answer.json()["offsets"]} == {50002}
    assert read_committed(kafka.bootstrap, apples) == []


def test_there_is_no_answer_yet_that_could_be_kept(writing: Writing, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    answer = writing.sidecar.http.post(
        f"/producers/{topic}?async=true", json={"records": [{"value": 1}]}, headers={"Idempotency-Key": topic}
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR11004")


def test_through_a_gateway_a_transaction_is_about_topics_of_any_clusters(
    kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, tmp_path: Path
) -> None:
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    apples, bananas, ids = f"{name}-apples", f"{name}-bananas", [f"{name}-c1", f"{name}-c2"]
    Kafka(kafka_c1.bootstrap).create(apples)
    Kafka(kafka_c2.bootstrap).create(bananas)
    rules = Rules({"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap})
    rules.to("c1", [apples, f"{ids[0]}.idempotency"])
    rules.to("c2", [bananas, f"{ids[1]}.idempotency"])
    gateway = RunningGateway(tmp_path / "gateway", rules.transactions(ids[1], "c2"))
    try:
        with started(gateway.address, name=name, transactional_ids=",".join(ids)) as world:
            writing = Writing(world, gateway.address, name)
            both = writing.transaction((apples, [{"value": "a"}]), (bananas, [{"value": "b"}]))
            assert both.status_code == 200
            for topic in (apples, bananas):
                assert writing.transaction((topic, [{"value": "alone"}])).status_code == 200
                first, again = (writing.once(topic, topic, "once") for _ in range(2))
                assert (first.json(), again.headers.get("Idempotency-Replayed")) == (again.json(), "true")
    finally:
        gateway.close()
    assert read_committed(kafka_c1.bootstrap, apples) == ["a", "alone", "once"]
    assert read_committed(kafka_c2.bootstrap, bananas) == ["alone", "b", "once"]


def test_a_transaction_is_refused_over_clusters_of_which_one_is_too_old(
    kafka_c1: KafkaCluster, older_kafka: OlderKafka, tmp_path: Path
) -> None:
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    apples, bananas = f"{name}-apples", f"{name}-bananas"
    Kafka(kafka_c1.bootstrap).create(apples)
    Kafka(older_kafka.bootstrap).create(bananas)
    rules = Rules({"c1": kafka_c1.bootstrap, "2.8": older_kafka.bootstrap})
    rules.to("c1", [apples, f"{name}.idempotency"])
    gateway = RunningGateway(tmp_path / "gateway", rules.to("2.8", [bananas]))
    try:
        with started(gateway.address, name=name, transactional_ids=name) as world:
            writing = Writing(world, gateway.address, name)
            both = writing.transaction((apples, [{"value": "a"}]), (bananas, [{"value": "b"}]))
            assert (both.status_code, both.json()["code"]) == (409, "ERR12951")
            assert f"{apples}, {bananas}" in both.json()["description"]
            assert writing.transaction((apples, [{"value": "alone"}])).status_code == 200
    finally:
        gateway.close()
    assert read_committed(kafka_c1.bootstrap, apples) == ["alone"]


def test_a_key_is_known_after_its_topic_has_moved_to_the_home_of_another_id(
    kafka_c1: KafkaCluster, kafka_c2: KafkaCluster, tmp_path: Path
) -> None:
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    topic, ids = f"{name}-bananas", [f"{name}-c1", f"{name}-c2"]
    for cluster in (kafka_c1, kafka_c2):
        Kafka(cluster.bootstrap).create(topic)
    rules = Rules({"c1": kafka_c1.bootstrap, "c2": kafka_c2.bootstrap})
    rules.to("c1", [f"{ids[0]}.idempotency"])
    rules.to("c2", [topic, f"{ids[1]}.idempotency"])
    gateway = RunningGateway(tmp_path / "gateway", rules.transactions(ids[1], "c2"))
    try:
        with started(gateway.address, name=name, transactional_ids=",".join(ids)) as world:
            first = Writing(world, gateway.address, name).once("the key", topic, "once")
        gateway.move(rules.to("c1", [topic]))
        with started(gateway.address, name=name, transactional_ids=",".join(ids)) as world:
            again = Writing(world, gateway.address, name).once("the key", topic, "once")
    finally:
        gateway.close()
    assert (first.status_code, again.json(), again.headers.get("Idempotency-Replayed")) == (200, first.json(), "true")
    assert read_committed(kafka_c1.bootstrap, topic) == []


def test_without_kafka_a_transaction_is_answered_in_bounded_time(writing: Writing) -> None:
    with started(
        "127.0.0.1:1", transaction_timeout_ms=1000, unknown_topic_timeout_ms=100, drain_timeout_ms=100
    ) as world:
        answer = Writing(world, "", "").transaction(("apples", [{"value": "a"}]))
    assert (answer.status_code, answer.json()["code"], answer.headers["Retry-After"]) == (503, "ERR12953", "1")
    assert answer.json()["description"].startswith("Nothing was written")
