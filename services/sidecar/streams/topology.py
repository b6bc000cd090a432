"""How a topology is written: streams and tables, and what is made of them.

    topology = Topology("spending")
    orders: Stream[str, Order] = topology.stream("orders")
    customers: Table[str, Customer] = topology.table("customers")
    orders.join(customers, lambda order, customer: {**order, "city": customer["city"]}).to("orders-with-cities")

Each call makes an operator and gives what comes out of it, so a stream may be used several times. Functions get keys
and values as their formats have them in JSON; they must not change what they are given, and should do no I/O: the
backend is asked with `backend`. What a topology needs for itself (repartitions, changelogs) has names that are made of
its own, of its stores' and of its repartitions': as long as these stay, a new definition goes on where the old one was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, overload

from services.sidecar.formats import Format
from services.sidecar.producing.records import SchemaChoice
from services.sidecar.streams.operators import (
    Aggregate,
    Filter,
    FlatMap,
    Hook,
    Join,
    Operator,
    Remember,
    Sink,
    Source,
    WindowedAggregate,
)
from services.sidecar.streams.plan import Plan, parts_of
from services.sidecar.streams.records import LATEST, OnError, StoreSpec, Target, TopologyError, Tumbling, Windowed

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Topology:
    """A graph of operators under a name. TopologyError when something does not fit."""

    def __init__(self, name: str, *, on_error: OnError | None = None) -> None:
        """`on_error`: what happens when a function raises, if it is not as the sidecar's settings say."""
        self.name = _checked(name, "a topology")
        self._on_error = on_error
        self._sources: dict[str, Source] = {}
        self._stores: set[str] = set()

    def stream(
        self,
        topic: str,
        *,
        key: Format = Format.STRING,
        value: Format = Format.JSON,
        time: Callable[[Any], int] | None = None,
    ) -> Stream[Any, Any]:
        """Records of a topic. `time`: their event time by their values, if it is not Kafka's timestamp."""
        return Stream(self, self._source(Source(topic, key, value, time=time)), key)

    def table(
        self, topic: str, *, store: str = "", key: Format = Format.STRING, value: Format = Format.JSON
    ) -> Table[Any, Any]:
        """The last value of each key of a topic, for joins."""
        source = self._source(Source(topic, key, value, is_table=True))
        return Table(self, _then(source, Remember(self.store(store or topic))), key)

    def plan(self, application: str) -> Plan:
        """Ready to run as part of an application. TopologyError when it cannot."""
        if not self._sources:
            raise TopologyError(f"Topology {self.name!r} reads nothing: begin with stream() or table()")
        prefix = f"{application}-{self.name}-"
        parts = parts_of(self._sources.values(), prefix)
        plan = Plan(self.name, application, parts, self._on_error)
        for target in plan.targets:
            if not target.is_internal and target.topic in self._sources:
                raise TopologyError(
                    f"Topology {self.name!r} reads {target.topic!r} and writes it: it would read its own records again"
                )
        return plan

    # for what is made of streams and tables

    def internal(self, topic: str, key: Format, partitions: int | None) -> Source:
        """A topic that the topology makes for itself."""
        return self._source(Source(topic, key, Format.JSON, partitions=partitions, is_internal=True))

    def store(self, name: str, window: Tumbling | None = None) -> StoreSpec:
        """A store that nobody else has."""
        _checked(name, "a store")
        if name in self._stores:
            raise TopologyError(f"Topology {self.name!r} has two stores called {name!r}")
        self._stores.add(name)
        return StoreSpec(name, window)

    def _source(self, source: Source) -> Source:
        if source.topic in self._sources:
            raise TopologyError(
                f"Topology {self.name!r} reads {source.topic!r} twice: keep what stream() or table() gave, and use it "
                "again"
            )
        self._sources[source.topic] = source
        return source


