"""Groups of a mesh whose clusters have had no group yet: as on a broker that has had none.

The first look for a coordinator makes a cluster create its topic of offsets. The coordinator knows no group until it
has loaded that topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own documented way, which it does not export
    AdminClient,
    ConfigResource,
)
from confluent_kafka.cimpl import NewTopic

from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tests.clients.console.driver import ConsoleTools, Tool
from tests.clients.contract import ClientError
from tests.fixtures.leaders import await_leaders
from tests.fixtures.waiting import wait_until
from tests.integration.gateway.conftest import StartGateway
from tests.integration.gateway.running import Rules
from tests.integration.gateway.talking import talking_to
from tests.judge.endpoints import fresh_clusters

GROUP, TOPIC = "growers", "bananas"
COUNT = 20
OF_GROUPS = frozenset({"__consumer_offsets", "__share_group_state"})
ADMIN_S = 60.0
SOON = frozenset(
    {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}
)
"""With these librdkafka leaves the next try to the application."""
GROUP_SETTINGS = 32
"""The type of the resource (ConfigResource.Type.GROUP)."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """A broker, and a mesh of two other brokers."""

    kafka: str
    mesh: str


@pytest.fixture(scope="module")
def brokers(kafka_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    with fresh_clusters(3, tmp_path_factory.mktemp("fresh")) as found:
        for address in found:
            admin = AdminClient({"bootstrap.servers": address})
            admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(ADMIN_S)
            await_leaders(admin, TOPIC, 1)
        yield found


@pytest.fixture
def fresh(brokers: list[str], start_gateway: StartGateway) -> Iterator[Fresh]:
    kafka, *behind = brokers
    rules = Rules({"c1": behind[0], "c2": behind[1]})
    yield Fresh(kafka, start_gateway(rules.to("c2", [TOPIC])).address)
    for address in brokers:
        forget_groups(address)


def forget_groups(address: str) -> None:
    """The broker is again as if it had never had a group."""
    admin = AdminClient({"bootstrap.servers": address})

    def internal() -> list[str]:
        return sorted(OF_GROUPS & admin.list_topics(timeout=ADMIN_S).topics.keys())

    if left := internal():
        for deleted in admin.delete_topics(left).values():
            deleted.result(ADMIN_S)
    wait_until(lambda: not internal(), "the broker has deleted what it knew of groups", ADMIN_S)


async def test_the_settings_of_groups_are_told_while_coordinators_begin(fresh: Fresh) -> None:
    """Many groups have many coordinators, of which some have begun when the first is asked and others have not."""
    wanted = await settings(fresh.kafka)
    assert len(wanted) == COUNT
    assert len(wanted["growers-0"]) > 10
    assert await settings(fresh.mesh) == wanted


async def settings(address: str) -> dict[str, dict[str, str | None]]:
    groups = [DescribeConfigsResource(GROUP_SETTINGS, f"{GROUP}-{number}") for number in range(COUNT)]
    async with talking_to(address) as client:
        results = (await client.ask(DescribeConfigsRequest(groups), 4, DescribeConfigsResponse)).results
    faults = {ErrorCode(result.error_code).name for result in results if result.error_code}
    assert not faults
    return {result.resource_name: {each.name: each.value for each in result.configs} for result in results}


TOOLS: dict[str, tuple[Tool, str]] = {
    "a list of all groups": (Tool.GROUPS, "--list"),
    "a list of consumer groups": (Tool.CONSUMER_GROUPS, "--list"),
    "settings of all groups": (Tool.CONFIGS, "--describe --entity-type groups"),
    "settings of a group": (Tool.CONFIGS, f"--describe --entity-type groups --entity-name {GROUP}"),
    "the description of a consumer group": (Tool.CONSUMER_GROUPS, f"--describe --group {GROUP}"),
    "the description of a share group": (Tool.SHARE_GROUPS, f"--describe --group {GROUP}"),
    "the description of a streams group": (Tool.STREAMS_GROUPS, f"--describe --group {GROUP}"),
    "the end of a consumer group": (Tool.CONSUMER_GROUPS, f"--delete --group {GROUP}"),
    "the end of a share group": (Tool.SHARE_GROUPS, f"--delete --group {GROUP}"),
    "the end of a streams group": (Tool.STREAMS_GROUPS, f"--delete --group {GROUP}"),
    "new offsets of a consumer group": (
        Tool.CONSUMER_GROUPS,
        f"--reset-offsets --to-earliest --execute --topic {TOPIC}:0 --group {GROUP}",
    ),
    "new offsets of a share group": (
        Tool.SHARE_GROUPS,
        f"--reset-offsets --to-earliest --execute --topic {TOPIC} --group {GROUP}",
    ),
    "the end of a consumer group's offsets": (
        Tool.CONSUMER_GROUPS,
        f"--delete-offsets --topic {TOPIC} --group {GROUP}",
    ),
    "the end of a share group's offsets": (Tool.SHARE_GROUPS, f"--delete-offsets --topic {TOPIC} --group {GROUP}"),
}


@pytest.mark.parametrize("what", TOOLS)
def test_kafkas_tools_tell_what_they_tell_about_a_broker(fresh: Fresh, what: str) -> None:
    tool, options = TOOLS[what]
    wanted, found = (printed(address, tool, options) for address in (fresh.kafka, fresh.mesh))
    assert found == wanted


def test_settings_that_are_given_to_a_group_are_told(fresh: Fresh) -> None:
    one, setting = f"--entity-type groups --entity-name {GROUP}", "share.record.lock.duration.ms"

    def described(address: str) -> str:
        """With the new value: a controller answers before each broker has applied a change."""
        what = partial(printed, address, Tool.CONFIGS, f"--describe {one}")
        return wait_until(lambda: text if f"{setting}=16000" in (text := what()) else None, "the setting is applied")

    wanted, found = (
        [
            printed(address, Tool.CONFIGS, f"--alter {one} --add-config {setting}=16000"),
            described(address),
            printed(address, Tool.CONFIGS, f"--alter {one} --delete-config {setting}"),
        ]
        for address in (fresh.kafka, fresh.mesh)
    )
    assert found == wanted


def printed(address: str, tool: Tool, options: str) -> str:
    """The text that the tool prints; if the tool fails, its reason."""
    try:
        return asyncio.run(ConsoleTools(address).run(tool, *options.split()))
    except ClientError as error:
        return next(line for line in reversed(str(error).splitlines()) if line.startswith("Caused by"))


def _described(admin: AdminClient) -> str:
    group = admin.describe_consumer_groups([GROUP])[GROUP].result(ADMIN_S)
    return f"{group.state} with {len(group.members)} members"


def _deleted(admin: AdminClient) -> str:
    admin.delete_consumer_groups([GROUP])[GROUP].result(ADMIN_S)
    return "deleted"


def _listed(admin: AdminClient) -> str:
    groups = admin.list_consumer_groups().result(ADMIN_S)
    return f"{groups.valid}, {groups.errors}"


def _settings(admin: AdminClient) -> str:
    resource = ConfigResource(ConfigResource.Type.GROUP, GROUP)
    return str(
        sorted((entry.name, entry.value) for entry in admin.describe_configs([resource])[resource].result().values())
    )


OF_LIBRDKAFKA = {"list": _listed, "describe": _described, "delete": _deleted, "settings": _settings}


@pytest.mark.parametrize("what", OF_LIBRDKAFKA)
def test_librdkafka_is_told_at_once_what_a_broker_tells_when_its_coordinator_has_begun(fresh: Fresh, what: str) -> None:
    ask = partial(asked, OF_LIBRDKAFKA[what])
    found, _ = ask(fresh.mesh)
    wanted, is_final = ask(fresh.kafka)
    while not is_final:
        wanted, is_final = ask(fresh.kafka)
    assert found == wanted


def asked(what: Callable[[AdminClient], str], address: str) -> tuple[str, bool]:
    """The answer, or the code of the error; and whether another try is of no use."""
    admin = AdminClient({"bootstrap.servers": address})
    try:
        return what(admin), True
    except KafkaException as raised:
        error: KafkaError = raised.args[0]
        return error.name(), error.code() not in SOON
