"""Changes that need a second person: real certificates and tokens, real clusters, a real log."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, timedelta

import grpc
import pytest
from confluent_kafka.admin import AdminClient

from mesh.rpc import (
    access,
    acls,
    admin,
    grants,
    listeners,
    proposals,
    proposals_grpc,
    routing,
    transactions,
    transactions_grpc,
    users,
)
from mesh.transactions import TRANSACTIONS_TOPIC
from services.control.api.calls import BREAK_GLASS
from services.control.domain.change_control.proposals import MOST_OPEN_OF_ONE
from tests.fixtures.certificates import Authority
from tests.fixtures.clusters import KafkaCluster
from tests.fixtures.token_issuer import TokenIssuer
from tests.integration.control.approving import (
    ACLS,
    APPLIED,
    DENIED,
    LOST,
    OPEN,
    RULES,
    STATE,
    USERS,
    Mesh,
    approving,
    proposed,
    reason_of,
    rule,
)
from tests.integration.control.test_secured_transactions import begun
from tests.integration.control.world import CALL, World, checked, create_topic, refused, until


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer().running() as made:
        yield made


@pytest.fixture
async def mesh(
    database: str,
    kafka_c1: KafkaCluster,
    kafka_c2: KafkaCluster,
    events_topic: str,
    authority: Authority,
    issuer: TokenIssuer,
) -> AsyncIterator[Mesh]:
    clusters = {"c1": kafka_c1, "c2": kafka_c2}
    async with approving(database, events_topic, clusters, authority, issuer) as made:
        yield made


async def test_without_a_policy_one_person_is_enough(mesh: Mesh) -> None:
    bob = await mesh.person("operator", "bob")
    await bob.set("apples", "c1")
    assert await mesh.rules() == {"apples": "c1"}
    assert not (await bob.listed()).proposals


async def test_one_stolen_operators_token_changes_nothing_that_needs_two(mesh: Mesh, issuer: TokenIssuer) -> None:
    ada = await mesh.person("admin", "ada")
    given = grants.GrantRoleRequest(grant=grants.Grant(principal="oidc:bob", role=access.ROLE_OPERATOR))
    await ada.call(ada.access.GrantRole, given)
    await ada.require(rule(RULES))
    stolen = [await mesh.holder(issuer.token(aud="mesh", sub="bob", jti=jti)) for jti in ("one", "two")]
    name = await proposed(stolen[0].set("apples", "c1"))
    for thief in stolen:
        assert await reason_of(thief.approve(name), STATE, "oidc:bob has proposed") == "SAME_PERSON"
    glass = (BREAK_GLASS, b"let me in")
    await refused(stolen[0].set("apples", "c1", glass), DENIED, "is for admins of the whole mesh")
    await refused(stolen[0].require(), DENIED, "needs the role admin")
    other = grants.GrantRoleRequest(grant=grants.Grant(principal="eve", role=access.ROLE_OPERATOR))
    await refused(stolen[0].call(stolen[0].access.GrantRole, other), DENIED, "needs the role admin")
    assert await mesh.rules() == {}


async def test_a_second_person_sees_the_plan_and_approves(mesh: Mesh) -> None:
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    await ada.require(rule(RULES))
    name = await proposed(bob.set("apples", "c1", reason="they are ripe"))
    assert await mesh.rules() == {}
    proposal = await cleo.shown(name)
    assert (proposal.method, proposal.proposer, proposal.state) == ("RuleService/SetRule", "bob", OPEN)
    assert (proposal.reason, proposal.kind) == ("they are ripe", RULES)
    assert "rule apples added: apples -> c1" in [line.text.replace("topic ", "") for line in proposal.plan]
    assert (await cleo.listed(open_only=True)).open == 1
    done = await cleo.approve(name, reason="so they are")
    assert (done.state, done.decided_by, done.decision_reason) == (APPLIED, "cleo", "so they are")
    assert await mesh.rules() == {"apples": "c1"}
    change = next(event for event in await mesh.world.history() if event.HasField("rule_set_changed"))
    assert (change.actor, change.reason, change.proposal, change.position) == (
        "bob",
        "they are ripe",
        name,
        done.revision,
    )
    assert await mesh.kinds(name) == ["change_proposed", "proposal_approved", "proposal_closed"]
    assert (await cleo.listed(open_only=True)).open == 0
    assert checked(mesh.world, with_kafka=False).differences == []


async def test_the_undo_of_an_approved_change_needs_two_as_well(mesh: Mesh) -> None:
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    await ada.require(rule(RULES))
    await cleo.approve(await proposed(bob.set("apples", "c1")))
    undo = await proposed(bob.call(bob.rules.Revert, admin.RevertRequest(last=True)))
    assert await mesh.rules() == {"apples": "c1"}
    await cleo.approve(undo)
    assert await mesh.rules() == {}


async def test_a_listener_opens_when_a_second_admin_has_approved(mesh: Mesh) -> None:
    ada, bob = await mesh.people("admin ada", "admin bob")
    await ada.require(rule(access.CHANGE_KIND_LISTENERS))
    outside = listeners.Listener(name="outside", security=listeners.LISTENER_SECURITY_SSL, port=9094)
    change = listeners.ListenerChange(name="outside", listener=outside)
    name = await proposed(ada.call(ada.listeners.ChangeListeners, listeners.ChangeListenersRequest(changes=[change])))
    plan = [line.text for line in (await bob.shown(name)).plan]
    assert any("listener outside: SSL, port 9094" in text for text in plan), plan
    assert (await bob.approve(name)).state == APPLIED
    found = await ada.call(ada.listeners.ListListeners, listeners.ListListenersRequest())
    assert list(found.listeners) == [outside]


async def test_who_does_not_count_as_the_second_person(mesh: Mesh, issuer: TokenIssuer) -> None:
    ada, bob, vera = await mesh.people("admin ada", "operator bob", "viewer vera")
    for principal in ("oidc:robot", "oidc:dan", "oidc:proxy"):
        other = grants.Grant(
            principal=principal, role=access.ROLE_OPERATOR, on_behalf_of_others=principal == "oidc:proxy"
        )
        await ada.call(ada.access.GrantRole, grants.GrantRoleRequest(grant=other))
    narrow = grants.Grant(principal="nina", role=access.ROLE_OPERATOR, narrowing=grants.Narrowing(clusters=["c2"]))
    await ada.call(ada.access.GrantRole, grants.GrantRoleRequest(grant=narrow))
    await ada.require(rule(RULES))
    name = await proposed(bob.set("apples", "c1"))
    robot = await mesh.holder(issuer.token(aud="mesh", sub="robot", azp="robot"))
    assert await reason_of(robot.approve(name), STATE, "is a program") == "NOT_A_PERSON"
    await refused(vera.approve(name), DENIED, "needs the role operator")
    await refused((await mesh.person("operator", "nina")).approve(name), DENIED, "the call names cluster c1")
    proxy = await mesh.holder(issuer.token(aud="mesh", sub="proxy"))
    spoken = proxy.call(
        proxy.approvals.ApproveProposal, proposals.ApproveProposalRequest(name=name), ("x-mesh-on-behalf-of", "cleo")
    )
    assert await reason_of(spoken, STATE, "in person") == "NOT_IN_PERSON"
    assert await reason_of((await mesh.person("operator", "BOB")).approve(name)) == "SAME_PERSON"
    for_ada = proxy.set("pears", "c1", ("x-mesh-on-behalf-of", "ada"))
    assert await reason_of(ada.approve(await proposed(for_ada))) == "SAME_PERSON"
    assert (await bob.shown(name)).state == OPEN
    dan = await mesh.holder(issuer.token(aud="mesh", sub="dan", azp="some-app"))
    assert (await dan.approve(name)).state == APPLIED


async def test_a_plan_that_is_out_of_date_asks_for_a_new_proposal(mesh: Mesh) -> None:
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    await bob.set("apples", "c1")
    await ada.require(rule(RULES, topic_prefixes=["apples"]))
    name = await proposed(bob.set("apples", "c2"))
    await cleo.set("pears", "c1")  # needs nobody, and is no part of the plan
    other = await proposed(cleo.call(cleo.rules.RemoveRule, admin.RemoveRuleRequest(name="rules/apples")))
    await ada.approve(other)
    await refused(cleo.approve(name), LOST, "would do something else now", "new: rule apples added")
    assert (await bob.shown(name)).state == OPEN
    assert (await bob.withdraw(name)).state == proposals.PROPOSAL_STATE_WITHDRAWN
    assert await mesh.rules() == {"pears": "c1"}


async def test_of_two_approvals_at_once_one_wins(mesh: Mesh) -> None:
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    await ada.require(rule(RULES))
    name = await proposed(bob.set("apples", "c1"))
    answers = await asyncio.gather(ada.approve(name), cleo.approve(name), return_exceptions=True)
    lost = [each for each in answers if isinstance(each, grpc.aio.AioRpcError)]
    assert [each.code() for each in lost] == [LOST], answers
    assert await mesh.kinds(name) == ["change_proposed", "proposal_approved", "proposal_closed"]
    changes = [event for event in await mesh.world.history() if event.HasField("rule_set_changed")]
    assert len(changes) == 1
    await refused(ada.refuse(name), LOST, "is applied by")


async def test_an_approval_that_is_checked_while_another_one_is_made_loses(
    mesh: Mesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    await ada.require(rule(RULES))
    name = await proposed(bob.set("apples", "c1"))
    calls, checked, goes_on = mesh.world.control.approved_calls, asyncio.Event(), asyncio.Event()
    check = calls.check

    async def slow(proposal: proposals.Proposal) -> int:
        revision = await check(proposal)
        if not checked.is_set():
            checked.set()
            await goes_on.wait()
        return revision

    monkeypatch.setattr(calls, "check", slow)
    late = ada.approve(name)
    await checked.wait()
    await cleo.approve(name)
    goes_on.set()
    await refused(late, LOST, "is applied by")
    assert await mesh.kinds(name) == ["change_proposed", "proposal_approved", "proposal_closed"]


async def test_the_same_request_is_the_same_proposal(mesh: Mesh) -> None:
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    await ada.require(rule(RULES))
    request_id, approval = str(uuid.uuid4()), str(uuid.uuid4())
    name = await proposed(bob.set("apples", "c1", request_id=request_id))
    assert await proposed(bob.set("apples", "c1", request_id=request_id)) == name
    at_once = str(uuid.uuid4())
    twice = (proposed(bob.set("pears", "c1", request_id=at_once)) for _ in range(2))
    assert len(set(await asyncio.gather(*twice))) == 1
    assert (await bob.listed()).open == 2
    first = await cleo.approve(name, request_id=approval)
    assert await cleo.approve(name, request_id=approval) == first


async def test_a_program_that_asks_again_and_again_proposes_once(mesh: Mesh) -> None:
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    await ada.require(rule(RULES))
    names = [await proposed(bob.set("apples", "c1", request_id=str(uuid.uuid4()))) for _ in range(3)]
    assert len(set(names)) == 1
    assert await proposed(cleo.set("apples", "c1")) != names[0], "of somebody else"
    assert await proposed(bob.set("apples", "c1", reason="another")) != names[0], "for another reason"


async def test_an_expected_revision_counts_when_the_change_is_proposed(mesh: Mesh) -> None:
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    revision = (await bob.set("apples", "c1")).revision
    await ada.require(rule(RULES))
    name = await proposed(bob.set("pears", "c1", expected_revision=revision))
    await cleo.approve(await proposed(bob.set("plums", "c1", expected_revision=revision)))
    await refused(bob.set("figs", "c1", expected_revision=revision), LOST, "revision")
    assert (await cleo.approve(name)).state == APPLIED


async def test_nobody_takes_the_room_of_all_others(mesh: Mesh) -> None:
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    await ada.require(rule(RULES))
    for number in range(MOST_OPEN_OF_ONE):
        await proposed(bob.set(f"t{number}", "c1"))
    assert await reason_of(bob.set("more", "c1"), STATE, "20 proposals of bob") == "TOO_MANY_PROPOSALS"
    await proposed(cleo.set("more", "c1"))


async def test_a_change_that_changes_nothing_needs_nobody(mesh: Mesh) -> None:
    ada, bob = await mesh.people("admin ada", "operator bob")
    before = await bob.set("apples", "c1")
    await ada.require(rule(RULES))
    assert (await bob.set("apples", "c1")).revision == before.revision
    assert (await bob.set("apples", "c2", validate_only=True)).rules[0].spec.target_cluster == "c2"
    await refused(bob.set("apples", "c9"), STATE, "c9")
    assert not (await bob.listed()).proposals


async def test_frozen_meshes_propose_and_approve_nothing(mesh: Mesh) -> None:
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    await ada.require(rule(RULES))
    name, away = await proposed(bob.set("apples", "c1")), await proposed(bob.set("pears", "c1"))
    await ada.call(ada.changes.Freeze, admin.FreezeRequest(reason="inventory"))
    assert await reason_of(bob.set("plums", "c1")) == "MESH_FROZEN"
    assert await reason_of(cleo.approve(name)) == "MESH_FROZEN"
    assert (await cleo.refuse(away)).state == proposals.PROPOSAL_STATE_REFUSED
    await ada.call(ada.changes.Thaw, admin.ThawRequest())
    assert (await cleo.approve(name)).state == APPLIED


async def test_the_policy_and_roles_need_two_once_a_policy_is_on(mesh: Mesh) -> None:
    ada, amy, bob = await mesh.people("admin ada", "admin amy", "operator bob")
    await ada.require(rule(ACLS))
    await bob.set("apples", "c1")
    off = await proposed(ada.require())
    role = grants.GrantRoleRequest(grant=grants.Grant(principal="eve", role=access.ROLE_ADMIN))
    eve = await proposed(ada.call(ada.access.GrantRole, role))
    assert [line.text for line in (await amy.shown(eve)).plan] == ["eve is admin"]
    await refused(bob.approve(off), DENIED, "needs the role admin")
    await ada.call(ada.access.RevokeRole, grants.RevokeRoleRequest(principal="mallory"))  # never waits
    assert (await amy.approve(off)).state == APPLIED
    assert not (await ada.call(ada.approvals.GetApprovalPolicy, proposals.GetApprovalPolicyRequest())).rules
    await ada.call(ada.access.GrantRole, role)


async def test_other_kinds_of_changes_show_what_they_would_do(mesh: Mesh) -> None:
    ada, amy = await mesh.people("admin ada", "admin amy")
    await ada.require(rule())
    one = acls.Acl(
        resource_type=acls.ACL_RESOURCE_TYPE_TOPIC, pattern_type=acls.ACL_PATTERN_TYPE_LITERAL, resource_name="pay",
        principal="User:till", host="*", operation=acls.ACL_OPERATION_READ, permission=acls.ACL_PERMISSION_ALLOW,
    )  # fmt: skip
    name = await proposed(ada.call(ada.acls.CreateAcls, acls.CreateAclsRequest(acls=[one])))
    assert any("User:till" in line.text for line in (await amy.shown(name)).plan)
    away = await proposed(ada.call(ada.clusters.RemoveCluster, admin.RemoveClusterRequest(name="clusters/c2")))
    assert [line.text for line in (await amy.shown(away)).plan] == ["cluster c2 removed"]
    inner = admin.SetRuleRequest(match=routing.RuleMatch(topic="apples"), target_cluster="c1")
    later = admin.ScheduleChangeRequest()
    later.time.GetCurrentTime()
    later.time.seconds += 3600
    later.command.Pack(inner)
    planned = await proposed(ada.call(ada.changes.ScheduleChange, later))
    texts = [line.text for line in (await amy.shown(planned)).plan]
    assert texts[0].startswith("scheduled as NEW for") and any("rule apples added" in text for text in texts)
    for each in (name, planned, away):
        assert (await amy.approve(each)).state == APPLIED
    assert (await mesh.world.history(stream="acls"))[0].proposal == name


async def test_no_secret_of_a_request_reaches_a_proposal(mesh: Mesh) -> None:
    ada, amy = await mesh.people("admin ada", "admin amy")
    await ada.require(rule(USERS))
    verifier = users.ScramVerifier(
        mechanism=users.SCRAM_MECHANISM_SHA_256, salt=b"s" * 16, iterations=4096, stored_key=b"k" * 32,
        server_key=b"v" * 32,
    )  # fmt: skip
    request = users.SetUserRequest(user="till", verifiers=[verifier])
    assert await reason_of(ada.call(ada.users.SetUser, request), STATE, "holds secrets") == "SECRETS_NOT_PROPOSED"
    await ada.call(ada.users.SetUser, request, (BREAK_GLASS, b"the till is locked"))
    (proposal,) = (await amy.listed()).proposals
    assert (proposal.state, proposal.break_glass) == (APPLIED, True)
    for event in await mesh.world.history():
        assert b"k" * 32 not in event.SerializeToString()
    gone = await proposed(ada.call(ada.users.DeleteUser, users.DeleteUserRequest(user="till")))
    assert (await amy.approve(gone)).state == APPLIED


async def test_an_admin_may_break_the_glass_and_everybody_sees_it(mesh: Mesh) -> None:
    ada, bob = await mesh.people("admin ada", "operator bob")
    await ada.require(rule(RULES))
    why = (BREAK_GLASS, "Äpfel brennen".encode())
    await refused(bob.set("apples", "c1", why), DENIED, "is for admins of the whole mesh")
    change = await ada.set("apples", "c1", why)
    (proposal,) = (await bob.listed()).proposals
    assert (proposal.break_glass, proposal.state, proposal.revision) == (True, APPLIED, change.revision)
    assert (proposal.decided_by, proposal.decision_reason) == ("ada", "Äpfel brennen")
    assert await mesh.kinds(proposal.name) == ["change_proposed", "proposal_approved", "proposal_closed"]
    await refused(ada.set("apples", "c9", why), STATE, "c9")
    assert len((await bob.listed()).proposals) == 1, "control refuses the change before the glass breaks"


async def test_a_proposal_expires(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    await ada.require(rule(RULES), expire_after=timedelta(minutes=1))
    name = await proposed(bob.set("apples", "c1"))
    clock = mesh.world.control.proposals
    now = (await bob.shown(name)).expire_time.ToDatetime(UTC)
    monkeypatch.setattr(clock, "_clock", lambda: now)

    async def is_over() -> bool:
        return (await bob.shown(name)).state == proposals.PROPOSAL_STATE_EXPIRED

    await until(is_over, "the proposal has expired")
    await refused(cleo.approve(name), LOST, "is expired")
    assert await mesh.rules() == {}


async def test_a_new_leader_finishes_what_was_approved_once(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    await ada.require(rule(RULES))
    name, waiting = await proposed(bob.set("apples", "c1")), await proposed(bob.set("pears", "c1"))
    approved = mesh.world.control.approved_calls
    began = asyncio.Event()

    async def stops(_proposal: proposals.Proposal, _rules_revision: int) -> int:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError("never")

    monkeypatch.setattr(approved, "carry_out", stops)
    call = asyncio.ensure_future(cleo.approve(name))
    await began.wait()
    call.cancel()
    await mesh.world.stop()
    await mesh.world.start()

    async def is_applied() -> bool:
        listed = proposals_grpc.ApprovalServiceStub(mesh.world.channel)
        found = await listed.GetProposal(proposals.GetProposalRequest(name=name), timeout=CALL)
        return bool(found.state == APPLIED)

    await until(is_applied, "the new leader has made the change")
    assert await mesh.rules() == {"apples": "c1"}
    assert (await (await mesh.person("operator", "cleo")).approve(waiting)).state == APPLIED
    assert await mesh.kinds(name) == ["change_proposed", "proposal_approved", "proposal_closed"]


async def test_a_change_scheduled_before_the_policy_is_not_made_behind_its_back(mesh: Mesh) -> None:
    ada, bob = await mesh.people("admin ada", "operator bob")
    inner = admin.SetRuleRequest(match=routing.RuleMatch(topic="apples"), target_cluster="c1")
    later = admin.ScheduleChangeRequest()
    later.time.GetCurrentTime()
    later.time.seconds += 30
    later.command.Pack(inner)
    scheduled = await bob.call(bob.changes.ScheduleChange, later)
    await ada.require(rule(RULES))
    due = later.time.ToDatetime(UTC)
    mesh.world.control.schedules.clock = lambda: due

    async def is_refused() -> bool:
        return "scheduled_change_ended" in await mesh.kinds(scheduled.name)

    await until(is_refused, "the scheduled change has ended")
    ended = (await mesh.world.history(stream=scheduled.name))[0].scheduled_change_ended
    assert "scheduled anew" in ended.problem and await mesh.rules() == {}


async def test_nobody_sets_a_policy_where_nobody_proves_a_name(world: World) -> None:
    stub = proposals_grpc.ApprovalServiceStub(world.channel)
    request = proposals.SetApprovalPolicyRequest(policy=proposals.ApprovalPolicy(rules=[rule(RULES)]))
    assert await reason_of(stub.SetApprovalPolicy(request, timeout=CALL), STATE, "has proved no name") == "NOT_PROVED"


async def test_pages_of_proposals(mesh: Mesh) -> None:
    ada, bob = await mesh.people("admin ada", "operator bob")
    await ada.require(rule(RULES))
    made = [await proposed(bob.set(f"t{number}", "c1")) for number in range(5)]
    first = await bob.listed(page_size=3)
    rest = await bob.listed(page_size=3, page_token=first.next_page_token)
    assert [each.name for page in (first, rest) for each in page.proposals] == made[::-1]
    assert not rest.next_page_token and first.open == 5
    assert not first.proposals[0].HasField("request") and not first.proposals[0].plan


async def test_the_next_leader_takes_the_word_that_its_follower_refuses(
    mesh: Mesh, authority: Authority, kafka_c1: KafkaCluster
) -> None:
    ada, bob = await mesh.people("admin ada", "operator bob")
    await ada.require(rule(RULES))
    name = await proposed(bob.set("apples", "c1"))
    first = mesh.world
    second = World(
        first.settings.database_url.get_secret_value(), kafka_c1.bootstrap, first.settings.events_topic,
        rpc_tls_folder=first.settings.rpc_tls_folder,
    )  # fmt: skip
    second.caller = first.caller
    await second.start(wait=False)
    try:
        mesh.world = second
        (cleo,) = await mesh.people("operator cleo")
        follower = second.control.journal
        await until(lambda: follower.loaded and name in follower.view.proposals.open, "the second control follows")
        assert (await cleo.shown(name)).state == OPEN
        await refused(cleo.approve(name), grpc.StatusCode.UNAVAILABLE)
        await refused(cleo.set("pears", "c1"), grpc.StatusCode.UNAVAILABLE)
        await first.control.stop()
        await until(lambda: not follower.why_not_leading, "the second control leads")
        assert (await cleo.approve(name)).state == APPLIED
        assert await mesh.rules() == {"apples": "c1"}
    finally:
        await first.start(wait=False)  # its fixture stops it
        await second.stop()


async def test_the_same_request_again_is_no_way_around_the_second_person(
    mesh: Mesh, kafka_c1: KafkaCluster, events_topic: str
) -> None:
    """An order to end a transaction goes on when it is given again; one that waits does not begin so."""
    ada, bob, cleo = await mesh.people("admin ada", "operator bob", "operator cleo")
    client = AdminClient({"bootstrap.servers": kafka_c1.bootstrap})
    if TRANSACTIONS_TOPIC not in client.list_topics(timeout=CALL).topics:
        create_topic(kafka_c1.bootstrap, TRANSACTIONS_TOPIC, 5)
    topic, transactional_id = f"{events_topic}.apples", f"{events_topic}.id"
    create_topic(kafka_c1.bootstrap, topic, 1)
    producer = await asyncio.to_thread(begun, kafka_c1.bootstrap, transactional_id, topic)
    service = transactions_grpc.TransactionServiceStub(mesh.world.channel)
    wanted = transactions.ListTransactionsRequest(id_prefix=transactional_id)
    listed = transactions.ListTransactionsResponse()

    async def is_listed() -> bool:
        nonlocal listed
        listed = await service.ListTransactions(wanted, timeout=CALL)
        return bool(listed.transactions)

    await until(is_listed, "the transaction is listed")
    await ada.require(rule(access.CHANGE_KIND_TRANSACTIONS))
    request = transactions.AbortTransactionRequest(name=listed.transactions[0].name, request_id=str(uuid.uuid4()))
    name = await proposed(bob.call(bob.transactions.AbortTransaction, request))
    assert await proposed(bob.call(bob.transactions.AbortTransaction, request)) == name
    assert await is_listed(), "the transaction is open"
    other = transactions.AbortTransactionRequest(name="transactions/other", request_id=request.request_id)
    error = await refused(bob.call(bob.transactions.AbortTransaction, other), grpc.StatusCode.INVALID_ARGUMENT)
    assert "was used for a different request" in (error.details() or "")
    assert (await cleo.approve(name)).state == APPLIED

    async def has_ended() -> bool:
        return not await is_listed()

    await until(has_ended, "the transaction has ended")
    del producer
