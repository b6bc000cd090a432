"""How messages of control read in tables and sentences. No I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from mesh.rpc import admin, routing
from services.console.parts import Cell, Tone

NONE = "-"
SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
STEP = 1024
TONES = {
    Tone.GOOD: "reachable applied done ok success running reading allow enforce switched stable",
    Tone.BAD: "unreachable refused failed failure left_behind breaks deny expired permission_denied dead",
    Tone.WARNING: "held trying paused warning cancelled pending drained draining undecided copying cutting "
    "waiting ending preparing_rebalance completing_rebalance",
}
"""How words of states look."""
_TONE_OF = {word: tone for tone, words in TONES.items() for word in words.split()}


def moment(of: Timestamp) -> str:
    """In UTC, because the console does not know the reader's time zone; "-" when there is none."""
    if not of.ByteSize():
        return NONE
    return of.ToDatetime(tzinfo=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def age(of: Timestamp, now: datetime | None = None) -> str:
    """ "3 s ago", "5 min ago"."""
    if not of.ByteSize():
        return NONE
    seconds = max(0, int(((now or datetime.now(UTC)) - of.ToDatetime(tzinfo=UTC)).total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def count(number: int, noun: str) -> str:
    """ "1 topic", "3 topics"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(number: int) -> str:
    """ "3.4 MiB"."""
    amount = float(number)
    for unit in SIZES[:-1]:
        if amount < STEP:
            return f"{amount:.0f} {unit}" if unit == SIZES[0] else f"{amount:.1f} {unit}"
        amount /= STEP
    return f"{amount:.1f} {SIZES[-1]}"


def word(of: Any, number: int, unsaid: str = NONE) -> str:
    """ "not allowed" of STATE_NOT_ALLOWED: the part of the name that is the value's own."""
    first: str = of.keys()[0]
    try:
        said = of.Name(number).removeprefix(first[: first.rindex("UNSPECIFIED")]).lower()
    except ValueError:
        return f"unknown to this release ({number})"
    return unsaid if said == "unspecified" else said.replace("_", " ")


def toned(text: str, href: str = "") -> Cell:
    """A state: its tone follows from its word."""
    return Cell(text, href, _TONE_OF.get(text.lower().replace(" ", "_"), Tone.PLAIN))


def short(name: str) -> str:
    """ "apples" of "rules/apples"."""
    return name.split("/", 1)[-1]


def match_text(of: routing.RuleMatch) -> str:
    """ "topic prefix apples", "group shop for client id shop-1"."""
    kind = of.WhichOneof("kind")
    if kind is None:
        return "nothing"
    about = kind.replace("_", " ")
    named = "all other topics" if kind == "unmatched_topics" else f"{about} {getattr(of, kind)}"
    return f"{named} for {clients(of.client)}" if of.HasField("client") else named


def clients(of: routing.ClientMatch) -> str:
    """All that is said holds."""
    said = {
        "principal": of.principal,
        "client id": of.client_id,
        "client id prefix": of.client_id_prefix,
        "software": of.software_name,
        "network": " or ".join(of.source_networks),
    }
    return ", ".join(f"{name} {value}" for name, value in said.items() if value)


def decision(spec: routing.RuleSpec) -> str:
    """ "c1 as shop.{topic}"."""
    said = (
        (spec.target_cluster, spec.target_cluster),
        (spec.upstream_topic, f"as {spec.upstream_topic}"),
        (spec.shadow_topics, "with shadow topics"),
        (spec.node_view, f"nodes {word(routing.NodeView, spec.node_view)}"),
    )
    return " ".join(text for is_said, text in said if is_said)


def rule(spec: routing.RuleSpec) -> str:
    return f"{match_text(spec.match)} → {decision(spec)}"


def place(topic: str, cluster: str, name: str) -> str:
    """ "c1", "c1 as shop.orders", "nowhere"."""
    if not cluster:
        return "nowhere"
    return f"{cluster} as {name}" if name and name != topic else cluster


def move(of: admin.TopicMove) -> list[str]:
    """Topic, from, to, partitions."""
    whom = f" for {clients(of.client)}" if of.HasField("client") else ""
    origin, target = place(of.topic, of.from_cluster, of.from_topic), place(of.topic, of.to_cluster, of.to_topic)
    return [of.topic, origin, target + whom, f"{of.partitions:,}"]


EFFECTS = {
    admin.MOVE_EFFECT_KIND_RECORDS_STAY: "records stay behind, and are not copied",
    admin.MOVE_EFFECT_KIND_GOES_ON: "goes on, misses nothing",
    admin.MOVE_EFFECT_KIND_OUT_OF_RANGE: "out of range: its reset policy takes it to the first or the next record",
    admin.MOVE_EFFECT_KIND_READS_AGAIN: "reads some records again",
    admin.MOVE_EFFECT_KIND_SILENT_SKIP: "silently skips records",
}


def effect(of: admin.MoveEffect) -> list[str | Cell]:
    """Topic, group, what happens."""
    text = EFFECTS.get(of.kind, "an effect that this release does not know")
    if of.records:
        text = f"{of.records:,} {text}"
    tone = Tone.BAD if of.kind == admin.MOVE_EFFECT_KIND_SILENT_SKIP else Tone.PLAIN
    return [of.topic, of.group or NONE, Cell(text, tone=tone)]


def actor(of: Any) -> str:
    """ "ci for ada"."""
    return f"{of.actor} for {of.on_behalf_of}" if of.on_behalf_of else str(of.actor)


def command(packed: AnyMessage) -> str:
    """The call of a scheduled change."""
    kinds: tuple[type[Message], ...] = (
        admin.CreateRuleRequest, admin.UpdateRuleRequest, admin.SetRuleRequest, admin.ReorderRuleRequest,
        admin.RemoveRuleRequest, admin.ReplaceRulesRequest, admin.ChangeRulesRequest, admin.RevertRequest,
    )  # fmt: skip
    for kind in kinds:
        if packed.TypeName() == kind.DESCRIPTOR.full_name:
            return edit(kind.FromString(packed.value))
    return "a command that this release does not know"


def edit(request: Any) -> str:
    """ "set topic apples → c2"."""
    match request:
        case admin.CreateRuleRequest():
            return f"add {rule(request.rule)}"
        case admin.UpdateRuleRequest():
            return f"change rule {short(request.name)} to {decision(request.rule)}"
        case admin.SetRuleRequest():
            return f"set {match_text(request.match)} → {request.target_cluster}"
        case admin.ReorderRuleRequest():
            return f"move rule {short(request.name)}"
        case admin.RemoveRuleRequest():
            return f"remove rule {short(request.name)}"
        case admin.ReplaceRulesRequest():
            return f"replace all rules by {count(len(request.rules), 'rule')}"
        case admin.ChangeRulesRequest():
            return count(len(request.edits), "edit")
        case _:
            return "revert the last change" if request.last else f"revert to revision {request.revision}"
