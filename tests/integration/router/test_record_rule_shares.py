"""Routers share the record rules through the home cluster: each rule runs once, also when routers come and go."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client import REGISTRY

from mesh.record_rules import RecordRule
from mesh.rpc import record_rules
from services.router.agents.forwarding_lead import ForwardingLead
from services.router.agents.rule_book import RuleBook, RulePage
from services.router.change import Change
from services.router.settings import RouterSettings
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.waiting import until
from tests.integration.router.parts import create_topic

WORKER = (sys.executable, "-m", "tests.unit.router.scripted_worker")
WITHIN_S = 60.0
MANY = [f"rule-{number}" for number in range(24)]


def page(*rule_ids: str, manner: str = "obeys") -> RulePage:
    def rule(rule_id: str) -> RecordRule:
        mirror = record_rules.MirrorSpec(source_cluster="c1", target_cluster="c2", topic=manner)
        spec = record_rules.RecordRuleSpec(record_rule_id=rule_id, mirror=mirror)
        return RecordRule(spec, created=1, revision=1, actor="ann", time=datetime.now(UTC))

    return RulePage({rule_id: rule(rule_id) for rule_id in rule_ids}, {}, 1)


def lives_ended() -> float:
    """Of applications of progress in this process."""
    return REGISTRY.get_sample_value("kafka_mesh_router_progress_applications_ended_total") or 0.0


class Router:
    """What of a router leads record rules, with a worker that moves nothing."""

    def __init__(self, name: str, settings: RouterSettings, rules: RulePage) -> None:
        self.book = RuleBook()
        self.lead = ForwardingLead(settings.model_copy(update={"name": name}), self.book, Change(), WORKER)
        self.book.post(rules)
        self._task = asyncio.create_task(self.lead.run())

    @property
    def knows(self) -> dict[str, str]:
        """Which router runs each rule, as the routers say on the topic of progress."""
        said = {rule_id: self.lead.mesh_progress.of(rule_id) for rule_id in MANY}
        return {rule_id: word.router for rule_id, word in said.items() if word is not None}

    @property
    def runs(self) -> set[str]:
        """The rules that its worker has said to run."""
        return {each.record_rule_id for each in self.lead.progress() if not each.problem}

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@pytest.fixture
async def settings(kafka_c1: KafkaCluster, unique_name: Callable[[str], str]) -> AsyncIterator[RouterSettings]:
    made = RouterSettings(home_bootstrap_servers=(kafka_c1.bootstrap,), events_topic=unique_name("shares"))
    yield made
    admin = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    for future in admin.delete_topics([f"{made.record_rules_group}-work", made.record_rules_progress_topic]).values():
        with contextlib.suppress(Exception):  # a test may have had no rule
            future.result(10)


async def test_each_rule_runs_on_one_of_two_routers_and_on_the_other_when_that_one_stops(
    settings: RouterSettings,
) -> None:
    first = Router("r1", settings, page(*MANY))
    await until(lambda: first.runs == set(MANY), "the only router runs all rules")
    second = Router("r2", settings, page(*MANY))
    await until(
        lambda: bool(second.runs) and first.runs | second.runs == set(MANY) and not first.runs & second.runs,
        "each rule runs on one router",
    )
    assert first.runs, "the first one keeps its part"
    await first.stop()
    await until(lambda: second.runs == set(MANY), "the other router runs all rules")
    await second.stop()


async def test_each_router_tells_how_far_all_rules_are_and_who_runs_each(settings: RouterSettings) -> None:
    def runners() -> dict[str, str]:
        return {rule_id: f"members/{name}" for name, router in routers.items() for rule_id in router.runs}

    routers = {"r1": Router("r1", settings, page(*MANY))}
    await until(lambda: routers["r1"].runs == set(MANY), "the only router runs all rules")
    routers["r2"] = Router("r2", settings, page(*MANY))
    await until(
        lambda: bool(routers["r2"].runs) and all(each.knows == runners() for each in routers.values()),
        "both routers know who runs each rule",
    )
    assert set(runners()) == set(MANY)
    await routers.pop("r1").stop()
    await until(lambda: len(runners()) == len(MANY) and routers["r2"].knows == runners(), "the other one runs all")
    routers["r3"] = Router("r3", settings, page(*MANY))
    await until(lambda: len(routers["r3"].knows) == len(MANY), "a router that joins knows of all rules")
    await asyncio.gather(*(router.stop() for router in routers.values()))


async def test_a_router_that_may_not_say_how_far_its_rules_are_runs_them(
    settings: RouterSettings, kafka_c1: KafkaCluster
) -> None:
    before = lives_ended()
    create_topic(kafka_c1.bootstrap, settings.record_rules_progress_topic, partitions=2)  # nobody's topic of progress
    router = Router("r1", settings, page(*MANY))
    await until(lambda: router.runs == set(MANY), "the only router runs all rules")
    await until(lambda: lives_ended() > before, "progress has found no topic")
    assert router.knows == {}
    await router.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # Faust's, while Kafka is away
async def test_the_application_of_progress_goes_on_when_the_home_cluster_is_back(
    settings: RouterSettings, kafka_c1: KafkaCluster
) -> None:
    router = Router("r1", settings, page("rule-1"))
    await until(lambda: bool(router.knows), "the router hears itself", WITHIN_S)
    await asyncio.to_thread(kafka_c1.kill)
    kafka_c1.launch()
    await asyncio.to_thread(kafka_c1.wait_until_it_answers)
    router.book.post(replace(page("rule-1", "rule-2"), position=2))
    await until(lambda: len(router.knows) == 2, "the router hears itself again", 2 * WITHIN_S)
    await router.stop()


async def test_a_worker_that_does_not_end_a_rule_is_ended(
    settings: RouterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.router.agents.forwarding_lead.GIVE_UP_WITHIN", 0.5)
    rules = page(*MANY, manner="lingers")
    first = Router("r1", settings, rules)
    await until(lambda: first.runs == set(MANY), "the only router runs all rules")
    second = Router("r2", settings, rules)
    await until(
        lambda: bool(second.runs) and first.runs | second.runs == set(MANY) and not first.runs & second.runs,
        "each rule runs on one router, although the first worker ends none",
    )
    await asyncio.gather(first.stop(), second.stop())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # Faust's, while Kafka is away
async def test_a_router_that_does_not_reach_the_home_cluster_stops_its_rules_until_it_does(
    settings: RouterSettings, kafka_c1: KafkaCluster
) -> None:
    router = Router("r1", settings, page(*MANY))
    try:
        await until(lambda: router.runs == set(MANY), "the only router runs all rules")
        await asyncio.to_thread(kafka_c1.kill)
        try:
            await until(lambda: not router.lead.progress(), "no rule is to run here")
        finally:
            kafka_c1.launch()
            await asyncio.to_thread(kafka_c1.wait_until_it_answers)
        await until(lambda: router.runs == set(MANY), "all rules run again")
    finally:
        await router.stop()


async def test_the_group_and_its_topic_come_with_the_first_rule(
    settings: RouterSettings, kafka_c1: KafkaCluster
) -> None:
    def topics() -> set[str]:
        return set(AdminClient({"bootstrap.servers": kafka_c1.bootstrap}).list_topics(timeout=10).topics)

    router = Router("r1", settings, page())
    router.book.post(replace(page(), position=2))
    await asyncio.sleep(0)  # the loop has come to it
    assert f"{settings.record_rules_group}-work" not in topics()
    router.book.post(replace(page("rule-1"), position=3))
    await until(lambda: router.runs == {"rule-1"}, "the first rule runs")
    assert f"{settings.record_rules_group}-work" in topics()
    await router.stop()
