"""Mirrors and content rules over gRPC: created, updated, paused, resumed, re-wound, removed, each an event."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from confluent_kafka.admin import AdminClient
from sqlalchemy import create_engine, text

from mesh.routing.codec import TABLE_FORMAT
from mesh.rpc import admin, discovery, record_rules, record_rules_grpc
from tests.fixtures.clusters import KafkaCluster
from tests.integration.control.world import CALL, World, create_topic, refused, until

NOBODY = "127.0.0.1:1"


class Operator:
    """Calls about record rules."""

    def __init__(self, world: World, topic: str, target: str) -> None:
        self.world, self.topic, self.target = world, topic, target
        self.calls = record_rules_grpc.RecordRuleServiceStub(world.channel)

    def mirror(self, rule_id: str = "m", **fields: Any) -> record_rules.RecordRuleSpec:
        said = {"source_cluster": "c1", "target_cluster": "c2", "topic": self.topic, **fields}
        return record_rules.RecordRuleSpec(record_rule_id=rule_id, mirror=record_rules.MirrorSpec(**said))

    def content(self, rule_id: str, *topics: str, source: str = "") -> record_rules.RecordRuleSpec:
        branches = [
            record_rules.ContentBranch(when="value.kind == 'a'", target=record_rules.RecordTarget(topic=each))
            for each in topics
        ]
        dead = record_rules.RecordTarget(topic=self.target)
        said: dict[str, Any] = {"source_cluster": "c1", "topic": source or self.topic, "branches": branches}
        said["dead_letters"] = dead
        return record_rules.RecordRuleSpec(record_rule_id=rule_id, content=record_rules.ContentRuleSpec(**said))

    async def create(self, spec: record_rules.RecordRuleSpec, **options: Any) -> record_rules.RecordRule:
        request = record_rules.CreateRecordRuleRequest(record_rule=spec, options=_options(options))
        return await self.calls.CreateRecordRule(request, timeout=CALL)

    async def do(self, verb: str, name: str = "recordrules/m", *, options: Any = None, **fields: Any) -> Any:
        """`do("Pause")`, `do("Rewind", start=...)`."""
        method = "SyncGroupOffsets" if verb == "Sync" else f"{verb}RecordRule"
        request = getattr(record_rules, f"{method}Request")(name=name, options=_options(options or {}), **fields)
        return await getattr(self.calls, method)(request, timeout=CALL)

    async def list(self) -> list[record_rules.RecordRule]:
        response = await self.calls.ListRecordRules(record_rules.ListRecordRulesRequest(), timeout=CALL)
        return list(response.record_rules)


def _options(said: dict[str, Any]) -> record_rules.RecordRuleOptions:
    return record_rules.RecordRuleOptions(**said)


@pytest.fixture
async def operator(
    mesh_of_two: World, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> AsyncIterator[Operator]:
    """A mesh of two; c1 has a topic of two partitions and another one for records to go to."""
    topic, target = unique_name("fruit"), unique_name("target")
    clients = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    for name, partitions in ((topic, 2), (target, 1)):
        create_topic(kafka_c1.bootstrap, name, partitions)
    yield Operator(mesh_of_two, topic, target)
    clients.delete_topics([topic, target])


async def test_every_step_of_a_mirrors_life_is_an_event(operator: Operator) -> None:
    made = await operator.create(operator.mirror(), reason="c2 needs it")
    assert (made.name, made.state, made.spec.start.earliest) == (
        "recordrules/m",
        record_rules.RECORD_RULE_STATE_RUNNING,
        True,
    )
    paused = await operator.do("Pause", options={"expected_revision": made.revision})
    assert (paused.state, paused.revision) == (record_rules.RECORD_RULE_STATE_PAUSED, made.revision + 1)
    again = await operator.do("Pause")
    assert again.revision == paused.revision, "what is so already is no event"
    resumed = await operator.do("Resume")
    assert resumed.state == record_rules.RECORD_RULE_STATE_RUNNING
    await operator.do("Update", record_rule=operator.mirror(target_topic="copy-of-{topic}"))
    rewound = await operator.do("Rewind", start=record_rules.StartAt(latest=True))
    synced = await operator.do("Sync", groups=["billing"])
    assert synced.revision == rewound.revision + 1
    removed = await operator.do("Remove")

    log = await operator.world.history(stream="recordrules/m")
    assert [event.WhichOneof("payload") for event in reversed(log)] == [
        "record_rule_created",
        "record_rule_paused",
        "record_rule_resumed",
        "record_rule_updated",
        "record_rule_rewound",
        "group_offsets_sync_ordered",
        "record_rule_removed",
    ]
    assert (log[-1].reason, log[0].position) == ("c2 needs it", removed.revision)
    assert await operator.list() == []
    await operator.world.published(removed.revision)


async def test_commands_about_record_rules_are_audited_by_their_name(operator: Operator) -> None:
    await operator.create(operator.mirror())
    await refused(operator.create(operator.mirror()), grpc.StatusCode.ALREADY_EXISTS, "'m' exists since revision")
    found = await operator.world.decisions.ListAuditEvents(admin.ListAuditEventsRequest(), timeout=CALL)
    about = [(each.resource, each.code) for each in found.audit_events if "RecordRule" in each.method]
    assert about == [("recordrules/m", "ALREADY_EXISTS"), ("recordrules/m", "OK")]


async def test_a_repeated_request_gets_the_first_answer(operator: Operator) -> None:
    request_id = str(uuid.uuid4())
    first = await operator.create(operator.mirror(), request_id=request_id)
    assert await operator.create(operator.mirror(), request_id=request_id) == first
    once = await operator.do("Remove", options={"request_id": (again := str(uuid.uuid4()))})
    assert await operator.do("Remove", options={"request_id": again}) == once


async def test_a_dry_run_shows_the_rule_and_decides_nothing(operator: Operator) -> None:
    before = (await operator.world.status()).last_position
    shown = await operator.create(operator.mirror(), validate_only=True)
    assert shown.spec.mirror.topic == operator.topic
    assert ((await operator.world.status()).last_position, await operator.list()) == (before, [])


async def test_revisions_are_compared(operator: Operator) -> None:
    made = await operator.create(operator.mirror())
    await operator.do("Pause")
    late = operator.do("Resume", options={"expected_revision": made.revision})
    await refused(late, grpc.StatusCode.ABORTED, f"'m' is at revision {made.revision + 1}, not {made.revision}")


async def test_what_is_not_on_the_clusters_is_refused_with_its_place(operator: Operator) -> None:
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    await refused(
        operator.create(operator.mirror(topic="nowhere")), invalid, "mirror.topic", "'nowhere' does not exist"
    )
    content = operator.content("c", operator.target, "nowhere")
    await refused(operator.create(content), invalid, "branches[1].target.topic", "'nowhere' does not exist", "'c1'")
    await operator.create(operator.mirror())
    beyond = record_rules.StartAt(offsets=record_rules.PartitionOffsets(topic=operator.topic, offsets={2: 0}))
    await refused(operator.do("Rewind", start=beyond), invalid, "start.offsets", "its partitions are 0 to 1")


async def test_a_cluster_that_does_not_answer_refuses_unless_allowed(operator: Operator) -> None:
    await operator.world.register("c9", NOBODY, allow_unreachable=True)
    spec = operator.mirror(target_cluster="c9")
    await refused(operator.create(spec), grpc.StatusCode.UNAVAILABLE, "'c9'", "set allow_unreachable")
    assert (await operator.create(spec, allow_unreachable=True)).spec.mirror.target_cluster == "c9"


async def test_rules_that_would_feed_each_other_are_refused_by_name(operator: Operator) -> None:
    await operator.create(operator.content("there", operator.target))
    back = operator.content("back", operator.topic, source=operator.target)
    back.content.dead_letters.topic = operator.topic
    await refused(operator.create(back), grpc.StatusCode.FAILED_PRECONDITION, "back -> there -> back")


async def test_a_cluster_that_a_record_rule_uses_stays(operator: Operator) -> None:
    await operator.create(operator.mirror())
    removal = operator.world.clusters.RemoveCluster(admin.RemoveClusterRequest(name="clusters/c2"))
    await refused(removal, grpc.StatusCode.FAILED_PRECONDITION, "read or written by record rules: m")


async def test_progress_comes_with_the_routers_reports(operator: Operator) -> None:
    await operator.create(operator.mirror())
    stream = operator.world.rollouts.Report()
    partition = record_rules.PartitionProgress(topic=operator.topic, partition=1, position=5, end=12)
    said = record_rules.RecordRuleProgress(record_rule_id="m", partitions=[partition], lag=7)
    member = admin.Member(name="members/r1", kind=admin.MEMBER_KIND_ROUTER, table_format=TABLE_FORMAT)
    await stream.write(discovery.RouterReport(router=member, record_rules=[said]))

    async def is_shown() -> bool:
        [rule] = await operator.list()
        return rule.progress.router == "members/r1" and rule.progress.lag == 7

    await until(is_shown, "the progress is shown")
    [in_status] = (await operator.world.status()).record_rules
    assert list(in_status.progress.partitions) == [partition]
    stream.cancel()

    async def is_missed() -> bool:
        rule = await operator.calls.GetRecordRule(record_rules.GetRecordRuleRequest(name="recordrules/m"))
        return rule.progress.problem.startswith("no router says that it runs it")

    await until(is_missed, "the rule says that nobody runs it")


async def test_another_start_of_control_knows_them_and_the_table_has_them(operator: Operator) -> None:
    await operator.create(operator.mirror())
    await operator.create(operator.content("c", operator.target))
    await operator.do("Pause", "recordrules/c")
    world = operator.world
    await world.stop()
    await world.start()
    calls = record_rules_grpc.RecordRuleServiceStub(world.channel)
    found = await calls.ListRecordRules(record_rules.ListRecordRulesRequest(page_size=1), timeout=CALL)
    assert [rule.name for rule in found.record_rules] == ["recordrules/c"]
    request = record_rules.ListRecordRulesRequest(page_token=found.next_page_token)
    assert [rule.name for rule in (await calls.ListRecordRules(request)).record_rules] == ["recordrules/m"]

    url = world.settings.database_url.get_secret_value().replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(text("select record_rule_id, kind, paused from record_rules order by 1")).all()
    engine.dispose()
    assert [tuple(row) for row in rows] == [("c", "content", True), ("m", "mirror", False)]
