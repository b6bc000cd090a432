"""The classes to write a topology with: streams, tables, and their operators.

    topology = Topology("spending")
    orders: Stream[str, Order] = topology.stream("orders")
    customers: Table[str, Customer] = topology.table("customers")
    orders.join(customers, lambda order, customer: {**order, "city": customer["city"]}).to("orders-with-cities")

Each call makes an operator and returns its output, so a stream may be used several times. Functions get keys and values
as JSON values of their formats. Functions must not change their arguments, and should do no I/O: use `backend` to ask
the backend. The names of internal topics (repartitions, changelogs) are made of the names of the topology, its stores
and its repartitions. If these names stay, a new definition continues where the old definition ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, overload

from services.sidecar.formats import Format
from services.sidecar.producing.produce_request import SchemaChoice
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
    """A graph of operators under a name. TopologyError when parts do not fit together."""

    def __init__(self, name: str, *, on_error: OnError | None = None) -> None:
        """`on_error`: the handling of a record for which a function raises; None for that of the sidecar's settings."""
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
        """The records of a topic. `time` computes the event time from the value; by default it is Kafka's timestamp."""
        return Stream(self, self._source(Source(topic, key, value, time=time)), key)

    def table(
        self, topic: str, *, store: str = "", key: Format = Format.STRING, value: Format = Format.JSON
    ) -> Table[Any, Any]:
        """The last value of each key of a topic, for joins."""
        source = self._source(Source(topic, key, value, is_table=True))
        return Table(self, _then(source, Remember(self.store(store or topic))), key)

    def plan(self, application: str) -> Plan:
        """The topology, ready to run as part of an application. TopologyError when it cannot run."""
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

    # for streams and tables

    def internal(self, topic: str, key: Format, partitions: int | None) -> Source:
        """An internal topic of the topology."""
        return self._source(Source(topic, key, Format.JSON, partitions=partitions, is_internal=True))

    def store(self, name: str, window: Tumbling | None = None) -> StoreSpec:
        """A store with a name that no other store has."""
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
        """Whether keys may differ from the keys that the records were partitioned by."""

    def filter(self, wanted: Callable[[K, V], bool]) -> Stream[K, V]:
        """The records that a predicate accepts."""
        return self._then(Filter("filter", wanted))

    def map(self, function: Callable[[K, V], tuple[K2, V2]]) -> Stream[K2, V2]:
        """One record for each, with a key and a value of its own."""
        return self._then(FlatMap("map", lambda key, value: (function(key, value),)), is_rekeyed=True)

    def map_values(self, function: Callable[[V], V2]) -> Stream[K, V2]:
        """One record for each record, with the same key, so the partitioning stays."""
        return self._then(FlatMap("map_values", lambda key, value: ((key, function(value)),)))

    def flat_map(self, function: Callable[[K, V], Iterable[tuple[K2, V2]]]) -> Stream[K2, V2]:
        """Any number of records for each record."""
        return self._then(FlatMap("flat_map", function), is_rekeyed=True)

    def branch(self, *wanted: Callable[[K, V], bool]) -> tuple[Stream[K, V], ...]:
        """A stream for each predicate. A record goes to the first predicate that accepts it, or is left out."""
        return tuple(
            self._then(Filter(f"branch {index + 1}", _first_of(wanted[:index], one)))
            for index, one in enumerate(wanted)
        )

    def join(self, table: Table[K, T], joiner: Callable[[V, T], V2], *, left: bool = False) -> Stream[K, V2]:
        """Each record with the table's present value for its key. A record without a value is left out, or comes with
        None (`left`).

        The topics of both sides have the same number of partitions, and keys of the same format.
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
        """The records by another key, through an internal topic; without `by`, the records keep their keys."""
        return Stream(self._topology, self._through(name, by, key, partitions), key)

    @overload
    def group(self, *, key: Format = Format.STRING) -> Grouped[K, V]: ...

    @overload
    def group(self, by: Callable[[K, V], K2], *, key: Format = Format.STRING) -> Grouped[K2, V]: ...

    def group(self, by: Callable[[K, V], Any] | None = None, *, key: Format = Format.STRING) -> Grouped[Any, V]:
        """The records grouped by key, for aggregation. Records with changed keys go through an internal topic; `key` is
        the format of keys there.
        """

        def grouped(store: str) -> tuple[Operator, Format]:
            if by is None and not self._is_rekeyed:
                return self._last, self._key_format
            return self._through(store, by, key, None), key

        return Grouped(self._topology, grouped)

    def backend(self, path: str = "") -> Stream[K, Any]:
        """Asks the backend for each record. The records of the answer go on: the record, another, several or none.

        The backend sees all records of a round at once, in their order. An empty `path` means the usual path.
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
        """Writes the records to a topic. A format with schemas uses the given schema, or the latest of the subject."""
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
    """Records grouped by key, before an aggregation is chosen."""

    def __init__(self, topology: Topology, grouped: Callable[[str], tuple[Operator, Format]]) -> None:
        self._topology = topology
        self._grouped = grouped

    def aggregate(self, initial: Callable[[], T], add: Callable[[K, V, T], T | None], *, store: str) -> Table[K, T]:
        """One value for each key, kept in a store. `add` returns the new value; None removes the value."""
        last, key_format = self._grouped(store)
        return Table(self._topology, _then(last, Aggregate(self._topology.store(store), initial, add)), key_format)

    def count(self, *, store: str) -> Table[K, int]:
        """The number of records of each key."""
        return self.aggregate(int, _one_more, store=store)

    def windows(self, window: Tumbling) -> GroupedWindows[K, V]:
        """Groups the records by windows of event time too."""
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
        """One value for each key and window. A record after a window's grace is left out, and counted."""
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
    """Checks a name, which becomes a part of names of topics and files."""
    if not _NAME.fullmatch(name):
        raise TopologyError(f"{name!r} cannot be the name of {what}: letters, digits, '.', '_' and '-', 100 at most")
    return name
