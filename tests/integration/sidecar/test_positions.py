"""Reading elsewhere: partitions by hand, and positions by offset, by time, first and last."""

import pytest

from tests.fixtures.waiting import wait_until
from tests.integration.sidecar.world import Instance, Json, Kafka, SidecarWorld

START_MS = 1_700_000_000_000


def at(topic: str, partition: int = 0, **members: object) -> Json:
    return {"topic": topic, "partition": partition, **members}


def offsets(records: list[Json], partition: int = 0) -> list[int]:
    return [record["offset"] for record in records if record["partition"] == partition]


@pytest.fixture
def reader(sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str) -> Instance:
    """Assigned to both partitions, of which each has three records, a second apart."""
    for partition in (0, 1):
        kafka.write(
            orders,
            *(
                {"value": str(number).encode(), "partition": partition, "timestamp": START_MS + 1000 * number}
                for number in range(3)
            ),
        )
    instance = sidecar.create(group, "c1", format="string")
    instance.assign(at(orders, 0), at(orders, 1))
    return instance


def test_partitions_by_hand_need_no_group(reader: Instance, orders: str) -> None:
    assert reader.assignments() == [at(orders, 0), at(orders, 1)]
    assert reader.http.get(f"{reader.path}/subscriptions").json() == {"topics": []}
    assert len(reader.read_all(6)) == 6
    assert [one["committed"] for one in reader.commit().json()] == [3, 3]
    reader.assign(at(orders, 1))
    assert reader.assignments() == [at(orders, 1)]
    assert reader.read(timeout=100) == []


def test_an_empty_assignment_ends_it(reader: Instance) -> None:
    reader.assign()
    assert reader.assignments() == []
    assert reader.get().json()["code"] == "ERR12205"


def test_a_partition_that_is_not_there_is_named(reader: Instance, orders: str) -> None:
    reader.assign(at(orders, 9))
    answer = wait_until(lambda: found if (found := reader.get(timeout=500)).is_error else None, "Kafka has said so")
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR12205")
    assert "partition" in answer.json()["description"].lower()


def test_subscribing_and_assigning_exclude_each_other(reader: Instance, orders: str) -> None:
    refused = reader.post("subscriptions", {"topics": [orders]})
    assert (refused.status_code, refused.json()["code"]) == (409, "ERR12904")
    assert reader.post("subscriptions", {}).status_code == 204
    assert reader.http.delete(f"{reader.path}/subscriptions").status_code == 204
    reader.subscribe(orders)
    refused = reader.post("assignments", {"partitions": [at(orders)]})
    assert (refused.status_code, refused.json()["code"]) == (409, "ERR12904")
    assert "DELETE .../subscriptions" in refused.json()["description"]
    assert reader.http.delete(f"{reader.path}/subscriptions").status_code == 204
    reader.assign(at(orders))


def test_seeking_by_offset(reader: Instance, orders: str) -> None:
    reader.read_all(6)
    assert reader.post("positions", {"offsets": [at(orders, 0, offset=1, metadata="m")]}).status_code == 204
    assert [(one["partition"], one["offset"]) for one in reader.read_all(2)] == [(0, 1), (0, 2)]


def test_a_seek_loses_nothing_of_other_partitions(reader: Instance, orders: str) -> None:
    seen = reader.read(max_bytes=1)  # the rest is on its way already
    assert reader.post("positions", {"offsets": [at(orders, 0, offset=2)]}).status_code == 204
    rest = reader.read_all(4 if seen[0]["partition"] == 0 else 3)
    assert offsets(rest, 0) == [2]
    assert offsets(seen, 1) + offsets(rest, 1) == [0, 1, 2]


@pytest.mark.parametrize(
    "time", ["2023-11-14T22:13:21Z", "2023-11-14T23:13:21+01:00", START_MS + 1000, "1700000001000"]
)
def test_seeking_by_time(reader: Instance, orders: str, time: object) -> None:
    body = {"timestamps": [at(orders, 0, timestamp=time, metadata="m")], "offsets": [at(orders, 1, offset=2)]}
    answer = reader.post("positions", body)
    assert answer.status_code == 204, answer.text
    records = reader.read_all(3)
    assert (offsets(records, 0), offsets(records, 1)) == ([1, 2], [2])


