"""The job `audit`, as it goes on while clusters and topics come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.ports import free_block
from tests.fixtures.waiting import wait_until

if TYPE_CHECKING:
    from tests.integration.pipeline.audits import AuditRuns

WITHIN_S = 60.0


def test_a_cluster_that_is_away_holds_up_no_other_and_topics_may_come_later_and_come_again(audits: AuditRuns) -> None:
    from tests.integration.pipeline.audits import event

    away = audits.bootstraps["c3"] = f"127.0.0.1:{free_block(1)}"
    events = [event() for _ in range(3)]
    first, second, third = events

    def is_there(wanted: dict[str, object]) -> bool:
        return wanted["id"] in audits.ids()

    with audits.running():
        audits.make("c1", audits.records)
        audits.tell("c1", audits.records, first)
        wait_until(lambda: is_there(first), "a topic that came later is read", WITHIN_S)
        audits.make("c2", audits.records)
        audits.tell("c2", audits.records, second)
        wait_until(lambda: is_there(second), "that of the other cluster, too", WITHIN_S)
        audits.delete("c1", audits.records)
        audits.make("c1", audits.records)
        audits.tell("c1", audits.records, third)
        wait_until(lambda: is_there(third), "a topic that was created again has the same offsets", WITHIN_S)
        told = "select problem from audit_sources where cluster_name = 'c3'"
        wait_until(lambda: away in "".join(row[0] for row in audits.select(told)), "it is said who is away", WITHIN_S)
    del audits.bootstraps["c3"]
    audits.run()  # what was cut off between the table and Parquet
    assert sorted(audits.ids()) == sorted(each["id"] for each in events)
    assert sorted(row["event_id"] for row in audits.files()) == sorted(audits.ids())
