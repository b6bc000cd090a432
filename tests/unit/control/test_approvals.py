"""The policy of approvals and the proposals, without I/O: which changes wait, who counts, and what the log gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.message import Message

from mesh.rpc import access, admin, events, grants, proposals, replays
from mesh.rpc.method_access import access_of, decides
from mesh.rpc.roles import PEOPLE
from mesh.rpc.token_callers import is_of_a_program
from services.control.api.approval_gate import has_secrets
from services.control.api.approval_plans import ApprovalPlans
from services.control.domain.access.things import Kind, Thing
from services.control.domain.change_control import proposals as aggregate
from services.control.domain.change_control.approvals import asks, may_ask, set_policy
from services.control.domain.change_control.proposals import KEPT, MOST_LINES, Person, Plan, Proposals, fold_proposals
from services.control.domain.errors import Conflict, InvalidField, NotAllowed
from services.control.domain.past.snapshots import view_from_bytes, view_to_bytes
from services.control.domain.view import MeshView, apply
from services.control.process import Control
from services.control.store.drafts import Draft
from tests.unit.control.test_view import event

RULES, ROLES, ACLS = access.CHANGE_KIND_RULES, access.CHANGE_KIND_ROLES, access.CHANGE_KIND_ACLS
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
NEVER_WAIT = {
    "ChangeControlService/Freeze": "stops changes",
    "ChangeControlService/Thaw": "its opposite never waits either, and changes after it do",
    "ChangeControlService/CancelScheduledChange": "takes back",
    "ClusterService/TestCluster": "asks",
    "RuleService/EndCanary": "the change was approved as it began",
    "AccessService/RevokeRole": "takes a right away, at once",
    "InstanceService/RemoveInstance": "forgets a report",
    "ReplayService/CancelReplay": "takes back",
    "TopicMoveService/CancelTopicMove": "takes back",
    "DrainService/PauseDrain": "stops changes",
    "DrainService/CancelDrain": "takes back",
    "RehearsalService/EndRehearsal": "takes back",
    "StandbyService/EndStandby": "takes back",
    "FailBackService/CancelFailBack": "takes back",
    "ApprovalService/ApproveProposal": "is the word of the second person",
    "ApprovalService/RefuseProposal": "likewise",
    "ApprovalService/WithdrawProposal": "takes back",
}


def policy(*rules: proposals.ApprovalRule, **fields: Any) -> proposals.ApprovalPolicy:
    return proposals.ApprovalPolicy(rules=rules, **fields)


def rule(*kinds: access.ChangeKind.ValueType, **narrowing: Any) -> proposals.ApprovalRule:
    return proposals.ApprovalRule(kinds=kinds, narrowing=grants.Narrowing(**narrowing) if narrowing else None)


def methods_of_people() -> dict[str, access.Access]:
    """Every deciding method that control serves to people."""
    assert Control.__doc__  # imports every service's contract
    found = {}
    for file in {proposals.DESCRIPTOR, *(m.DESCRIPTOR for m in _contracts())}:
        for service in file.services_by_name.values():
            for method in service.methods:
                path = f"/{service.full_name}/{method.name}"
                if decides(path) and set(access_of(path).roles) & {*PEOPLE}:
                    found[f"{service.name}/{method.name}"] = access_of(path)
    return found


def _contracts() -> list[Any]:
    import mesh.rpc as contracts

    return [getattr(contracts, each) for each in contracts.__all__ if not each.endswith("_grpc")]


def test_each_changing_method_can_be_put_under_a_policy_or_says_why_not() -> None:
    methods = methods_of_people()
    free = {name for name, access_to in methods.items() if access_to.change == access.CHANGE_KIND_UNSPECIFIED}
    assert free == set(NEVER_WAIT)
    used = {access_to.change for access_to in methods.values()}
    assert used == set(access.ChangeKind.values()), "no kind is for nothing"


def test_each_request_that_can_wait_has_a_reason_and_a_request_id() -> None:
    for name, access_to in methods_of_people().items():
        if not access_to.change:
            continue
        from google.protobuf import descriptor_pool

        service, _, method = name.partition("/")
        kind = descriptor_pool.Default().FindServiceByName(f"mesh.v1.{service}").methods_by_name[method].input_type
        options = kind.fields_by_name.get("options")
        holder = options.message_type if options is not None else kind
        assert holder is not None and {"reason", "request_id"} <= set(holder.fields_by_name), name


def test_every_field_with_a_verifier_is_marked_as_a_secret() -> None:
    from mesh.rpc import users

    request = users.SetUserRequest(user="till")
    assert not has_secrets(request)
    request.verifiers.add(salt=b"salt")
    assert has_secrets(request)


def test_without_rules_nothing_waits() -> None:
    assert not any(may_ask(policy(), kind) for kind in access.ChangeKind.values())


def test_with_any_rule_roles_and_the_policy_wait() -> None:
    on = policy(rule(ACLS, clusters=["c1"]))
    assert asks(on, ROLES, ()) and asks(on, access.CHANGE_KIND_APPROVALS, ())
    assert not asks(on, RULES, ())
    assert not asks(on, access.CHANGE_KIND_UNSPECIFIED, ())


@pytest.mark.parametrize(
    ("things", "waits"),
    [
        ([Thing(Kind.TOPIC, "pay-orders")], True),
        ([Thing(Kind.TOPIC, "shop-orders")], False),
        ([Thing(Kind.TOPIC, "shop"), Thing(Kind.TOPIC, "pay-1")], True),
        ([Thing(Kind.TOPIC, "pa", is_beginning=True)], True),
        ([Thing(Kind.TOPIC, "pa")], False),
        ([Thing(Kind.TOPIC, "", is_beginning=True)], True),
        ([Thing(Kind.CLUSTER, "c1")], True),
        ([], True),
    ],
    ids=str,
)
def test_a_narrowed_rule_is_for_its_things_and_for_what_may_concern_them(things: list[Thing], waits: bool) -> None:
    assert asks(policy(rule(RULES, topic_prefixes=["pay-"])), RULES, things) is waits


def test_two_kinds_of_things_narrow_together() -> None:
    both = policy(rule(RULES, topic_prefixes=["pay-"], clusters=["c1"]))
    assert asks(both, RULES, [Thing(Kind.TOPIC, "pay-1"), Thing(Kind.CLUSTER, "c1")])
    assert not asks(both, RULES, [Thing(Kind.TOPIC, "pay-1"), Thing(Kind.CLUSTER, "c2")])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (policy(rule(access.CHANGE_KIND_UNSPECIFIED)), "is no kind of change"),
        (policy(rule(99)), "99 is no kind of change"),  # type: ignore[arg-type]
        (policy(rule(RULES, clusters=["two words"])), "'two words' is no name"),
        (policy(*[rule(RULES)] * 101), "101 rules, and 100 are possible"),
        (policy(rule(RULES), expire_after=timedelta(seconds=1)), "1 s is not from 60 s"),
        (policy(rule(RULES), automations=["two words"]), "is no principal"),
        (policy(rule(RULES, topic_prefixes=["a"] * 101)), "has 101 names"),
    ],
)
def test_a_policy_that_can_not_be_is_refused(wrong: proposals.ApprovalPolicy, words: str) -> None:
    with pytest.raises(InvalidField, match=words):
        set_policy(policy(), proposals.SetApprovalPolicyRequest(policy=wrong))


def test_a_policy_is_set_once_and_on_what_its_admin_saw() -> None:
    known = policy(rule(RULES), revision=7)
    same = proposals.SetApprovalPolicyRequest(policy=policy(rule(RULES), revision=1))
    assert set_policy(known, same) is None
    with pytest.raises(Conflict, match="revision 7"):
        set_policy(known, proposals.SetApprovalPolicyRequest(policy=policy(), expected_revision=6))


def line(text: str, fixed: str = "") -> proposals.PlanLine:
    return proposals.PlanLine(text=text, fixed=fixed)


def change(name: str, proposer: str = "bob", **fields: Any) -> proposals.Proposal:
    made = proposals.Proposal(name=f"proposals/{name}", method="RuleService/RemoveRule", proposer=proposer, **fields)
    made.request.Pack(admin.RemoveRuleRequest(name="rules/apples"))
    return made


USUAL = Plan([line("a", "a")])


def proposed(position: int, name: str, plan: Plan = USUAL, **fields: Any) -> events.Event:
    payload = aggregate.propose(Proposals(), change(name, **fields), plan, NOW)
    return event(position, f"proposals/{name}", payload, actor="bob")


def seen(*log: events.Event) -> Proposals:
    known = Proposals()
    for each in log:
        known = fold_proposals(known, each)
    return known


def test_the_log_gives_the_course_of_a_proposal_and_snapshots_keep_it() -> None:
    name = "proposals/1"
    log: list[tuple[Message, str]] = [
        (events.ProposalApproved(name=name), "cleo"),
        (aggregate.closed(name, proposals.PROPOSAL_STATE_APPLIED, 9), "control"),
    ]
    view = apply(MeshView(), proposed(1, "1"))
    assert [each.name for each in view.proposals.waiting()] == [name]
    states = []
    for position, (payload, actor) in enumerate(log, start=2):
        view = apply(view, event(position, name, payload, actor=actor))
        states.append(view.proposals.get(name).state)
        assert view_from_bytes(view_to_bytes(view)).proposals == view.proposals
    assert states == [proposals.PROPOSAL_STATE_APPROVED, proposals.PROPOSAL_STATE_APPLIED]
    ended = view.proposals.ended[name]
    assert (ended.decided_by, ended.revision, view.routing_position) == ("cleo", 9, 0)
    assert not view.proposals.open


def test_ended_proposals_are_kept_within_a_bound_and_without_their_requests() -> None:
    log = []
    for number in range(KEPT + 5):
        name = f"proposals/{number}"
        end = aggregate.closed(name, proposals.PROPOSAL_STATE_EXPIRED)
        log += [proposed(2 * number + 1, str(number)), event(2 * number + 2, name, end, actor="control")]
    known = seen(*log)
    assert len(known.ended) == KEPT and next(iter(known.ended)) == "proposals/5"
    assert not any(each.HasField("request") for each in known.ended.values())


def test_a_plan_differs_by_its_fixed_facts_alone() -> None:
    before = seen(proposed(1, "1", Plan([line("topic a moves", "a"), line("client x uses a")]))).get("proposals/1")
    aggregate.check_plan(before, Plan([line("client y uses a"), line("topic a moves", "a")]))
    with pytest.raises(Conflict, match="no more: topic a moves; new: topic b moves"):
        aggregate.check_plan(before, Plan([line("topic b moves", "b")]))


def test_a_long_plan_is_shown_in_part_and_compared_as_a_whole() -> None:
    lines = [line(f"topic {number} moves", str(number)) for number in range(MOST_LINES + 50)]
    proposal = seen(proposed(1, "1", Plan(lines))).get("proposals/1")
    assert proposal.plan[-1].text == "and 50 more facts"
    aggregate.check_plan(proposal, Plan(lines))
    with pytest.raises(Conflict, match="beyond the facts that the proposal shows"):
        aggregate.check_plan(proposal, Plan(lines[:-1]))


@pytest.mark.parametrize(
    ("who", "kind"),
    [
        (Person("bob"), "SAME_PERSON"),
        (Person("Bob"), "SAME_PERSON"),
        (Person("ann"), "SAME_PERSON"),
        (Person("cleo", on_behalf_of="dan"), "NOT_IN_PERSON"),
        (Person("robot", is_automation=True), "NOT_A_PERSON"),
        (Person("ci"), "NOT_A_PERSON"),
    ],
)
def test_who_is_no_second_person(who: Person, kind: str) -> None:
    proposal = change("1", on_behalf_of="ann")
    with pytest.raises(NotAllowed) as refused:
        aggregate.check_second_person(policy(rule(RULES), automations=["ci"]), proposal, who)
    assert refused.value.kind == kind


def test_a_program_is_one_where_the_policy_says_so() -> None:
    takes_all = policy(rule(RULES), automations=["ci"], automations_may_approve=True)
    aggregate.check_second_person(takes_all, change("1"), Person("ci", is_automation=True))
    with pytest.raises(NotAllowed, match="has proposed"):
        aggregate.check_second_person(takes_all, change("1", "ci"), Person("ci"))


def test_a_proposal_that_has_ended_or_expired_takes_no_word() -> None:
    known = seen(proposed(1, "1"))
    aggregate.still_open(known, "proposals/1", NOW + timedelta(hours=23))
    with pytest.raises(Conflict, match="has expired"):
        aggregate.still_open(known, "proposals/1", NOW + timedelta(hours=24))
    refused = aggregate.closed("proposals/1", proposals.PROPOSAL_STATE_REFUSED)
    known = fold_proposals(known, event(2, "proposals/1", refused, actor="cleo"))
    with pytest.raises(Conflict, match="is refused by cleo already"):
        aggregate.still_open(known, "proposals/1", NOW)


def test_a_random_name_of_a_new_thing_is_no_difference_between_plans() -> None:
    old = event(1, "replays/0badcafe", events.ReplayStarted(replay=replays.Replay(name="replays/0badcafe")))
    journal: Any = SimpleNamespace(view=apply(MeshView(), old))
    plans = ApprovalPlans(journal, cast(Any, None), cast(Any, None))

    def texts(order: str, replay: str) -> list[str]:
        command = events.SidecarCommand(pause=events.PauseInstance())
        placed = events.SidecarOrder(name=order, target="instances/g.i", sidecar="s1", command=command, replay=replay)
        draft = Draft("instances/g.i", events.SidecarOrdered(order=placed))
        return [each.fixed for each in plans._of_draft(draft)]

    one, other = (texts(f"orders/{made}", "replays/0badcafe") for made in ("00000001", "00000002"))
    assert one == other and one
    assert not any("0000000" in text for text in one)


def test_a_request_that_is_too_large_is_refused_with_the_bound() -> None:
    large = change("1")
    large.request.value = b"x" * (aggregate.LONGEST_REQUEST + 1)
    with pytest.raises(InvalidField, match="has room for 262144"):
        aggregate.propose(Proposals(), large, Plan(()), NOW)


@pytest.mark.parametrize(
    ("claims", "program"),
    [
        ({"sub": "ci", "client_id": "ci"}, True),
        ({"sub": "ci", "azp": "ci"}, True),
        ({"sub": "x", "idtyp": "app"}, True),
        ({"sub": "ada", "azp": "console", "client_id": "console"}, False),
        ({"azp": None}, False),
    ],
)
def test_a_token_without_a_person_is_a_programs(claims: dict[str, Any], program: bool) -> None:
    assert is_of_a_program(claims) is program
