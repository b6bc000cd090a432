"""Members of share groups of protected topics, by Java and librdkafka: what they get, and what an outage costs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from confluent_kafka import ShareConsumer
from prometheus_client import REGISTRY

from mesh.protection.rule import Others
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.member import Told, run_member
from tests.integration.gateway.sharing import set_up
from tests.integration.gateway.test_protection import (
    KEPT_S,
    MASKED,
    MECHANISM,
    ORDER,
    OTHER,
    PASSWORD,
    READER,
    House,
    house,  # noqa: F401  # the fixture
)

DELIVERIES = 5
"""The most that a broker makes of a record by default (`group.share.delivery.count.limit`)."""
ORDERS = [ORDER.replace("7", str(number)) for number in range(10, 16)]


def java(house: House, user: str, group: str, count: int, **config: str) -> Told:  # noqa: F811
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{PASSWORD}";'
    security = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": MECHANISM, "sasl_jaas_config": login}
    return run_member("share", house.bootstrap, group, [house.orders], count, **security, **config)


def groups(house: House, *names: str) -> None:  # noqa: F811
    for cluster in (house.c1, house.c2):
        for name in names:
            set_up(cluster.bootstrap, name)


def masked(order: str) -> str:
    return order.replace('"ann@example.org"', '"***"')


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_javas_members_get_clear_records_or_masks_once_each_in_batches_of_any_codec(
    house: House,  # noqa: F811
    unique_name: Callable[[str], str],
    codec: str,
) -> None:
    house.protect(house.emails())
    readers, others = unique_name("readers"), unique_name("others")
    groups(house, readers, others)
    assert house.write(house.orders, *ORDERS, **{"compression.type": codec}) == [""] * len(ORDERS)
    clear = java(house, READER, readers, len(ORDERS))
    assert (clear.values, clear.faults) == (ORDERS, [])
    assert set(clear.of("delivery")) == {"1"}
    hidden = java(house, OTHER, others, len(ORDERS))
    assert (hidden.values, hidden.faults) == ([masked(order) for order in ORDERS], [])
    assert masked(ORDER) == MASKED


def test_librdkafkas_member_gets_clear_records(house: House, unique_name: Callable[[str], str]) -> None:  # noqa: F811
    house.protect(house.emails())
    group = unique_name("readers")
    groups(house, group)
    assert house.write(house.orders, *ORDERS) == [""] * len(ORDERS)
    config = house.confluent(READER, **{"group.id": group, "share.acknowledgement.mode": "explicit"})
    found: list[str] = []
    with closing(ShareConsumer(config)) as member:
        member.subscribe([house.orders])

        def has_all() -> bool:
            for message in member.poll(0.5):
                assert message.error() is None, message.error()
                found.append((message.value() or b"").decode())
                member.acknowledge(message)
            assert [fault for fault in member.commit_sync(30).values() if fault is not None] == []
            return len(found) >= len(ORDERS)

        wait_until(has_all, "all records", 90)
    assert found == ORDERS


def test_a_member_that_the_rule_refuses_hears_so(house: House, unique_name: Callable[[str], str]) -> None:  # noqa: F811
    house.protect(house.emails(others=Others.REFUSAL))
    group = unique_name("others")
    groups(house, group)
    assert house.write(house.orders, ORDER) == [""]
    told = java(house, OTHER, group, 1)
    assert told.values == []
    assert {fault for fault, *_ in told.faults} == {"TopicAuthorizationException"}


def test_an_outage_of_the_key_service_costs_one_delivery_and_no_record(
    house: House,  # noqa: F811
    unique_name: Callable[[str], str],
) -> None:
    house.protect(house.emails())
    group = unique_name("readers")
    groups(house, group)
    assert house.write(house.orders, *ORDERS) == [""] * len(ORDERS)
    away = house.keys.rename(house.keys.with_suffix(".away"))
    wait_until(lambda: house.first(READER, house.orders).error() is not None, "kept keys serve no more", 3 * KEPT_S)
    labels = {"topic": house.orders, "rule": "pii", "way": "fetch"}

    def withheld() -> float:
        return REGISTRY.get_sample_value("kafka_mesh_gateway_withheld_batches_total", labels) or 0

    house.gateway.gateway.mesh.memory.keys_awaited.drop(house.orders)  # the member finds out by itself
    before = withheld()
    with ThreadPoolExecutor(1) as background:
        member = background.submit(java, house, READER, group, len(ORDERS), retry_backoff_max_ms="200")
        wait_until(lambda: withheld() - before > 2 * DELIVERIES, "the member has asked many times", 60)
        away.rename(house.keys)
        told = member.result(120)
    assert (told.values, told.faults) == (ORDERS, [])
    assert set(told.of("delivery")) == {"2"}
    assert "Unknown server error" in told.log


def test_a_record_whose_key_is_gone_for_ever_is_masked(house: House, unique_name: Callable[[str], str]) -> None:  # noqa: F811
    house.protect(house.emails())
    group = unique_name("readers")
    groups(house, group)
    assert house.write(house.orders, ORDERS[0]) == [""]
    house.keys.write_text(house.keys.read_text().replace("pii ", "other "))
    wait_until(lambda: house.values(READER, house.orders, 1) == [masked(ORDERS[0])], "gone", 3 * KEPT_S)
    told = java(house, READER, group, 1)
    assert (told.values, told.faults) == ([masked(ORDERS[0])], [])
