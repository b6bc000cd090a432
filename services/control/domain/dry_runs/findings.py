"""The problems and surprises that a change of the rules would cause. A dry run reports all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum

from mesh.routing import Place, RoutingTable
from services.control.domain.members.usage import ClientUse, Readers, Unlisted, transaction_home
from services.control.domain.rules.covers import Cover
from services.control.domain.rules.effects import Effect, Fate, OffsetKeepers, skip_of
from services.control.domain.rules.moves import Checked, Move, located, partitions
from services.control.domain.rules.shadows import shadowed_rules


class Severity(IntEnum):
    """How bad a finding is; the higher, the worse."""

    NOTE = 1
    WARNING = 2
    BREAKS = 3
    """The change would be refused, or would break clients."""


class FindingKind(Enum):
    """The subject of a finding, as in the contract."""

    TOPIC_ABSENT = "topic absent"
    FEWER_PARTITIONS = "fewer partitions"
    RETENTION_DIFFERS = "retention differs"
    COMPACTION_DIFFERS = "compaction differs"
    SETTING_DIFFERS = "setting differs"
    TRANSACTION_SPLIT = "transaction split"
    GROUP_SPANS_CLUSTERS = "group spans clusters"
    OFFSETS_STAY_BEHIND = "offsets stay behind"
    SILENT_SKIP = "silent skip"
    RULE_SHADOWED = "rule shadowed"
    REGEX_COVERS = "regex covers"
    UNKNOWN = "unknown"
    TOPIC_UNROUTED = "topic unrouted"
    RECORDS_TOO_LARGE = "records too large"
    KEYS_MISSING = "keys missing"
    KEYS_SKEWED = "keys skewed"
    PROFILE = "profile"
    TRAFFIC = "traffic"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact to know before the change is made."""

    kind: FindingKind
    severity: Severity
    subject: str
    """Topic, group, transactional id, rule, cluster or gateway."""
    text: str


RETENTION = ("retention.ms", "retention.bytes")
COMPACTION = "cleanup.policy"
NOTICED = (
    "max.message.bytes",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "min.insync.replicas",
    "compression.type",
)
"""Settings of topics, besides retention and compaction, that producers and consumers notice."""
COMPARED = frozenset({*RETENTION, COMPACTION, *NOTICED})


Settings = Mapping[Place, Mapping[str, str]]
"""Place of a topic -> setting -> its value there. A place that is absent was not read."""


def of_places(moves: Iterable[Move], checked: Checked, *, create_missing: bool) -> list[Finding]:
    """Topics that would have no place, or a place with too few partitions."""
    found = [
        Finding(
            FindingKind.TOPIC_UNROUTED,
            Severity.BREAKS,
            move.topic,
            f"topic {move.topic!r} ({partitions(move.partitions)} {located(move.topic, move.source)}) would live "
            "nowhere: no rule would match it any more, and clients would be told that it does not exist",
        )
        for move in moves
        if move.target is None
    ]
    for move in checked.absent:
        where = located(move.topic, move.target)
        if create_missing:
            severity, text = Severity.NOTE, "and would be created there with as many"
        else:
            severity, text = Severity.BREAKS, "create it there with as many, or set create_missing_topics"
        fact = f"topic {move.topic!r} ({partitions(move.partitions)} {located(move.topic, move.source)}) does not exist"
        found.append(Finding(FindingKind.TOPIC_ABSENT, severity, move.topic, f"{fact} {where}; {text}"))
    for move, there in checked.narrow:
        found.append(
            Finding(
                FindingKind.FEWER_PARTITIONS,
                Severity.BREAKS,
                move.topic,
                f"topic {move.topic!r} has {partitions(move.partitions)} {located(move.topic, move.source)}, but "
                f"{there} {located(move.topic, move.target)}; add partitions there first",
            )
        )
    return found


