"""Records that sidecars push to two groups' backends, in the manner of Dapr's certification: errors, outages, kills.

As there, what consumers had is compared with what was sent, in order for each key, through periodic errors of the
application, brokers that stop one after the other, a second group (one that keeps the order of keys alone, with several
batches of a partition on their way), members that come and go, and kills.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.fixtures.faltering_backend import ERRORS
from tests.fixtures.keyed_load import KeyedLoad
from tests.fixtures.reactive_under_trouble import PushGroup, brokers_go_one_after_the_other, make_topic
from tests.fixtures.three_brokers import ThreeBrokers

PARTITIONS = 6
KEYS = 50
AHEAD = 300
RECORDS = 5_000
HELD = 200
"""By the group that keeps the order of keys alone: what is done behind a record that is not comes again."""


@pytest.mark.timeout(900)
def test_records_come_in_order_and_repeats_are_explained_whatever_goes_away_and_comes_back(
    three_brokers: ThreeBrokers, topic: str, group: str, tmp_path: Path
) -> None:
    bootstrap = three_brokers.bootstrap
    make_topic(bootstrap, topic, PARTITIONS, 3)
    one = PushGroup(group, bootstrap, topic, PARTITIONS, tmp_path)
    by_key = {"reactive_order_by_key": "true", "reactive_max_held_records": str(HELD)}
    other = PushGroup(f"{group}-other", bootstrap, topic, PARTITIONS, tmp_path, in_flight=HELD, **by_key)

    def had_by_both() -> int:
        return min(len(each.backend.processed) for each in (one, other))

    load = KeyedLoad(bootstrap, topic, KEYS, AHEAD, had_by_both)
    with one.running(), other.running(), load.running():
        one.start("a")
        other.start("a")
        brokers_go_one_after_the_other(three_brokers, topic, [one, other])
        one.joins("b")
        one.goes_on()
        one.is_killed("a")
        one.goes_on()
        other.joins("b")
        other.is_killed("a")
        one.leaves("b")
        other.leaves("b")
        one.goes_on()
        one.is_killed("a")
        written = load.finish(RECORDS)
        balances = [each.balance(written) for each in (one, other)]
    for pushed, balance in zip((one, other), balances, strict=True):
        print(f"{pushed.group}: {balance}")
        assert pushed.backend.ways.keys() >= set(ERRORS)
        assert balance.repeats, "answers were lost, so something came again"
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
    assert f"{topic}.dlq" not in topics, "errors that pass make no dead letters"
