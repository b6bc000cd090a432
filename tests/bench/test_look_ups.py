"""How long a routing table of 10,000 rules takes to tell where a topic lives, and what clients call it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from mesh.routing import ExactName, ForwardingRule, NamePrefix, NameRegex, RoutingTable, RuleVersion, UpstreamCluster

RULES = 10_000
TOPICS = 1_000

Make = Callable[[int], ForwardingRule]
KINDS: dict[str, tuple[str, Make]] = {
    "exact names": ("t-{}", lambda n: ForwardingRule(f"r{n}", ExactName(f"t-{n}"), "c1")),
    "prefixes": ("t-{}.a", lambda n: ForwardingRule(f"r{n}", NamePrefix(f"t-{n}."), "c1")),
    "expressions that begin with text": ("t-{}-a", lambda n: ForwardingRule(f"r{n}", NameRegex(f"t-{n}-.+"), "c1")),
    "exact names, renamed": (
        "t-{}",
        lambda n: ForwardingRule(f"r{n}", ExactName(f"t-{n}"), "c1", upstream_topic="x.{topic}"),
    ),
    "prefixes, renamed": (
        "t-{}.a",
        lambda n: ForwardingRule(f"r{n}", NamePrefix(f"t-{n}."), "c1", upstream_topic="x.{topic}"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_look_ups(kind: str) -> None:
    name, make = KINDS[kind]
    versions = [RuleVersion(make(number), float(number), 1) for number in range(RULES)]
    table = RoutingTable(1, [UpstreamCluster("c1", ("a:1",), 1)], versions)
    began = time.perf_counter()
    table.virtual_topic("c1", "another")
    made = time.perf_counter() - began
    topics = [name.format(number * RULES // TOPICS) for number in range(TOPICS)]

    def per_topic(ask: Callable[[str], object]) -> float:
        began = time.perf_counter()
        for topic in topics:
            assert ask(topic) is not None
        return 1e6 * (time.perf_counter() - began) / TOPICS

    first, again = per_topic(table.route), per_topic(table.route)
    there = {topic: route.upstream_topic for topic in topics if (route := table.route(topic)) is not None}
    back = per_topic(lambda topic: table.virtual_topic("c1", there[topic]))
    print(
        f"\n{RULES:,} rules, {kind:<33} route {first:6.1f} us, again {again:5.2f} us, back {back:6.1f} us; "
        f"first look-up of a table {1000 * made:.0f} ms"
    )