def test_a_time_after_the_last_record_is_the_end(reader: Instance, kafka: Kafka, orders: str) -> None:
    body = {"timestamps": [at(orders, one, timestamp="2999-01-01T00:00:00Z") for one in (0, 1)]}
    answer = reader.post("positions", body)
    assert answer.status_code == 204, answer.text
    kafka.write(orders, {"value": b"new", "partition": 0})
    assert offsets(reader.read_all(1)) == [3]


def test_first_and_last(reader: Instance, kafka: Kafka, orders: str) -> None:
    reader.read_all(6)
    assert reader.post("positions/first", {"partitions": [at(orders, 1)]}).status_code == 204
    assert offsets(reader.read_all(3), 1) == [0, 1, 2]
    assert reader.post("positions/first", {}).status_code == 204  # all that it has
    assert reader.post("positions/last", {"partitions": [at(orders, 0)]}).status_code == 204
    kafka.write(orders, {"value": b"new", "partition": 0})
    records = reader.read_all(4)
    assert (offsets(records, 0), offsets(records, 1)) == ([3], [0, 1, 2])


def test_a_seek_of_nothing_is_no_seek(reader: Instance) -> None:
    assert reader.post("positions", {}).status_code == 204
    assert reader.post("positions", {"offsets": [], "timestamps": []}).status_code == 204
    assert len(reader.read_all(6)) == 6


def test_a_seek_that_follows_a_pause_of_the_backend(
    reader: Instance, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.sidecar.consuming.group_consumer.REST_AFTER_SECONDS", 0.0)
    reader.read_all(6)
    reader.assignments()  # its partitions rest by now
    assert reader.post("positions", {"offsets": [at(orders, 0, offset=1)]}).status_code == 204
    reader.assignments()
    assert offsets(reader.read_all(2)) == [1, 2]


def test_a_seek_waits_for_the_group(sidecar: SidecarWorld, kafka: Kafka, orders: str, group: str) -> None:
    kafka.write(orders, *({"value": b"x", "partition": 0} for _ in range(3)))
    instance = sidecar.create(group, "c1", format="string")
    instance.subscribe(orders)
    assert instance.post("positions", {"offsets": [at(orders, 0, offset=2)]}).status_code == 204
    assert offsets(instance.read_all(1)) == [2]


@pytest.mark.parametrize("end", ["positions/first", "positions/last"])
def test_a_partition_of_somebody_else_cannot_be_sought(reader: Instance, orders: str, end: str) -> None:
    refused = reader.post(end, {"partitions": [at(orders, 9)]})
    assert (refused.status_code, refused.json()["code"]) == (409, "ERR12904")
    assert f"Partition {orders}-9 is not assigned" in refused.json()["description"]


def test_a_commit_of_a_partition_of_nobody_is_answered(reader: Instance) -> None:
    answer = reader.commit(at("nope", 0, offset=1))
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR12207")


@pytest.mark.parametrize(
    ("end", "body", "pointer"),
    [
        ("positions", {"offsets": [at("a", -1, offset=0)]}, "/offsets/0/partition"),
        ("positions", {"timestamps": [at("a", 0, timestamp="yesterday")]}, "/timestamps/0/timestamp"),
        ("positions", {"timestamps": [at("a", 0, timestamp=-1)]}, "/timestamps/0/timestamp"),
        ("positions", {"times": []}, "/times"),
        ("positions/first", {"partitions": [at("a", -1)]}, "/partitions/0/partition"),
        ("assignments", {"partitions": [at("a", -1)]}, "/partitions/0/partition"),
        ("offsets", {"offsets": [at("a", -1, offset=1)]}, "/offsets/0/partition"),
    ],
)
def test_positions_that_cannot_be(reader: Instance, end: str, body: Json, pointer: str) -> None:
    answer = reader.post(end, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "ERR11004")
    assert answer.json()["description"].startswith(f"Schema Validation Error - {pointer}: ")


def test_both_spellings_of_the_partitions_whose_commits_are_asked_for(reader: Instance, orders: str) -> None:
    reader.commit(at(orders, 0, offset=1, metadata="m"))
    for member in ("partitions", "offsets"):
        answer = reader.http.put(f"{reader.path}/offsets", json={member: [at(orders, 0), at(orders, 1)]})
        assert answer.json() == {"offsets": [at(orders, 0, offset=2, metadata="m")]}