class Stream(Generic[K, V]):
    """Records, one after the other."""

    def __init__(self, topology: Topology, last: Operator, key_format: Format, *, is_rekeyed: bool = False) -> None:
        self._topology = topology
        self._last = last
        self._key_format = key_format
        self._is_rekeyed = is_rekeyed
        """Whether keys may be others than those that the records were partitioned by."""

    def filter(self, wanted: Callable[[K, V], bool]) -> Stream[K, V]:
        """Those that a predicate wants."""
        return self._then(Filter("filter", wanted))

    def map(self, function: Callable[[K, V], tuple[K2, V2]]) -> Stream[K2, V2]:
        """One record for each, with a key and a value of its own."""
        return self._then(FlatMap("map", lambda key, value: (function(key, value),)), is_rekeyed=True)

    def map_values(self, function: Callable[[V], V2]) -> Stream[K, V2]:
        """One record for each, with the same key: what is partitioned by it stays so."""
        return self._then(FlatMap("map_values", lambda key, value: ((key, function(value)),)))

    def flat_map(self, function: Callable[[K, V], Iterable[tuple[K2, V2]]]) -> Stream[K2, V2]:
        """Any number of records for each."""
        return self._then(FlatMap("flat_map", function), is_rekeyed=True)

    def branch(self, *wanted: Callable[[K, V], bool]) -> tuple[Stream[K, V], ...]:
        """A stream for each predicate: a record goes to the first that wants it, and nowhere if none does."""
        return tuple(
            self._then(Filter(f"branch {index + 1}", _first_of(wanted[:index], one)))
            for index, one in enumerate(wanted)
        )

    def join(self, table: Table[K, T], joiner: Callable[[V, T], V2], *, left: bool = False) -> Stream[K, V2]:
        """Each record with what a table has for its key by then; others are left out, or come with None (`left`).

        Their topics have the same number of partitions, and keys of the same format.
        """
        if table.topology is not self._topology:
            raise TopologyError(f"{self._name} joins store {table.store.name!r} of another topology")
        if self._is_rekeyed:
            raise TopologyError(
                f"{self._name} joins {table.store.name!r} by keys that map, flat_map or group made: its records are in "
                "partitions of their old keys; call repartition() before join()"
            )
        if self._key_format is not table.key_format:
            raise TopologyError(
                f"{self._name} has {self._key_format.label} keys and {table.store.name!r} has {table.key_format.label} "
                "keys: equal keys would be in different partitions; read both in one format"
            )
        operator = Join(f"join with {table.store.name}", table.store, joiner, is_left=left)
        return self._then(operator)

    @overload
    def repartition(self, name: str, *, key: Format = Format.STRING, partitions: int | None = None) -> Stream[K, V]: ...

    @overload
    def repartition(
        self, name: str, by: Callable[[K, V], K2], *, key: Format = Format.STRING, partitions: int | None = None
    ) -> Stream[K2, V]: ...

    def repartition(
        self,
        name: str,
        by: Callable[[K, V], Any] | None = None,
        *,
        key: Format = Format.STRING,
        partitions: int | None = None,
    ) -> Stream[Any, V]:
        """The records by another key, through a topic of the topology's own; `by` None: by the key that they have."""
        return Stream(self._topology, self._through(name, by, key, partitions), key)

    @overload
    def group(self, *, key: Format = Format.STRING) -> Grouped[K, V]: ...

    @overload
    def group(self, by: Callable[[K, V], K2], *, key: Format = Format.STRING) -> Grouped[K2, V]: ...

    def group(self, by: Callable[[K, V], Any] | None = None, *, key: Format = Format.STRING) -> Grouped[Any, V]:
        """The records of each key together, for what is made of all of them. With other keys than those that they were
        written with, they go through a topic of the topology's own; `key` is the format of keys there.
        """

        def grouped(store: str) -> tuple[Operator, Format]:
            if by is None and not self._is_rekeyed:
                return self._last, self._key_format
            return self._through(store, by, key, None), key

        return Grouped(self._topology, grouped)

    def backend(self, path: str = "") -> Stream[K, Any]:
        """Asks the backend for each record; what it answers goes on: the record, another, several or none.

        It sees all records of a round at once, in their order. `path` empty: the usual one.
        """
        return self._then(Hook(f"backend {path}".strip(), path), is_rekeyed=True)

    def to(
        self,
        topic: str,
        *,
        key: Format = Format.STRING,
        value: Format = Format.JSON,
        key_schema: SchemaChoice = LATEST,
        value_schema: SchemaChoice = LATEST,
    ) -> None:
        """Writes them to a topic. Formats with schemas take the latest of the topic's subject, or the one given."""
        _then(self._last, Sink(Target(topic, key, value, key_schema, value_schema)))

    @property
    def _name(self) -> str:
        return f"Topology {self._topology.name!r}: the stream after {self._last.label!r}"

    def _then(self, operator: Operator, *, is_rekeyed: bool = False) -> Stream[Any, Any]:
        _then(self._last, operator)
        return Stream(self._topology, operator, self._key_format, is_rekeyed=is_rekeyed or self._is_rekeyed)

    def _through(
        self, name: str, by: Callable[[Any, Any], Any] | None, key: Format, partitions: int | None
    ) -> Operator:
        if key.kind is not None:
            raise TopologyError(f"{self._name}: keys of {name!r} cannot be {key.label}, which has schemas; take json")
        topic = f"{_checked(name, 'a repartition')}-repartition"
        last = self._last
        if by is not None:
            last = _then(last, FlatMap(f"key of {name}", lambda key, value: ((by(key, value), value),)))
        _then(last, Sink(Target(topic, key, Format.JSON, is_internal=True)))
        return self._topology.internal(topic, key, partitions)