def of_settings(moves: Iterable[Move], settings: Settings) -> list[Finding]:
    """Topics for which retention, compaction or another setting would differ on the new cluster."""
    found: list[Finding] = []
    for move in moves:
        if move.target is None or move.source not in settings or move.target not in settings:
            continue
        here, there = settings[move.source], settings[move.target]
        differing = [name for name in sorted(COMPARED) if name in here and name in there and here[name] != there[name]]
        for name in differing:
            kind, severity = _of_setting(name, here[name], there[name])
            text = (
                f"topic {move.topic!r} has {name}={here[name]} {located(move.topic, move.source)}, and "
                f"{name}={there[name]} {located(move.topic, move.target)}"
            )
            found.append(Finding(kind, severity, move.topic, text))
    return found


def _of_setting(name: str, here: str, there: str) -> tuple[FindingKind, Severity]:
    if name == COMPACTION:
        return FindingKind.COMPACTION_DIFFERS, Severity.WARNING
    kind = FindingKind.RETENTION_DIFFERS if name in RETENTION else FindingKind.SETTING_DIFFERS
    return kind, Severity.WARNING if _takes_less(name, here, there) else Severity.NOTE


def _takes_less(name: str, here: str, there: str) -> bool:
    """Whether the new cluster keeps records for less long, or may refuse records that the old cluster takes."""
    if name in (*RETENTION, "max.message.bytes"):
        return _limit(there) < _limit(here)
    return name in ("message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms")


def _limit(text: str) -> float:
    number = int(text)
    return float("inf") if number < 0 else float(number)


def of_readers_fates(effects: Iterable[Effect], *, accepted: bool) -> list[Finding]:
    """Groups that would go on in the middle of a log."""
    severity = Severity.WARNING if accepted else Severity.BREAKS
    return [
        Finding(FindingKind.SILENT_SKIP, severity, effect.group, skip_of(effect))
        for effect in effects
        if effect.fate is Fate.SILENT_SKIP
    ]


NO_SHADOWS = "for the consumer protocol its rule needs shadow_topics"


def of_groups(
    before: RoutingTable, after: RoutingTable, moves: Iterable[Move], readers: Readers, uses: Iterable[ClientUse]
) -> list[Finding]:
    """Groups that would read topics of several clusters, and did not before."""
    moving = {move.topic for move in moves}
    found: list[Finding] = []
    for group, read in _topics_of_groups(before, readers, uses):
        was, is_then = _clusters(before, read), _clusters(after, read)
        if not read & moving or len(is_then) < 2 or is_then == was:
            continue
        rule = after.group_rule(group)
        shadowed = rule is not None and rule.shadow_topics
        places = ", ".join(f"{topic} on {after.cluster_of(topic)}" for topic in sorted(read) if after.cluster_of(topic))
        way_out = (
            "its rule gives it shadow topics, so members of the consumer protocol go on"
            if shadowed
            else "members of the classic protocol go on; "
            + ("for the consumer protocol its home gets shadow topics" if rule is None else NO_SHADOWS)
            + "; share and streams groups read one cluster"
        )
        text = f"group {group!r} would read topics of {len(is_then)} clusters ({places}): {way_out}"
        severity = Severity.NOTE if shadowed else Severity.WARNING
        found.append(Finding(FindingKind.GROUP_SPANS_CLUSTERS, severity, group, text))
    return found


def of_offset_keepers(
    before: RoutingTable, after: RoutingTable, moves: Iterable[Move], readers: Readers, uses: Iterable[ClientUse]
) -> list[Finding]:
    """Groups whose offsets would be kept on other clusters than now, for topics that stay where they are."""
    moving = {move.topic for move in moves}
    keepers, later = OffsetKeepers(before), OffsetKeepers(after)
    found: list[Finding] = []
    for group, read in _topics_of_groups(before, readers, uses):
        here, there = keepers.home_of(group), later.home_of(group)
        left = sorted(
            f"{topic} on {was} instead of {then}"
            for topic in read - moving
            if (was := here or before.cluster_of(topic)) and (then := there or after.cluster_of(topic)) and was != then
        )
        if left:
            text = (
                f"group {group!r} has its committed offsets of {', '.join(left)}: they do not follow, and its members "
                "begin there by their reset policy. Stop the group, and set its offsets after the change"
            )
            found.append(Finding(FindingKind.OFFSETS_STAY_BEHIND, Severity.WARNING, group, text))
    return found


