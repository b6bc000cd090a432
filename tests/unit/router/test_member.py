"""Playbooks of one data plane: what it hears and says, what it is told. `>>` goes in, `<<` must come out."""

from __future__ import annotations

import pytest

from mesh.routing import RoutingState, RoutingTable, came_into_force
from mesh.routing.policies import STITCH_POLICY
from mesh.rpc import acls, events, stitches, topic_moves
from services.router.discovery.member import (
    MAX_UNANSWERED,
    SHORTEST_HOLD_MS,
    TOO_OLD,
    TRANSITIONS,
    Answer,
    Answered,
    Apply,
    Hello,
    Hold,
    Member,
    MemberState,
    Message,
    News,
    Order,
    ProtocolError,
    Release,
    Standing,
    Switch,
    Try,
)
from tests.unit.router.decisions import DecisionLog, two_clusters

HOLD_MS = 5000
DECIDED = 1000.0
"""Seconds; when every decision of these playbooks was taken."""
TO_APPLY, TO_HOLD, TO_REFUSE = 0.25, 0.5, 0.75
"""Seconds from there to each answer; exact in binary."""


def news(state: RoutingState, hold_ms: int = HOLD_MS) -> News:
    return News(state, hold_ms, DECIDED)


def applied(revision: int) -> Answered:
    return Answered(revision, Answer.APPLIED, DECIDED + TO_APPLY)


def held(revision: int) -> Answered:
    return Answered(revision, Answer.HELD, DECIDED + TO_HOLD)


def refused(revision: int, reason: str) -> Answered:
    return Answered(revision, Answer.REFUSED, DECIDED + TO_REFUSE, reason)


class Playbook:
    """`play >> message`, then `play << order` for each order that follows; nothing may be left over."""

    def __init__(self, state: RoutingState | None) -> None:
        self.member = Member("g1", None if state is None else news(state))
        self._orders: list[Order] = []

    def __rshift__(self, message: Message) -> Playbook:
        self.done()
        self._orders = list(self.member.receive(message))
        return self

    def __lshift__(self, expected: Order) -> Playbook:
        assert self._orders, f"{expected} was due, nothing came"
        assert self._orders.pop(0) == expected
        return self

    def done(self) -> None:
        assert not self._orders, f"came unasked: {self._orders}"


def test_a_member_is_told_the_table_in_force_whatever_it_runs() -> None:
    log = two_clusters()
    for runs in (0, 2, 3):
        play = Playbook(log.state)
        play >> Hello(runs) << Apply(log.state.effective)
        play >> applied(3)
        play.done()
        assert play.member.standing == Standing(3, Answer.APPLIED)


def test_a_member_of_a_router_that_still_reads_waits() -> None:
    log = two_clusters()
    play = Playbook(None)
    play >> Hello(0)
    play >> news(log.state) << Apply(log.state.effective)
    play.done()


def test_a_member_with_a_newer_table_is_never_led_back() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(5)
    play >> news(log.rule("bananas", to="c2"))
    play >> news(log.rule("cherries", to="c2")) << Apply(log.state.effective)
    play.done()
    assert log.state.effective.revision == 5


def test_a_change_that_moves_nothing_is_applied_at_once() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.rule("bananas", to="c2")) << Apply(log.state.effective)
    play >> applied(4)
    play.done()
    assert play.member.standing == Standing(4, Answer.APPLIED, lag_s=TO_APPLY)


def test_the_producers_at_the_cut_go_with_the_switch_that_follows_and_with_no_other() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    log.move("apples", to="c2")
    log.cut("apples", source="c1")
    given_up = log.state.pending
    assert given_up is not None
    play >> news(log.state) << Hold(given_up, HOLD_MS)
    play >> news(log.abort()) << Release(given_up.revision)
    for target, source in (("c2", "c1"), ("c1", "c2")):
        log.move("apples", to=target)
        pending = log.state.pending
        assert pending is not None
        play >> news(log.state) << Hold(pending, HOLD_MS)
        play >> news(log.cut("apples", source=source))
        producers = topic_moves.TopicMoveProducers(topic="apples", source_cluster=source, source_topic="apples")
        play >> news(log.switch()) << Switch(pending.revision, producers)
    pending = log.move("apples", to="c2").pending
    assert pending is not None
    play >> news(log.state) << Hold(pending, HOLD_MS)
    play >> news(log.switch()) << Switch(pending.revision)
    play.done()


