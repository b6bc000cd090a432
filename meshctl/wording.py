"""How rules, events and members read in sentences and table cells."""

from __future__ import annotations

from collections.abc import Sequence

from mesh import durations
from mesh.acls.words import acl_text, mode_word
from mesh.listeners.words import change_text as listener_change_text
from mesh.protection.words import change_text as protection_change_text
from mesh.quotas.words import change_text
from mesh.rehearsals.words import change_text as rehearsal_change_text
from mesh.rpc import admin, events
from mesh.rpc.roles import role_and_bounds, role_word
from mesh.scram_codec import mechanism_word
from mesh.stitches.words import log_change_text
from mesh.tenants.words import change_text as tenant_change_text
from mesh.validation.words import change_text as rule_change_text
from mesh.wording import clients_text, command_text, how_text, rule_text, short, word
from meshctl import instances, record_rules, replays
from meshctl.output import count, length_of, moment

MOST_NAMED = 3
"""ACLs or quotas that the sentence of one event names."""


def member_kind(kind: admin.MemberKind.ValueType) -> str:
    return word(admin.MemberKind, kind)


def member_phase(phase: admin.MemberPhase.ValueType) -> str:
    return word(admin.MemberPhase, phase)


def member_note(member: admin.Member) -> str:
    """Why it refused or is left behind, or how requests end where it tries a canary."""
    if member.phase != admin.MEMBER_PHASE_TRYING:
        return member.phase_reason
    tried, others = member.canary_requests, member.requests
    return f"{tried.failed} of {tried.answered} requests failed; {others.failed} of {others.answered} of the others"


def cluster_state(state: admin.ClusterState.ValueType) -> str:
    return word(admin.ClusterState, state, "not asked yet")


def event(of: events.Event) -> str:
    """The decision, as a sentence."""
    match of.WhichOneof("payload"):
        case "cluster_registered":
            cluster = of.cluster_registered.cluster
            home = ", the home cluster" if cluster.home else ""
            return f"cluster {cluster.spec.cluster_name} registered ({', '.join(cluster.spec.bootstrap_servers)}{home})"
        case "cluster_updated":
            spec = of.cluster_updated.cluster.spec
            return f"cluster {spec.cluster_name} updated ({', '.join(spec.bootstrap_servers)})"
        case "cluster_removed":
            return f"cluster {of.cluster_removed.cluster_name} removed"
        case "rule_set_changed":
            changes = "; ".join(_change(each) for each in of.rule_set_changed.changes)
            if of.rule_set_changed.HasField("canary"):
                return f"{changes} (tried by some clients first)"
            return changes + (" (held until all gateways switch)" if of.rule_set_changed.needs_hold else "")
        case "rollout_switched":
            return f"revision {of.rollout_switched.revision} in force on all gateways"
        case "rollout_aborted":
            aborted = of.rollout_aborted
            who = f" ({', '.join(aborted.members)})" if aborted.members else ""
            return f"revision {aborted.revision} given up: {aborted.cause}{who}"
        case "mesh_frozen":
            return "the mesh is frozen: changes are refused"
        case "mesh_thawed":
            return "the mesh takes changes again"
        case "change_scheduled":
            scheduled = of.change_scheduled
            return (
                f"scheduled as {short(scheduled.name)} for {moment(scheduled.time)}: {command_text(scheduled.command)}"
            )
        case "scheduled_change_ended":
            ended = of.scheduled_change_ended
            return f"scheduled change {short(ended.name)} {_outcome(ended)}"
        case "role_granted":
            return f"{of.role_granted.grant.principal} is {role_and_bounds(of.role_granted.grant)}"
        case "role_revoked":
            taken = of.role_revoked
            what = f"is {role_word(taken.role)} no more" if taken.role else "has no rights any more"
            return f"{taken.principal} {what}"
        case "user_set":
            by = ", ".join(mechanism_word(each.mechanism) for each in of.user_set.mechanisms)
            return f"user {of.user_set.name} logs in by {by}"
        case "user_deleted":
            return f"user {of.user_deleted.name} is deleted"
        case "user_restored":
            return f"user {of.user_restored.name} is back"
        case "acls_created":
            return _some("ACL", "added", [acl_text(each) for each in of.acls_created.acls])
        case "acls_deleted":
            return _some("ACL", "deleted", [acl_text(each) for each in of.acls_deleted.acls])
        case "acl_mode_set":
            return f"ACLs have mode {mode_word(of.acl_mode_set.mode)}"
        case "quotas_changed":
            return _some("quota", "changed", [change_text(each) for each in of.quotas_changed.changes])
        case "validation_rules_changed":
            texts = [rule_change_text(each) for each in of.validation_rules_changed.changes]
            return _some("validation rule", "changed", texts)
        case "protection_rules_changed":
            texts = [protection_change_text(each) for each in of.protection_rules_changed.changes]
            return _some("protection rule", "changed", texts)
        case "log_signed":
            return f"signed with the certificate {of.log_signed.subject}"
        case "tenants_changed":
            return _some("tenant", "changed", [tenant_change_text(each) for each in of.tenants_changed.changes])
        case "listeners_changed":
            return _some("listener", "changed", [listener_change_text(each) for each in of.listeners_changed.changes])
        case "rehearsals_changed":
            texts = [rehearsal_change_text(each) for each in of.rehearsals_changed.changes]
            return _some("rehearsal", "changed", texts)
        case "stitched_logs_changed":
            texts = [log_change_text(each) for each in of.stitched_logs_changed.changes]
            return _some("stitched log", "changed", texts)
        case "topic_owner_set":
            owner = of.topic_owner_set.owner
            return f"topic {of.topic_owner_set.topic} {f'belongs to {owner}' if owner else 'has no owner any more'}"
        case "transaction_end_ordered":
            order = of.transaction_end_ordered
            return f"{'finish' if order.commit else 'abort'} of the transaction of {order.transactional_id} ordered"
        case _:
            told = record_rules.event(of) or instances.event(of) or replays.event(of)
            return told or "an event of a kind that this meshctl does not know"


