"""A router's process carries a copy out as it is ordered, and goes on where a killed process was."""

from __future__ import annotations

import os
from pathlib import Path

from mesh.rpc import record_rules
from services.router.forwarding.orders import RunRule
from tests.fixtures.record_rules import Side, Workers, ends


def test_a_process_copies_what_comes_and_goes_on_after_a_kill(c1: Side, c2: Side, topic: str, tmp_path: Path) -> None:
    for side in (c1, c2):
        side.create(topic, 2)
    spec = record_rules.CopySpec(source_cluster="c1", topic=topic, target_cluster="c2", target_topic=topic)
    order = RunRule(record_rules.RecordRuleSpec(record_rule_id=f"move-{topic}"[:63], copy=spec), 11, 11)
    with Workers(tmp_path / "workers.log", (c1, c2)).running() as workers:
        workers.run(order)
        for _ in range(2):
            c1.write(topic, [(index % 2, os.urandom(100)) for index in range(5000)])
            workers.wait_until_caught_up(order.spec.record_rule_id, ends(c1, topic))
            workers.kill()
            c1.write(topic, [(index % 2, os.urandom(100)) for index in range(500)])
            workers.start()
        workers.wait_until_caught_up(order.spec.record_rule_id, ends(c1, topic))
        assert not workers.progress(order.spec.record_rule_id).problem  # type: ignore[union-attr]
    assert c1.read(topic) == c2.read(topic)