def test_a_rollout_that_succeeds() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.move("apples", to="c2"))
    pending = log.state.pending
    assert pending is not None
    play << Hold(pending, HOLD_MS)
    play >> held(4)
    assert play.member.standing == Standing(4, Answer.HELD, lag_s=TO_HOLD)
    play >> news(log.switch()) << Switch(4)
    play >> applied(4)
    play.done()
    assert play.member.standing == Standing(4, Answer.APPLIED, lag_s=TO_APPLY)


def test_a_rollout_that_is_given_up() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.move("apples", to="c2"))
    pending = log.state.pending
    assert pending is not None
    play << Hold(pending, HOLD_MS)
    play >> held(4)
    play >> news(log.abort()) << Release(4)
    play.done()
    assert play.member.standing == Standing(3, Answer.APPLIED)


def test_an_answer_that_crosses_a_release_is_ignored() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.move("apples", to="c2"))
    assert log.state.pending is not None
    play << Hold(log.state.pending, HOLD_MS)
    play >> news(log.abort()) << Release(4)
    play >> held(4)
    play.done()
    assert play.member.standing.answer is Answer.APPLIED


def test_a_member_that_comes_during_a_rollout_gets_what_is_left_of_the_hold() -> None:
    log = two_clusters()
    before = log.state.effective
    log.move("apples", to="c2")
    assert log.state.pending is not None
    play = Playbook(None)
    play >> news(log.state, hold_ms=1200)
    play >> Hello(3) << Apply(before) << Hold(log.state.pending, 1200)
    play.done()


def test_a_member_that_comes_after_the_hold_ran_out_holds_until_the_rollout_ends() -> None:
    log = two_clusters()
    before = log.state.effective
    log.move("apples", to="c2")
    pending = log.state.pending
    assert pending is not None
    play = Playbook(None)
    play >> news(log.state, hold_ms=0)
    play >> Hello(3) << Apply(before) << Hold(pending, SHORTEST_HOLD_MS)
    play >> news(log.abort(), hold_ms=0) << Release(pending.revision)
    play.done()


def test_a_member_that_holds_waits_for_a_router_that_has_read_of_its_move() -> None:
    log = two_clusters()
    before = log.state
    pending = log.move("apples", to="c2").pending
    assert pending is not None
    play = Playbook(before)
    play >> Hello(3, held_revision=pending.revision)
    play >> news(log.state, hold_ms=700) << Apply(before.effective) << Hold(pending, 1000)
    play >> news(log.switch()) << Switch(pending.revision)
    play.done()


def test_a_member_that_holds_is_told_that_its_move_was_given_up_meanwhile() -> None:
    log = two_clusters()
    before = log.state.effective
    pending = log.move("apples", to="c2").pending
    assert pending is not None
    play = Playbook(log.abort())
    play >> Hello(3, held_revision=pending.revision) << Apply(before) << Release(pending.revision)
    play.done()


def test_a_member_that_holds_is_told_that_its_move_came_into_force_meanwhile() -> None:
    log = two_clusters()
    pending = log.move("apples", to="c2").pending
    assert pending is not None
    play = Playbook(log.switch())
    play >> Hello(3, held_revision=pending.revision) << Apply(log.state.effective)
    play.done()


def test_a_member_that_already_switched_is_not_asked_to_hold_again() -> None:
    log = two_clusters()
    log.move("apples", to="c2")
    play = Playbook(log.state)
    play >> Hello(4)
    play >> news(log.switch()) << Apply(log.state.effective)
    play.done()


def test_one_rollout_after_another_seen_at_once() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> news(log.move("apples", to="c2"))
    first = log.state.pending
    assert first is not None
    play << Hold(first, HOLD_MS)
    log.switch()
    play >> news(log.move("apples", to="c1"))
    second = log.state.pending
    assert second is not None
    play << Switch(4) << Hold(second, HOLD_MS)
    log.abort()
    play >> news(log.rule("bananas", to="c2")) << Release(6) << Apply(log.state.effective)
    play.done()


