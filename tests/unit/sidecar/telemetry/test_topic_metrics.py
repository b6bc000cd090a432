"""Metrics by topic and group stay bounded, whatever names come."""

from services.sidecar.telemetry.client_statistics import client_reports
from services.sidecar.telemetry.topic_metrics import OTHER, BoundedNames, GroupLag


def test_names_beyond_the_bound_share_one_place() -> None:
    names = BoundedNames("fruit", 2)
    assert [names.label(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]
    assert value("kafka_mesh_sidecar_unnamed_uses_total", kind="fruit") == 2


def test_lag_is_added_up_over_partitions_and_left_out_where_unknown() -> None:
    lags = [("g", "t", 3), ("g", "t", 4), ("g", "u", -1)]
    lag = GroupLag()
    lag.add(lambda: lags)
    [family] = lag.collect()
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"group": "g", "topic": "t"}, 7)]


def test_reports_add_up_over_clients_and_queues_of_gone_clients_are_empty() -> None:
    def report(sent: int, queued: int) -> str:
        return f'{{"txmsgs": {sent}, "msg_cnt": {queued}, "brokers": {{"b": {{"rtt": {{"sum": 4000, "cnt": 2}}}}}}}}'

    first = client_reports("test")
    second = client_reports("test")
    first(report(10, 5))
    second(report(1, 2))
    first(report(12, 1))
    assert value("kafka_mesh_sidecar_client_sent_messages_total") == 13
    assert value("kafka_mesh_sidecar_client_queued_messages") == 3
    del second
    assert value("kafka_mesh_sidecar_client_queued_messages") == 1
    assert value("kafka_mesh_sidecar_client_broker_round_trip_seconds_count") == 3


def value(name: str, **labels: str) -> float | None:
    from prometheus_client import REGISTRY

    return REGISTRY.get_sample_value(name, labels or {"client": "test"})