def _topics_of_groups(before: RoutingTable, readers: Readers, uses: Iterable[ClientUse]) -> list[tuple[str, set[str]]]:
    """Each group with the topics that it has offsets of, or that its members use."""
    topics: dict[str, set[str]] = {}
    for cluster, groups in readers.items():
        for group, there in groups.items():
            names = (before.virtual_topic(cluster, each) for each in there)
            topics.setdefault(group, set()).update(name for name in names if name is not None)
    for use in uses:
        for group in use.groups:
            topics.setdefault(group, set()).update(use.topics)
    return sorted(topics.items())


def of_transactions(before: RoutingTable, after: RoutingTable, uses: Iterable[ClientUse]) -> list[Finding]:
    """Transactional ids in use whose topics would be on other clusters than their coordinator."""
    found: dict[str, Finding] = {}
    for use in uses:
        old, new = before.for_client(use.identity), after.for_client(use.identity)
        for transactional_id in sorted(use.transactional_ids):
            foreign = _foreign(new, transactional_id, use.topics)
            if not foreign or foreign == _foreign(old, transactional_id, use.topics):
                continue
            lying = ", ".join(f"{topic} on {new.cluster_of(topic)}" for topic in sorted(foreign))
            home = transaction_home(new, transactional_id)
            fact = f"transactional id {transactional_id!r} has its home on {home!r}; {lying}"
            way_out = (
                "its transactions are atomic over all of them, wait for each, and take more round trips; "
                "a rule about the id brings it to its topics"
            )
            found[transactional_id] = Finding(
                FindingKind.TRANSACTION_SPLIT, Severity.NOTE, transactional_id, f"{fact}: {way_out}"
            )
    return list(found.values())


def of_shadows(before: RoutingTable, after: RoutingTable, *, accepted: bool) -> list[Finding]:
    """Rules that can never match after the change, without those that never matched before."""
    known = shadowed_rules(before.rules)
    severity = Severity.WARNING if accepted else Severity.BREAKS
    return [
        Finding(
            FindingKind.RULE_SHADOWED,
            severity,
            rule.rule_id,
            f"rule {rule.rule_id!r} ({rule.match}) would never match: rule {cover.rule_id!r} ({cover.match}) comes "
            f"first and covers it; place it before {cover.rule_id!r}, or set allow_shadowed",
        )
        for rule, cover in shadowed_rules(after.rules).items()
        if rule not in known
    ]


def of_covers(covers: Iterable[Cover]) -> list[Finding]:
    """Rules that an expression leaves without a topic, among the known topics."""
    return [Finding(FindingKind.REGEX_COVERS, Severity.WARNING, each.behind.rule_id, str(each)) for each in covers]


def of_silence(silent: Mapping[str, str]) -> list[Finding]:
    """Clusters that control could not ask."""
    return [
        Finding(FindingKind.UNKNOWN, Severity.WARNING, cluster, f"{reason}; what the change means there is not known")
        for cluster, reason in sorted(silent.items())
    ]


def of_unlisted(unlisted: Iterable[Unlisted]) -> list[Finding]:
    """Gateways that do not list all of their clients."""
    found: list[Finding] = []
    for each in unlisted:
        listed = f"{each.listed:,} of {each.kinds:,} kinds" if each.kinds else f"{each.listed:,} kinds"
        rest = "" if each.kinds else ", and not all"
        connections = f"{each.connections:,} {'connection' if each.connections == 1 else 'connections'}"
        text = (
            f"gateway {each.gateway!r} lists {listed} of clients{rest}; what the change means for its other clients "
            f"({connections}) is not known"
        )
        found.append(Finding(FindingKind.UNKNOWN, Severity.WARNING, each.gateway, text))
    return found


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """The findings in the order in which a dry run reports them."""
    kinds = list(FindingKind)
    return sorted(findings, key=lambda each: (-each.severity, kinds.index(each.kind), each.subject))


def _clusters(table: RoutingTable, topics: Iterable[str]) -> set[str]:
    return {cluster for topic in topics if (cluster := table.cluster_of(topic)) is not None}


def _foreign(table: RoutingTable, transactional_id: str, topics: Iterable[str]) -> set[str]:
    home = transaction_home(table, transactional_id)
    return {topic for topic in topics if table.cluster_of(topic) not in (None, home)}