def _some(noun: str, verb: str, texts: Sequence[str]) -> str:
    """How many, and the first of them."""
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return f"{count(len(texts), noun)} {verb}: {'; '.join(texts[:MOST_NAMED])}{more}"


def _outcome(of: events.ScheduledChangeEnded) -> str:
    match of.outcome:
        case events.SCHEDULE_OUTCOME_DONE:
            return f"made: revision {of.revision}"
        case events.SCHEDULE_OUTCOME_REFUSED:
            return f"refused: {of.problem}"
        case events.SCHEDULE_OUTCOME_MISSED:
            return f"missed: {of.problem}"
        case events.SCHEDULE_OUTCOME_CANCELLED:
            return "cancelled"
        case _:
            return "ended in a way that this meshctl does not know"


def member_state(of: admin.Member) -> str:
    """ "applied", "held", "left behind"."""
    return "left behind" if of.left_behind else member_phase(of.phase)


def _change(change: events.RuleChange) -> str:
    match change.WhichOneof("kind"):
        case "created":
            return f"rule {change.created.rule_id} added: {rule_text(change.created)}"
        case "updated":
            return f"rule {change.updated.rule_id} is now: {rule_text(change.updated)}"
        case "moved":
            return f"rule {change.moved} moved"
        case "removed":
            return f"rule {change.removed} removed"
        case _:
            return "a change of a kind that this meshctl does not know"