def test_a_cluster_that_joins_during_a_rollout_is_told_after_it() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> news(log.move("apples", to="c2"))
    assert log.state.pending is not None
    play << Hold(log.state.pending, HOLD_MS)
    play >> news(log.cluster("c3"))
    play >> news(log.switch()) << Switch(4) << Apply(log.state.effective)
    play.done()
    assert "c3" in log.state.effective.clusters


def test_a_member_that_comes_when_a_cluster_has_joined_is_never_led_to_the_older_pending_table() -> None:
    log = two_clusters()
    log.move("apples", to="c2")
    log.cluster("c3")
    play = Playbook(log.state)
    pending, before = log.state.pending, log.state.effective
    assert pending is not None
    assert pending.revision < before.revision
    play >> Hello(3) << Apply(before) << Hold(pending, HOLD_MS)
    play >> applied(before.revision)
    play >> held(4)
    play >> news(log.switch()) << Apply(log.state.effective)
    play.done()
    assert log.state.effective.cluster_of("apples") == "c2"


def test_a_move_that_left_only_its_past_in_the_table_came_into_force() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> news(log.remove("apples", hold=True))
    pending = log.state.pending
    assert pending is not None
    play << Hold(pending, HOLD_MS)
    play >> news(log.switch()) << Switch(4)
    play.done()
    assert not log.state.effective.versions


def test_a_refusal_is_kept_with_its_reason() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.move("apples", to="c2"))
    assert log.state.pending is not None
    play << Hold(log.state.pending, HOLD_MS)
    play >> refused(4, "apples is not on c2")
    play.done()
    assert play.member.standing.answer is Answer.REFUSED
    assert play.member.standing.reason == "apples is not on c2"


def test_a_member_that_let_go_before_the_switch_is_told_the_table_as_a_whole() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.move("apples", to="c2"))
    assert log.state.pending is not None
    play << Hold(log.state.pending, HOLD_MS)
    play >> held(4)
    play >> news(log.switch()) << Switch(4)
    play >> refused(4, "revision 4 is not held here") << Apply(log.state.effective)
    play >> applied(4)
    play.done()
    assert play.member.standing.answer is Answer.APPLIED


def test_a_table_that_is_refused_is_not_told_again() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(0) << Apply(log.state.effective)
    play >> refused(3, "c2 needs security that is not here")
    play >> news(log.instance())
    play >> news(log.rule("bananas", to="c2")) << Apply(log.state.effective)
    play.done()


def test_one_answer_may_stand_for_those_before_it() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> news(log.rule("bananas", to="c2")) << Apply(log.state.effective)
    play >> news(log.rule("cherries", to="c2")) << Apply(log.state.effective)
    play >> applied(5)
    play >> applied(4)
    play.done()
    assert play.member.standing.revision == 5


def test_what_no_data_plane_needs_to_hear_is_not_told() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> news(log.instance())
    play.done()


def test_an_answer_to_no_order_ends_the_stream() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    with pytest.raises(ProtocolError, match="HELD of revision 9, which was not ordered; the last one was 3"):
        play >> held(9)


def test_orders_without_answers_are_bounded() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    with pytest.raises(ProtocolError, match="have no answer"):
        for number in range(MAX_UNANSWERED + 1):
            play >> news(log.rule(f"t{number}", to="c2")) << Apply(log.state.effective)


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("kind", [Hello, News, Answered])
def test_what_is_not_in_the_table_of_transitions_breaks_the_protocol(state: MemberState, kind: type[Message]) -> None:
    if (state, kind) in TRANSITIONS:
        return
    log = two_clusters()
    member = Member("g1", news(log.state))
    member.state = state
    messages: dict[type[Message], Message] = {Hello: Hello(1), News: news(log.state), Answered: applied(1)}
    with pytest.raises(ProtocolError, match=f"while the router waits for {state.value}"):
        member.receive(messages[kind])


def trying(revision: int) -> Answered:
    return Answered(revision, Answer.TRYING, DECIDED + TO_HOLD)


def pending_of(log: DecisionLog) -> RoutingTable:
    assert log.state.pending is not None
    return log.state.pending


