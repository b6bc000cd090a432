"""Users of a topic that would not follow it to another cluster, or that know the offsets of one cluster only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from mesh.record_rules import RecordRule
from mesh.routing import Place
from mesh.rpc import replays
from services.control.domain.errors import NotAllowed
from services.control.domain.records.uses import users_of_topic


def refuse_users(topic: str, way: tuple[Place, Place], rules: Collection[RecordRule]) -> None:
    """Refuses a topic that a mirror or content rule reads or writes, or whose target one writes.

    Such a rule stays with its clusters. It would read no new record, or write behind the end of the old log.
    """
    source, target = way
    uses = [(source, *each) for each in users_of_topic(source, rules)]
    uses += [(target, rule_id, how) for rule_id, how in users_of_topic(target, rules) if how == "writes"]
    for place, rule_id, how in uses:
        raise NotAllowed(
            "TOPIC_HAS_RECORD_RULE",
            f"recordrules/{rule_id}",
            f"record rule {rule_id!r} {how} topic {place.upstream_topic!r} on {place.cluster!r}, and would not follow "
            f"topic {topic!r}; remove the rule, or make it one about another topic or cluster",
        )


def refuse_replays(topic: str, way: tuple[Place, Place], known: Iterable[replays.Replay]) -> None:
    """Refuses a topic that an open replay reads or writes: the replay keeps the offsets of one cluster."""
    places = {(place.cluster, place.upstream_topic) for place in way}
    for replay in known:
        named = {each.topic for each in replay.spec.ranges} | {each.topic for each in replay.places}
        there = {(each.cluster, each.upstream_topic) for each in replay.places}
        if topic in named or places & there:
            text = f"{replay.name} is open and about topic {topic!r}; wait for its end, or cancel it"
            raise NotAllowed("TOPIC_IS_REPLAYED", replay.name, text)


TOO_OLD = "They can't go on at a cluster before Kafka 4.1; delete them, or choose another cluster"
IN_PARTS = (
    "Their state is that of the parts of a stitched log, and can't go on in a copy of the whole log; delete them, or "
    "move the topic with --copy or --stitch"
)


def refuse_shares(topic: str, place: Place, read: Mapping[str, Collection[str]], why: str = TOO_OLD) -> None:
    """Refuses a topic of share groups that can't go on elsewhere. `read`: share group -> its topics at the place."""
    groups = sorted(name for name, topics in read.items() if place.upstream_topic in topics)
    if groups:
        raise NotAllowed(
            "TOPIC_HAS_SHARE_GROUPS",
            f"topics/{topic}",
            f"share groups read topic {topic!r} on {place.cluster!r}: {', '.join(groups[:20])}. {why}",
        )
