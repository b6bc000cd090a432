"""Cycles: operations that would each have to come before the other.

`ww`: the value of the first stands right before that of the second in one log. `wr`: the second reads the first one's
value. `process`: the same process did the second later. `realtime`: the first had ended when the second began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import pairwise

from judge.anomalies.anomaly import Anomaly
from judge.history import History, Kind, Operation, Outcome
from judge.logs import logs_of

WORK = (Kind.SEND, Kind.POLL, Kind.TXN)


class Edge(StrEnum):
    WW = "ww"
    WR = "wr"
    PROCESS = "process"
    REALTIME = "realtime"


Graph = dict[int, dict[int, Edge]]


def g0(history: History) -> Iterator[Anomaly]:
    """* A cycle of writes, in the process's order or in real time. Kafka allows those with a whole transaction."""
    yield from _cycles(history, _edges(history, with_reads=False))


def g1c(history: History) -> Iterator[Anomaly]:
    """* A cycle of writes and reads. Kafka allows those with a whole transaction whose writes follow each other."""
    graph = _edges(history, with_reads=True)
    yield from _cycles(history, graph, needs=Edge.WR)


def _edges(history: History, *, with_reads: bool) -> Graph:
    logs = logs_of(history)
    graph: Graph = defaultdict(dict)

    def edge(before: Operation | None, after: Operation | None, kind: Edge) -> None:
        if before is not None and after is not None and before.index != after.index:
            graph[before.index].setdefault(after.index, kind)

    for log in logs:
        writers = [logs.writer.get(value) for value in log.order]
        for first, second in pairwise(writers):
            edge(first, second, Edge.WW)
        if with_reads:
            for value in log.order:
                for reader in logs.readers.get(value, ()):
                    if reader.kind in WORK and reader.outcome is not Outcome.FAIL:
                        edge(logs.writer.get(value), reader, Edge.WR)
    work = [each for each in history.of_kind(*WORK) if each.outcome is Outcome.OK and (with_reads or any(each.sends()))]
    last: dict[str, Operation] = {}
    for operation in work:
        edge(last.get(operation.process), operation, Edge.PROCESS)
        last[operation.process] = operation
    for before, after in _in_real_time(work):
        edge(before, after, Edge.REALTIME)
    return graph


def _in_real_time(work: list[Operation]) -> Iterator[tuple[Operation, Operation]]:
    """Each that ended before another began. Those that follow from these pairs are left out."""
    frontier: list[Operation] = []
    ended = sorted(work, key=lambda each: each.end)
    next_ended = 0
    for operation in work:
        while next_ended < len(ended) and ended[next_ended].end < operation.start:
            newcomer = ended[next_ended]
            frontier = [each for each in frontier if each.end >= newcomer.start]
            frontier.append(newcomer)
            next_ended += 1
        for before in frontier:
            yield before, operation


def _cycles(history: History, graph: Graph, needs: Edge | None = None) -> Iterator[Anomaly]:
    by_index = {operation.index: operation for operation in history.operations}
    for component in _strongly_connected(graph):
        cycle = _a_cycle(graph, component, needs)
        if not cycle:
            continue
        edges = [graph[one][other] for one, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
        text = " ".join(f"{index} -{kind}->" for index, kind in zip(cycle, edges, strict=True)) + f" {cycle[0]}"
        transactions = any(len(by_index[index].steps) > 1 for index in cycle)
        yield Anomaly("-".join(map(str, sorted(cycle))), text, tuple(cycle), allowed=transactions and Edge.WW in edges)


def _a_cycle(graph: Graph, component: set[int], needs: Edge | None) -> list[int]:
    """A shortest one through some edge; with `needs`, through one of that kind."""
    best: list[int] = []
    for start in sorted(component)[:50]:
        for following, kind in graph[start].items():
            if following in component and (needs is None or kind is needs):
                way = _way(graph, component, following, start)
                if way and (not best or len(way) < len(best)):
                    best = way
    return best


def _way(graph: Graph, component: set[int], start: int, goal: int) -> list[int]:
    came_from: dict[int, int] = {start: start}
    layer = [start]
    while layer and goal not in came_from:
        following = []
        for node in layer:
            for other in graph.get(node, ()):
                if other in component and other not in came_from:
                    came_from[other] = node
                    following.append(other)
        layer = following
    if goal not in came_from:
        return []
    way = [goal]
    while way[-1] != start:
        way.append(came_from[way[-1]])
    return [way[0], *reversed(way[1:])]


def _strongly_connected(graph: Graph) -> Iterable[set[int]]:
    """Tarjan's algorithm without recursion; components of more than one operation."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    for root in list(graph):
        if root in number:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(graph.get(root, {})))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(graph.get(other, {}))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    component: set[int] = set()
                    while node not in component:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.add(member)
                    if len(component) > 1:
                        yield component