def test_a_canary_is_tried_by_who_takes_part_and_then_switched() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.tried("bananas", to="c2", by=("g1",))) << Try(pending_of(log), 100)
    play >> trying(4)
    assert play.member.standing == Standing(4, Answer.TRYING, lag_s=TO_HOLD)
    play >> news(log.switch()) << Switch(4)
    play >> applied(4)
    play.done()
    assert play.member.standing.answer is Answer.APPLIED


def test_a_canary_that_is_given_up_is_released() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.tried("bananas", to="c2")) << Try(pending_of(log), 100)
    play >> trying(4)
    play >> news(log.abort()) << Release(4)
    play.done()
    assert play.member.standing == Standing(3, Answer.APPLIED)


def test_who_does_not_take_part_hears_of_a_canary_when_it_is_for_everybody() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.tried("bananas", to="c2", by=("g2",)))
    play >> news(log.switch()) << Apply(log.state.effective)
    play >> applied(4)
    play.done()


def test_a_cluster_that_changes_while_a_canary_is_tried_is_told_at_once() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.tried("bananas", to="c2")) << Try(pending_of(log), 100)
    play >> trying(4)
    play >> news(log.cluster("c3")) << Apply(log.state.effective) << Try(pending_of(log), 100)
    play >> applied(5)
    play >> trying(4)
    play >> news(log.switch()) << Apply(log.state.effective)
    play.done()


def test_one_that_comes_in_the_middle_of_a_canary_tries_it_too() -> None:
    log = two_clusters()
    log.tried("bananas", to="c2")
    play = Playbook(log.state)
    play >> Hello(0) << Apply(log.state.effective) << Try(pending_of(log), 100)
    play.done()


def test_a_member_that_would_pass_over_conditions_about_clients_is_not_told_the_rule() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3, table_format=0) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.rule("bananas", to="c2", client_id="shop"))
    play.done()
    assert play.member.standing == Standing(4, Answer.REFUSED, TOO_OLD)


def test_a_member_that_would_pass_over_acls_keeps_its_table() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3, table_format=1) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.about_policies(events.Event(acl_mode_set=events.AclModeSet(mode=acls.ACL_MODE_ENFORCE))))
    play.done()
    assert play.member.standing == Standing(4, Answer.REFUSED, TOO_OLD)


def test_acls_that_change_during_a_hold_come_when_the_hold_has_ended() -> None:
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3) << Apply(log.state.effective)
    play >> applied(3)
    play >> news(log.move("apples", to="c2"))
    pending = pending_of(log)
    play << Hold(pending, HOLD_MS)
    play >> news(log.about_policies(events.Event(acl_mode_set=events.AclModeSet(mode=acls.ACL_MODE_ENFORCE))))
    play >> news(log.switch()) << Switch(pending.revision)
    play << Apply(log.state.effective)
    play.done()
    assert log.state.effective.policies.acl_policy is not None


def test_a_log_that_gets_a_part_at_the_cut_is_told_with_the_rule_and_not_behind_it() -> None:
    """A table without the part would show clients the offsets of the new cluster, if only for a moment."""
    log = two_clusters()
    play = Playbook(log.state)
    play >> Hello(3, table_format=STITCH_POLICY.table_format) << Apply(log.state.effective)
    play >> news(log.move("apples", to="c2")) << Hold(pending_of(log), HOLD_MS)
    play >> held(4)
    part = stitches.LogPart(cluster_name="c2", topic="apples", visit=1)
    change = stitches.StitchedLogChange(topic="apples", log=stitches.StitchedLog(topic="apples", parts=[part]))
    cut = events.StitchedLogsChanged(changes=[change])
    play >> news(log.about_policies(events.Event(stitched_logs_changed=cut)))
    play >> news(log.switch()) << Apply(log.state.effective)
    assert log.state.effective.policies.stitch_policy is not None
    assert came_into_force(4, log.state.effective)
    play.done()


def test_a_member_that_would_pass_over_where_a_topic_has_lived_refuses_the_move() -> None:
    log = two_clusters()
    log.move("apples", to="c2")
    play = Playbook(log.state)
    play >> Hello(0, table_format=0) << Apply(log.state.effective)
    play >> applied(3)
    play.done()
    assert play.member.standing == Standing(4, Answer.REFUSED, TOO_OLD)
    play >> news(log.abort())
    play.done()
    assert play.member.standing == Standing(3, Answer.APPLIED)
