"""A topology that is ready to run: its parts, and its internal topics.

A part has the operators that are connected without a topic in between; records go from one part to the next through an
internal topic. All sources of a part have the same number of partitions: partition 3 of the part is partition 3 of each
of its topics, and one *task* has them all. The topic that was declared first leads: the worker that gets a partition of
that topic from the group has the task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.sidecar.streams.operators import Hook, Operator, Sink, Source
from services.sidecar.streams.records import OnError, StoreSpec, Target, TopologyError


@dataclass(frozen=True, slots=True)
class Part:
    """Operators that run together."""

    sources: Mapping[str, Source]
    """The sources by topic, in the order of declaration."""
    stores: Mapping[str, StoreSpec]
    hooks: tuple[Hook, ...]
    """The hooks; a hook comes after the hooks that it depends on."""
    targets: tuple[Target, ...]

    @property
    def lead(self) -> str:
        return next(iter(self.sources))

    @property
    def tables(self) -> frozenset[str]:
        """Topics that are read to their end before the other topics begin."""
        return frozenset(topic for topic, source in self.sources.items() if source.is_table)


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole topology, with its names in Kafka."""

    name: str
    application: str
    parts: tuple[Part, ...]
    on_error: OnError | None
    """The handling of errors, if the topology sets it."""

    @property
    def group(self) -> str:
        return f"{self.application}-{self.name}"

    def changelog(self, store: str) -> str:
        """The changelog topic of a store."""
        return f"{self.group}-{store}-changelog"

    def topic_of(self, target: Target) -> str:
        """The name of the topic for this target."""
        return f"{self.group}-{target.topic}" if target.is_internal else target.topic

    @property
    def stores(self) -> dict[str, StoreSpec]:
        return {name: spec for part in self.parts for name, spec in part.stores.items()}

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(source for part in self.parts for source in part.sources.values())

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(target for part in self.parts for target in part.targets)

    def led_by(self, topic: str) -> Part:
        return next(part for part in self.parts if part.lead == topic)

    def with_store(self, store: str) -> Part | None:
        return next((part for part in self.parts if store in part.stores), None)

    def replaceable_by(self, other: Plan) -> None:
        """Checks that a new definition may continue with this plan's state. TopologyError has the names and reason."""
        for name, spec in self.stores.items():
            new = other.stores.get(name)
            if new is not None and new.shape != spec.shape:
                raise TopologyError(
                    f"Topology {self.name!r}: store {name!r} has {spec.shape}, and the new definition wants "
                    f"{new.shape}; give that store another name"
                )
        before = {topic: part for part in self.parts for topic in part.sources}
        for part in other.parts:
            for name in part.stores.keys() & self.stores.keys():
                was = self.with_store(name)
                known = was.sources.keys() if was is not None else frozenset()
                if not known & part.sources.keys():
                    raise TopologyError(
                        f"Topology {self.name!r}: store {name!r} is fed by {_listed(known)}, and by "
                        f"{_listed(part.sources)} in the new definition: its entries would be in other partitions; "
                        "give that store another name"
                    )
        gone = {topic for topic, part in before.items() if part.sources[topic].is_internal}
        gone = gone.difference(*(part.sources for part in other.parts))
        for part in other.parts:
            leads = {before[topic].lead for topic in part.sources if topic in before}
            if leads and leads != {part.lead}:
                raise TopologyError(
                    f"Topology {self.name!r}: the partitions of {part.lead!r} would divide {_listed(part.sources)} "
                    f"among instances; today {_listed(leads)} does. Instances would read records twice. Declare "
                    f"{_listed(leads)} first, or run the new definition under another name"
                )
        if gone:
            raise TopologyError(
                f"Topology {self.name!r}: nothing reads {_listed(gone)} in the new definition, and what is in it would "
                "be lost; keep the names of repartitions, or run the new definition under another name"
            )


def parts_of(sources: Iterable[Source], prefix: str) -> tuple[Part, ...]:
    """The parts: sources that share operators, or a store. `prefix`: the prefix of internal topics."""
    reached = {source: _reached(source) for source in sources}
    declared = list(reached)
    groups: list[tuple[list[Source], dict[Operator, None]]] = []
    for source, operators in reached.items():
        mine, others = ([source], dict(operators)), []
        stores = _stores(operators)
        for group in groups:
            if group[1].keys() & operators.keys() or _stores(group[1]).keys() & stores.keys():
                mine = ([*group[0], *mine[0]], {**group[1], **mine[1]})
                stores = _stores(mine[1])
            else:
                others.append(group)
        groups = [*others, mine]
    return tuple(_part(sorted(mine, key=declared.index), operators, prefix) for mine, operators in groups)


def check_partitions(plan: Plan, counts: Mapping[str, int]) -> None:
    """Checks that the sources of each part have the same number of partitions. TopologyError names the others."""
    for part in plan.parts:
        known = {topic: counts[topic] for topic in sorted(part.sources) if topic in counts}
        if len(set(known.values())) > 1:
            said = ", ".join(f"{topic} has {count}" for topic, count in known.items())
            raise TopologyError(
                f"Topology {plan.name!r} joins topics that are not split alike: {said} partitions; make them equal, or "
                "write one through repartition(partitions=...) first"
            )


def _reached(source: Source) -> dict[Operator, None]:
    """All operators after a source; an operator comes after the operators that it depends on."""
    order: list[Operator] = []
    seen: set[Operator] = set()

    def visit(operator: Operator) -> None:
        if operator in seen:
            return
        seen.add(operator)
        for following in reversed(tuple(operator.reaches)):
            visit(following)
        order.append(operator)

    visit(source)
    return dict.fromkeys(reversed(order))


def _stores(operators: Iterable[Operator]) -> dict[str, StoreSpec]:
    return {one.store.name: one.store for one in operators if one.store is not None}


def _part(sources: list[Source], operators: Mapping[Operator, None], prefix: str) -> Part:
    targets = {one.target: None for one in operators if isinstance(one, Sink)}
    return Part(
        sources={prefix + source.topic if source.is_internal else source.topic: source for source in sources},
        stores=_stores(operators),
        hooks=tuple(one for one in operators if isinstance(one, Hook)),
        targets=tuple(targets),
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "nothing"
