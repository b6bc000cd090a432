"""Delegation tokens: no token is promised that would not be good, and none of the gateway's own is given away."""

import pytest
from structlog.testing import capture_logs

from services.gateway.requests.clusters import delegation_tokens as tokens
from services.gateway.requests.plan import Unreachable
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from services.gateway.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from services.gateway.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from services.gateway.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tests.unit.gateway.requests.playbook import Playbook, World

DISABLED, NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
NOT_FOUND = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
FOR_BOB = CreateDelegationTokenRequest("User", "bob", [], 1000)


@pytest.fixture
def world() -> World:
    return World({"c1": [], "c2": []})


def test_the_only_cluster_makes_a_token_for_a_named_owner() -> None:
    book = Playbook(tokens.handle_create, FOR_BOB, 3, World({"c1": []}).view())
    [call] = book.asked()
    assert (call.cluster, call.message, call.version) == ("c1", FOR_BOB, 3)
    made = CreateDelegationTokenResponse(principal_name="bob", token_id="t1", hmac=b"secret")
    book.answered(made)
    assert book.answer == made


def test_with_several_clusters_no_token_is_made_and_the_log_says_why(world: World) -> None:
    with capture_logs() as logs:
        book = Playbook(tokens.handle_create, FOR_BOB, 3, world.view())
    assert book.answer.error_code == DISABLED
    assert "c1, c2" in logs[0]["reason"]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_the_gateways_own_rights_are_not_given_away(version: int) -> None:
    with capture_logs() as logs:
        book = Playbook(tokens.handle_create, CreateDelegationTokenRequest(), version, World({"c1": []}).view())
    assert book.answer.error_code == NOT_ALLOWED
    assert "the gateway's own" in logs[0]["reason"]


def test_a_cluster_that_makes_no_token_is_believed() -> None:
    book = Playbook(tokens.handle_create, FOR_BOB, 3, World({"c1": []}).view())
    book.answered(Unreachable("c1", "down"))
    assert book.answer.error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_token_is_renewed_and_ended_where_it_was_made(world: World, version: int) -> None:
    book = Playbook(tokens.handle_renew, RenewDelegationTokenRequest(b"secret", 5), version, world.view())
    assert [call.cluster for call in book.asked()] == ["c1", "c2"]
    book.answered(RenewDelegationTokenResponse(error_code=NOT_FOUND), RenewDelegationTokenResponse(0, 77))
    assert book.answer == RenewDelegationTokenResponse(0, 77)

    book = Playbook(tokens.handle_expire, ExpireDelegationTokenRequest(b"secret", 5), version, world.view())
    book.answered(ExpireDelegationTokenResponse(0, 78), ExpireDelegationTokenResponse(error_code=DISABLED))
    assert book.answer == ExpireDelegationTokenResponse(0, 78)


def test_a_token_that_nobody_has_is_not_found(world: World) -> None:
    book = Playbook(tokens.handle_renew, RenewDelegationTokenRequest(b"secret", 5), 2, world.view())
    book.answered(*[RenewDelegationTokenResponse(error_code=NOT_FOUND)] * 2)
    assert book.answer.error_code == NOT_FOUND


def test_a_token_may_be_where_nobody_answers(world: World) -> None:
    book = Playbook(tokens.handle_expire, ExpireDelegationTokenRequest(b"secret", 5), 2, world.view())
    book.answered(ExpireDelegationTokenResponse(error_code=NOT_FOUND), Unreachable("c2", "down"))
    assert book.answer.error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("without", [DISABLED, NOT_ALLOWED])
def test_tokens_of_the_clusters_that_have_them_are_listed(world: World, without: int) -> None:
    book = Playbook(tokens.handle_describe, DescribeDelegationTokenRequest(None), 3, world.view())
    token = DescribedDelegationToken("User", "bob", token_id="t1", hmac=b"secret")
    book.answered(DescribeDelegationTokenResponse(tokens=[token]), DescribeDelegationTokenResponse(error_code=without))
    assert book.answer == DescribeDelegationTokenResponse(tokens=[token])


def test_that_no_cluster_has_tokens_is_said(world: World) -> None:
    book = Playbook(tokens.handle_describe, DescribeDelegationTokenRequest(None), 3, world.view())
    book.answered(*[DescribeDelegationTokenResponse(error_code=DISABLED)] * 2)
    assert book.answer.error_code == DISABLED
