"""What each page of the console shows of a real mesh."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from mesh.connection_security import Mechanism
from mesh.rpc import acls, acls_grpc, admin, record_rules, record_rules_grpc, routing, users, users_grpc
from mesh.scram import Verifier
from mesh.scram_codec import verifier_to_proto
from services.console.routes import PAGES
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.consoles import OPERATOR, VIEWER, Consoled
from tests.integration.control.world import CALL, create_topic, router, until

LINK = re.compile(r'href="(/[^"]*)"')


async def test_every_page_of_the_menu_and_every_link_leads_somewhere(
    console: Consoled, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    """No dead link: from the first page on, every link of the console is followed once."""
    topic = unique_name("apples")
    create_topic(kafka_c1.bootstrap, topic, 2)
    await console.world.set(topic, "c1")
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        todo, seen = ["/", f"/explain?about=topic&name={topic}"], set()
        while todo:
            path = todo.pop().replace("&amp;", "&")
            if path in seen or path.startswith("/static/"):
                continue
            seen.add(path)
            answer = await ada.client.get(path)
            traffic = path.startswith(("/traffic", "/audit/records"))  # no pipeline fills the tables here
            assert answer.status_code == 200 or (traffic and answer.status_code == 503), f"{path}: {answer.text}"
            todo += LINK.findall(answer.text)
    labelled = {row.path for row in PAGES if row.label}
    assert labelled <= {path.partition("?")[0] for path in seen}


async def test_the_overview_has_what_is_away_and_what_is_there(console: Consoled) -> None:
    async with console.visitor() as visitor, router(console.world, "gateway-1"):
        page = await visitor.sees("/")
        assert "c1 (home) reachable" in page
        assert "gateway-1" in page
        assert "router-1" in page
        assert "Nothing moves now." in page
    frozen = admin.FreezeRequest(reason="inventory")
    await console.world.changes.Freeze(frozen, timeout=CALL)
    async with console.visitor() as visitor:
        assert "root froze the mesh" in await visitor.sees("/")
        assert "inventory" in await visitor.sees("/schedules")


async def test_a_rule_is_explained_as_control_explains_it(
    console: Consoled, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("apples")
    create_topic(kafka_c1.bootstrap, topic, 3)
    await console.world.set(topic, "c1")
    answer = await console.world.explain(topic)
    async with console.visitor() as visitor:
        page = await visitor.sees(f"/explain?about=topic&name={topic}")
        assert f"Cluster c1 Name there {topic}" in page
        assert f"Partitions there {answer.partitions}" in page
        assert answer.tried[0].reason in page
        assert "Cluster none" in await visitor.sees("/explain?about=topic&name=nowhere-x")
        assert f"topic {topic}" in await visitor.sees("/rules")


async def test_history_and_the_mesh_at_a_moment_and_differences(
    console: Consoled, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("apples")
    first = (await console.world.set(topic, "c1", reason="the first")).revision
    second = (await console.world.set(topic, "c2", reason="the second")).revision
    async with console.visitor() as visitor:
        page = await visitor.sees(f"/history?topic={topic}")
        assert "the first" in page
        assert "target_cluster c1 -> c2" in page
        assert f"topic {topic} c1" in await visitor.sees(f"/history/as-of?revision={first}")
        compared = await visitor.sees(f"/history/diff?start={first}&end={second}")
        assert f"topic {topic} -> c1 topic {topic} -> c2" in compared


async def test_acls_users_and_grants_are_listed_and_explained(console: Consoled) -> None:
    channel = console.world.channel
    acl = acls.Acl(
        resource_type=acls.ACL_RESOURCE_TYPE_TOPIC, resource_name="shop.", pattern_type=acls.ACL_PATTERN_TYPE_PREFIXED,
        principal="User:ada", operation=acls.ACL_OPERATION_READ, permission=acls.ACL_PERMISSION_ALLOW,
    )  # fmt: skip
    await acls_grpc.AclServiceStub(channel).CreateAcls(acls.CreateAclsRequest(acls=[acl]), timeout=CALL)
    verifier = Verifier.of_password(Mechanism.SCRAM_SHA_256, "a secret", 4096)
    user = users.SetUserRequest(user="ada", verifiers=[verifier_to_proto(verifier)])
    await users_grpc.UserServiceStub(channel).SetUser(user, timeout=CALL)
    await console.grant("vera", VIEWER, topic_prefixes=["shop."])
    async with console.visitor() as visitor:
        assert "User:ada allow Read topic prefixed shop." in await visitor.sees("/acls")
        question = "/acls/explain?principal=User:ada&operation=Read&type=topic&name="
        assert "By the ACLs allowed" in await visitor.sees(f"{question}shop.orders")
        assert "By the ACLs refused" in await visitor.sees(f"{question}pay")
        assert "ada sha 256" in await visitor.sees("/users")
        assert "can log in" in await visitor.sees("/users/ada")
        assert "oidc:vera viewer for topics shop.*" in await visitor.sees("/grants")
        asked = "/grants/explain?principal=oidc:vera&method=RuleService/SetRule&topic=shop.a&cluster=c1"
        assert "The call is refused" in await visitor.sees(asked)


async def test_a_mirror_is_paused_and_resumed(
    console: Consoled, kafka_c1: KafkaCluster, unique_name: Callable[[str], str]
) -> None:
    topic = unique_name("apples")
    create_topic(kafka_c1.bootstrap, topic, 1)
    mirror = record_rules.MirrorSpec(source_cluster="c1", target_cluster="c2", topic=topic)
    spec = record_rules.RecordRuleSpec(record_rule_id="copies", mirror=mirror)
    stub = record_rules_grpc.RecordRuleServiceStub(console.world.channel)
    await stub.CreateRecordRule(record_rules.CreateRecordRuleRequest(record_rule=spec), timeout=CALL)
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        page = "/record-rules/copies"
        assert f"c1/{topic} -> c2/{{topic}}" in await ada.sees(page)
        assert (await ada.sends(page, f"{page}/pause", reason="a test")).status_code == 303
        assert "State paused" in await ada.sees(page)
        assert (await ada.sends(page, f"{page}/resume")).status_code == 303
        assert "State running" in await ada.sees(page)
    assert (await console.world.history())[0].actor == "oidc:ada"


async def test_a_scheduled_change_is_cancelled_and_the_mesh_frozen_and_thawed(console: Consoled) -> None:
    command = admin.SetRuleRequest(match=routing.RuleMatch(topic="apples"), target_cluster="c1")
    request = admin.ScheduleChangeRequest(reason="tonight")
    request.command.Pack(command)
    request.time.FromSeconds(int(console.world.control.schedules.clock().timestamp()) + 3600)
    scheduled = await console.world.changes.ScheduleChange(request, timeout=CALL)
    await console.grant("ada", OPERATOR)
    async with console.person("ada") as ada:
        page = f"/{scheduled.name}"
        assert "set topic apples -> c1" in await ada.sees(page)
        assert (await ada.sends(page, f"{page}/cancel")).status_code == 303
        assert "No change is scheduled." in await ada.sees("/schedules")
        assert (await ada.sends("/schedules", "/freeze", reason="a test")).status_code == 303
        assert "oidc:ada froze the mesh" in await ada.sees("/schedules")
        assert (await ada.sends("/schedules", "/thaw")).status_code == 303
        assert "Control takes changes." in await ada.sees("/schedules")


async def test_an_open_page_hears_of_a_change_within_seconds(console: Consoled) -> None:
    async with console.visitor() as visitor, visitor.client.stream("GET", "/live/status") as stream:
        lines = stream.aiter_lines()
        heard: list[str] = []

        async def changed() -> bool:
            async for line in lines:
                if line.startswith("event: "):
                    heard.append(line)
                    return heard[-1] == "event: changed"
            return False

        assert not await changed()
        await console.world.set("apples", "c1")
        await until(changed, "the page hears of the change")


@pytest.mark.parametrize(
    "path",
    ["/transactions/none", "/replays/none", "/rules/none", "/record-rules/none", "/instances/none", "/users/nobody"],
)
async def test_what_does_not_exist_is_said_so(console: Consoled, path: str) -> None:
    async with console.visitor() as visitor:
        assert "There is no such thing" in await visitor.sees(path, 404)
