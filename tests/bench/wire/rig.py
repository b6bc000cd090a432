"""The machine of the wire bench: load and sinks on one core, who stands in the middle on the other.

All ways stand side by side from the first run to the last, and take turns: idle ones cost next to nothing, and each is
as warm as the other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from mesh.routing import ForwardingRule, Match, NamePrefix, RoutingTable, RuleVersion
from mesh.routing.policies import NO_POLICIES, Policies
from tests.bench.middles import ROOT
from tests.bench.test_look_ups import mixed
from tests.bench.ways import Way, gateway_of, relay
from tests.bench.wire.programs import Programs
from tests.bench.wire.sinks import Sink, sink, tls_sink
from tests.bench.wire.workloads import Workload
from tests.fixtures.ports import free_block

RULES = 10_000
CLUSTERS = {"a": "c1", "b": "c2"}
"""First letter of a topic, and where the table has it."""
WARM_UP_S = 0.25
RUN_BOUND_S = 180.0


@dataclass(frozen=True, slots=True)
class Variant:
    """A gateway with other settings, or another table, than the first one."""

    name: str
    environment: Mapping[str, str]
    rules: int = RULES
    renames: bool = False
    """One rule in ten calls its topics otherwise upstream; never those of the bench."""
    upstream_tls: bool = False
    sources: Path = ROOT
    policies: Policies = NO_POLICIES
    starts: int = 1
    """How many gateways are started with this, each a way by itself."""


PLAIN = Variant("gateway", {})


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of one way gave."""

    seconds: float
    requests: int
    out_bytes: int
    in_bytes: int
    latency_us: Mapping[str, float]
    cpu_s: float
    """Of who stands in the middle."""
    mib_before: float
    mib: float
    """Resident memory there, before the connections and at the end."""
    fairness: float
    """What the connection that got least has got, to what each should have."""
    others: float
    """Cores that were busy with something else."""

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def mb_per_s(self) -> float:
        return max(self.out_bytes, self.in_bytes) / 1e6 / self.seconds

    @property
    def cpu_us_per_request(self) -> float:
        return 1e6 * self.cpu_s / max(1, self.requests)

    @property
    def cpu_ms_per_mb(self) -> float:
        return 1e3 * self.cpu_s / max(1e-6, self.mb_per_s * self.seconds)

    @property
    def cores(self) -> float:
        """That the middle kept busy."""
        return self.cpu_s / self.seconds


class WrongAnswerError(Exception):
    """An answer was not what the load generator asked for: there is no figure for that."""


@dataclass(frozen=True, slots=True)
class Rig:
    programs: Programs
    core: int
    ways: Sequence[Way]
    """The first is the relay."""
    sinks: Sequence[psutil.Process]

    def way(self, name: str) -> Way:
        return next(way for way in self.ways if way.name == name)

    def run(self, way: Way, workload: Workload, seconds: float, warm_up_s: float = WARM_UP_S) -> Run:
        middle = _tree(way.middle)
        counted = {**{f"middle-{p.pid}": p for p in middle}, **{f"sink-{p.pid}": p for p in self.sinks}}
        command = [str(self.programs.load), "--port", way.bootstrap.rpartition(":")[2], "--core", str(self.core)]
        command += ["--seconds", str(seconds), "--warm-up", str(warm_up_s), *workload.arguments()]
        for name, process in counted.items():
            command += ["--count", f"{name}:{process.pid}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_BOUND_S + seconds, check=False)
        told: dict[str, Any] = json.loads(done.stdout or "{}")
        if "seconds" not in told:
            why = told.get("wrong") or f"load ended with {done.returncode}: {done.stderr.strip()[-400:]}"
            raise WrongAnswerError(f"{workload.name} through {way.name}: {why}")
        of_middle = [told["counted"][name] for name in counted if name.startswith("middle")]
        ours = told["own_s"] + sum(each["cpu_s"] for each in told["counted"].values())
        return Run(
            seconds=told["seconds"],
            requests=told["requests"],
            out_bytes=told["out_bytes"],
            in_bytes=told["in_bytes"],
            latency_us=told["latency_us"],
            cpu_s=sum(each["cpu_s"] for each in of_middle),
            mib_before=sum(each["kib_before"] for each in of_middle) / 1024,
            mib=sum(each["kib"] for each in of_middle) / 1024,
            fairness=told["fewest_of_a_connection"] * workload.connections / max(1, told["requests"]),
            others=max(0.0, told["busy_s"] - ours) / told["seconds"],
        )


@contextmanager
def rig(programs: Programs, variants: Sequence[Variant], folder: Path) -> Iterator[Rig]:
    """A relay, and a gateway for each variant."""
    client_core, middle_core = _cores()
    with ExitStack() as stack:
        sinks = [stack.enter_context(sink(programs, client_core, folder / f"sink-{c}.log")) for c in CLUSTERS.values()]
        behind_tls = sinks
        if any(variant.upstream_tls for variant in variants):
            with _on_core(client_core):
                behind_tls = [stack.enter_context(tls_sink(programs, client_core, folder / "tls")), sinks[1]]
        with _on_core(middle_core):  # what is started here stays there
            made = [stack.enter_context(relay(programs, free_block(1), sinks[0].port, folder))]
            for variant in variants:
                table = _table(variant, behind_tls if variant.upstream_tls else sinks)
                environment = {key: value.format(sink=sinks[0].address) for key, value in variant.environment.items()}
                for start in range(variant.starts):
                    home = folder / f"{variant.name.replace(' ', '-').replace(',', '')}-{start}"
                    home.mkdir(exist_ok=True)
                    started = gateway_of(table, home, variant.name, environment, variant.sources)
                    made.append(stack.enter_context(started))
        clusters = {process for each in (*sinks, *behind_tls) for process in each.processes}
        yield Rig(programs, client_core, made, sorted(clusters, key=lambda process: process.pid))


def _table(variant: Variant, sinks: Sequence[Sink]) -> RoutingTable:
    """Rules of every kind, and behind all of them those that the bench's topics go by."""
    made: list[tuple[Match, str, str]] = []
    for number in range(variant.rules - len(CLUSTERS)):
        match, template = mixed(number)
        made.append((match, template if variant.renames else "", f"c{number % len(CLUSTERS) + 1}"))
    made += [(NamePrefix(f"{letter}-"), "", cluster) for letter, cluster in CLUSTERS.items()]
    versions = [
        RuleVersion(ForwardingRule(f"r{rank}", match, cluster, upstream_topic=template), float(rank), 1)
        for rank, (match, template, cluster) in enumerate(made)
    ]
    ordered = enumerate(zip(CLUSTERS.values(), sinks, strict=True), 1)
    clusters = [each.as_cluster(name, ordinal) for ordinal, (name, each) in ordered]
    return RoutingTable(1, clusters, versions, policies=variant.policies)


def _tree(process: psutil.Process | None) -> list[psutil.Process]:
    """With its workers."""
    return [] if process is None else [process, *process.children(recursive=True)]


def _cores() -> tuple[int, int]:
    """For load and sinks, and for the middle: the same one, where there is no other."""
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else [0]
    return cores[0], cores[1 % len(cores)]


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    if sys.platform != "linux":
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
