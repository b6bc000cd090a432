"""A quota is set on every cluster and shown once."""

import pytest
from structlog.testing import capture_logs

from services.gateway.requests.clusters import client_quotas
from services.gateway.requests.plan import Unreachable
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages import alter_client_quotas as altering
from services.gateway.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from tests.unit.gateway.requests.playbook import Playbook, World

RATE = "producer_byte_rate"


@pytest.fixture
def world() -> World:
    return World({"c1": [], "c2": []})


def entry(user: str | None, value: float, client: str | None = "app") -> EntryData:
    return EntryData([EntityData("user", user), EntityData("client-id", client)], [ValueData(RATE, value)])


def described(*entries: EntryData) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_message=None, entries=list(entries))


def altered(*codes: int) -> altering.AlterClientQuotasResponse:
    users = ("bob", "eve")
    results = [
        altering.EntryResult(code, None, [altering.EntityData("user", user)])
        for user, code in zip(users, codes, strict=False)
    ]
    return altering.AlterClientQuotasResponse(entries=results)


CHANGE = altering.AlterClientQuotasRequest(
    [
        altering.EntryData([altering.EntityData("user", user)], [altering.OpData(RATE, 1e6, remove=False)])
        for user in ("bob", "eve")
    ],
    validate_only=True,
)


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_of_all_clusters_are_shown_once(world: World, version: int) -> None:
    book = Playbook(client_quotas.handle_describe, DescribeClientQuotasRequest(strict=True), version, world.view())
    question = DescribeClientQuotasRequest(strict=True)
    assert [(call.cluster, call.message) for call in book.asked()] == [("c1", question), ("c2", question)]
    with capture_logs() as logs:
        book.answered(described(entry("bob", 5.0)), described(entry("bob", 5.0)))
    [shown] = book.answer.entries
    assert {(e.entity_type, e.entity_name) for e in shown.entity} == {("user", "bob"), ("client-id", "app")}
    assert shown.values == [ValueData(RATE, 5.0)]
    assert not logs


def test_where_clusters_differ_the_home_clusters_value_is_shown_and_the_log_has_both(world: World) -> None:
    book = Playbook(client_quotas.handle_describe, DescribeClientQuotasRequest(), 1, world.view())
    with capture_logs() as logs:
        book.answered(described(entry("bob", 5.0), entry(None, 7.0)), described(entry("bob", 6.0)))
    assert [e.values for e in book.answer.entries] == [[ValueData(RATE, 5.0)], [ValueData(RATE, 7.0)]]
    assert [entry["values"] for entry in logs] == [{"c1": 5.0, "c2": 6.0}, {"c1": 7.0, "c2": None}]


def test_a_cluster_that_does_not_tell_is_named(world: World) -> None:
    book = Playbook(client_quotas.handle_describe, DescribeClientQuotasRequest(), 1, world.view())
    book.answered(described(), Unreachable("c2", "down"))
    assert (book.answer.error_code, book.answer.entries) == (ErrorCode.REQUEST_TIMED_OUT, None)
    assert "cluster c2 can't be reached: down" in book.answer.error_message


@pytest.mark.parametrize("version", [0, 1])
def test_a_quota_is_set_on_every_cluster(world: World, version: int) -> None:
    book = Playbook(client_quotas.handle_alter, CHANGE, version, world.view())
    assert [(call.cluster, call.message) for call in book.asked()] == [("c1", CHANGE), ("c2", CHANGE)]
    book.answered(altered(0, 0), altered(0, 0))
    assert book.answer == altered(0, 0)


def test_what_failed_on_one_cluster_says_where(world: World) -> None:
    book = Playbook(client_quotas.handle_alter, CHANGE, 1, world.view())
    book.answered(altered(0, 0), altered(0, ErrorCode.INVALID_REQUEST))
    of_bob, of_eve = book.answer.entries
    assert (of_bob.error_code, of_eve.error_code) == (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
    assert of_eve.error_message == "Invalid request (on c2); done on c1"


def test_what_a_cluster_leaves_out_or_does_not_answer_is_an_error(world: World) -> None:
    book = Playbook(client_quotas.handle_alter, CHANGE, 1, world.view())
    book.answered(altered(0), Unreachable("c2", "down"))
    assert [e.error_code for e in book.answer.entries] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR]
