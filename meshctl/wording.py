"""How rules, events and members read in sentences and table cells."""

from __future__ import annotations

from mesh.rpc import admin, events, routing
from meshctl.output import count


def match(of: routing.RuleMatch) -> str:
    """ "prefix apples", "topic orders", "regex a.*"."""
    kind = of.WhichOneof("kind")
    if kind is None:
        return "nothing"
    return f"{kind.removeprefix('topic_')} {getattr(of, kind)}"


def rule(spec: routing.RuleSpec) -> str:
    """ "prefix apples -> c1"."""
    return f"{match(spec.match)} -> {spec.target_cluster}"


def short(name: str) -> str:
    """The id in a resource name: "apples" of "rules/apples"."""
    return name.split("/", 1)[-1]


def member_kind(kind: admin.MemberKind.ValueType) -> str:
    return admin.MemberKind.Name(kind).removeprefix("MEMBER_KIND_").lower()


def member_phase(phase: admin.MemberPhase.ValueType) -> str:
    name = admin.MemberPhase.Name(phase).removeprefix("MEMBER_PHASE_").lower()
    return "-" if name == "unspecified" else name


def cluster_state(state: admin.ClusterState.ValueType) -> str:
    name = admin.ClusterState.Name(state).removeprefix("CLUSTER_STATE_").lower()
    return "not asked yet" if name == "unspecified" else name


def event(of: events.Event) -> str:
    """What was decided, as a sentence."""
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
            return changes + (" (held until all gateways switch)" if of.rule_set_changed.needs_hold else "")
        case "rollout_switched":
            return f"revision {of.rollout_switched.revision} in force on all gateways"
        case "rollout_aborted":
            aborted = of.rollout_aborted
            who = f" ({', '.join(aborted.members)})" if aborted.members else ""
            return f"revision {aborted.revision} given up: {aborted.cause}{who}"
        case "consumer_instance_registered":
            instance = of.consumer_instance_registered.instance
            topics = ", ".join(instance.topics) or "nothing yet"
            return f"consumer {short(instance.name)} on {instance.sidecar} reads {topics}"
        case "consumer_instance_removed":
            removed = of.consumer_instance_removed
            return f"consumer {short(removed.name)} removed: {removed.cause}"
        case _:
            return "an event of a kind that this meshctl does not know"


def _change(change: events.RuleChange) -> str:
    match change.WhichOneof("kind"):
        case "created":
            return f"rule {change.created.rule_id} added: {rule(change.created)}"
        case "updated":
            return f"rule {change.updated.rule_id} is now: {rule(change.updated)}"
        case "moved":
            return f"rule {change.moved} moved"
        case "removed":
            return f"rule {change.removed} removed"
        case _:
            return "a change of a kind that this meshctl does not know"


def change_lines(response: admin.RuleChangeResponse, *, dry_run: bool) -> list[str]:
    """What a change of the rules did, or would do."""
    would = "would " if dry_run else ""
    lines = [f"{short(each.name)}: {rule(each.spec)} (place {each.place})" for each in response.rules]
    lines += [
        f"{short(name)}: {would}be removed" if dry_run else f"{short(name)}: removed" for name in response.removed
    ]
    for move in response.moves:
        origin, target = move.from_cluster or "nowhere", move.to_cluster or "nowhere"
        verb = "would move" if dry_run else "moved"
        lines.append(f"topic {move.topic} {verb} from {origin} to {target} ({count(move.partitions, 'partition')})")
    verb = "would be created" if dry_run else "created"
    lines += [f"topic {topic} {verb} on its target" for topic in response.created_topics]
    if not lines:
        return [f"nothing to change; revision {response.revision} stays"]
    if dry_run:
        return [*lines, f"checked only, nothing was changed (revision {response.revision})"]
    held = f", all gateways switched in {response.switch_ms:.0f} ms" if response.switch_ms else ""
    return [*lines, f"revision {response.revision}{held}"]