class Grouped(Generic[K, V]):
    """Records by key, before it is said what is made of them."""

    def __init__(self, topology: Topology, grouped: Callable[[str], tuple[Operator, Format]]) -> None:
        self._topology = topology
        self._grouped = grouped

    def aggregate(self, initial: Callable[[], T], add: Callable[[K, V, T], T | None], *, store: str) -> Table[K, T]:
        """One value for each key, kept in a store. `add` gives the new one; None removes it."""
        last, key_format = self._grouped(store)
        return Table(self._topology, _then(last, Aggregate(self._topology.store(store), initial, add)), key_format)

    def count(self, *, store: str) -> Table[K, int]:
        """How many records of each key there were."""
        return self.aggregate(int, _one_more, store=store)

    def windows(self, window: Tumbling) -> GroupedWindows[K, V]:
        """By windows of event time, too."""
        return GroupedWindows(self._topology, self._grouped, window)


class GroupedWindows(Generic[K, V]):
    """Records by key and window."""

    def __init__(self, topology: Topology, grouped: Callable[[str], tuple[Operator, Format]], window: Tumbling) -> None:
        self._topology = topology
        self._grouped = grouped
        self._window = window

    def aggregate(
        self, initial: Callable[[], T], add: Callable[[K, V, T], T | None], *, store: str
    ) -> WindowedTable[K, T]:
        """One value for each key and window. Records that come after a window's grace are left out, and counted."""
        last, key_format = self._grouped(store)
        spec = self._topology.store(store, self._window)
        operator = _then(last, WindowedAggregate(spec, self._window, initial, add))
        return WindowedTable(self._topology, operator, key_format)

    def count(self, *, store: str) -> WindowedTable[K, int]:
        return self.aggregate(int, _one_more, store=store)


class Table(Generic[K, V]):
    """The last value of each key."""

    def __init__(self, topology: Topology, last: Operator, key_format: Format) -> None:
        assert last.store is not None
        self.topology = topology
        self.store = last.store
        self.key_format = key_format
        self._last = last

    def updates(self) -> Stream[K, V]:
        """Each new value."""
        return Stream(self.topology, self._last, self.key_format)


class WindowedTable(Generic[K, V]):
    """A value for each key and window."""

    def __init__(self, topology: Topology, last: WindowedAggregate, key_format: Format) -> None:
        self._topology = topology
        self._last = last
        self._key_format = key_format

    def updates(self) -> Stream[K, Windowed[V]]:
        """Each new value."""
        return Stream(self._topology, self._last, self._key_format)

    def closed(self) -> Stream[K, Windowed[V]]:
        """Each value once: when an event shows that its window takes no more records."""
        return Stream(self._topology, self._last.closed, self._key_format)


O = TypeVar("O", bound=Operator)  # noqa: E741


def _then(last: Operator, operator: O) -> O:
    last.following.append(operator)
    return operator


def _first_of(earlier: tuple[Callable[[K, V], bool], ...], wanted: Callable[[K, V], bool]) -> Callable[[K, V], bool]:
    return lambda key, value: not any(one(key, value) for one in earlier) and wanted(key, value)


def _one_more(key: object, value: object, count: int) -> int:
    return count + 1


def _checked(name: str, what: str) -> str:
    """Names are parts of names of topics and files."""
    if not _NAME.fullmatch(name):
        raise TopologyError(f"{name!r} cannot be the name of {what}: letters, digits, '.', '_' and '-', 100 at most")
    return name