def change_lines(response: admin.RuleChangeResponse, *, dry_run: bool) -> list[str]:
    """The effects of a change of the rules, or those it would have."""
    would = "would " if dry_run else ""
    lines = [f"{short(each.name)}: {rule_text(each.spec)} (place {each.place})" for each in response.rules]
    lines += [
        f"{short(name)}: {would}be removed" if dry_run else f"{short(name)}: removed" for name in response.removed
    ]
    for move in response.moves:
        origin = _place(move.topic, move.from_cluster, move.from_topic)
        target = _place(move.topic, move.to_cluster, move.to_topic)
        verb = "would move" if dry_run else "moved"
        whom = f" for {clients_text(move.client)}" if move.HasField("client") else ""
        partitions = count(move.partitions, "partition")
        lines.append(f"topic {move.topic} {verb} from {origin} to {target}{whom} ({partitions})")
    verb = "would be created" if dry_run else "created"
    lines += [f"topic {topic} {verb} on its target" for topic in response.created_topics]
    if not lines:
        return [f"nothing to change; revision {response.revision} stays"]
    if dry_run:
        return [*lines, f"checked only, nothing was changed (revision {response.revision})"]
    switched = durations.in_ms(response.switch_duration) > 0
    held = f", all gateways switched in {length_of(response.switch_duration)}" if switched else ""
    return [*lines, f"revision {response.revision}{held}"]


def topic_move(of: admin.TopicMove) -> str:
    """ "topic orders: c1 -> c2 as shop.orders (3 partitions)"."""
    origin, target = _place(of.topic, of.from_cluster, of.from_topic), _place(of.topic, of.to_cluster, of.to_topic)
    known = f" ({count(of.partitions, 'partition')})" if of.partitions else ""
    return f"topic {of.topic}: {origin} -> {target}{known}"


def _place(topic: str, cluster: str, name: str) -> str:
    if not cluster:
        return "nowhere"
    return f"{cluster} as {name}" if name and name != topic else cluster


_EFFECTS = {
    admin.MOVE_EFFECT_KIND_GOES_ON: "goes on, misses nothing",
    admin.MOVE_EFFECT_KIND_OUT_OF_RANGE: "out of range: its reset policy takes it to the first or the next record",
    admin.MOVE_EFFECT_KIND_READS_AGAIN: "reads again what it has read there",
    admin.MOVE_EFFECT_KIND_SILENT_SKIP: "SILENT SKIP: goes on inside a log that is not empty",
}


def severity(severity: admin.Severity.ValueType) -> str:
    """ "breaks", "warning", "note"."""
    return word(admin.Severity, severity)


def effect(of: admin.MoveEffect) -> str:
    """The effect on the records of a topic that moves, or on a group that reads the topic."""
    if of.kind == admin.MOVE_EFFECT_KIND_RECORDS_STAY:
        return f"{count(of.records, 'record')} {'stays' if of.records == 1 else 'stay'} behind, not copied"
    return _EFFECTS.get(of.kind, "something that this meshctl does not know")


def new_log(of: admin.MoveEffect) -> str:
    """Offsets of the partition's log on the topic's cluster after the move."""
    return f"{of.to_start} to {of.to_end}" if of.to_end > of.to_start else "empty"


def explanation(field: str, name: str, answer: admin.ExplainResponse) -> str:
    """The answer to `explain` in one sentence; `field` is that of ExplainRequest."""
    if field == "topic":
        return _where_topic_lives(answer)
    revision = f"revision {answer.revision}"
    noun = field.replace("_", " ")
    decided = next((tried.rule.spec for tried in answer.tried if tried.matched), None)
    if field == "client_software" and decided is not None:
        return f"{noun} {name} is shown {how_text(decided)} ({revision})"
    if answer.cluster:
        return f"{noun} {name} is coordinated by {answer.cluster} ({revision})"
    return f"no rule decides about {noun} {name} ({revision})"


def _where_topic_lives(answer: admin.ExplainResponse) -> str:
    if not answer.cluster:
        why = "" if any(tried.matched for tried in answer.tried) else ": no rule matches"
        return f"{answer.topic} is not routed{why} (revision {answer.revision})"
    known = count(answer.partitions, "partition") if answer.partitions else "absent there, or not known"
    nth = f", its visit {answer.visit} there" if answer.visit > 1 else ""
    where = _place(answer.topic, answer.cluster, answer.upstream_topic)
    return f"{answer.topic} lives on {where} ({known}{nth}; revision {answer.revision})"
