"""The wire bench's own fixtures: the rig, how long and how often is measured, and the baseline."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mesh.routing.policies import Policies
from tests.bench.figures import Sheet, Table
from tests.bench.wire.baseline import Baseline
from tests.bench.wire.guards import allowing_the_bench, quotas_without_a_pause
from tests.bench.wire.programs import NoProgramsError, Programs, programs
from tests.bench.wire.rig import PLAIN, Rig, Variant, rig
from tests.bench.wire.sinks import can_have_tls
from tests.bench.wire.starts import STARTS
from tests.bench.wire.uncounted import made_in
from tests.fixtures.collector import collector

ONE_RULE = Variant("gateway, 1 rule a cluster", {}, rules=2)
RENAMES = Variant("gateway, rules that rename", {}, renames=True)
TRAFFIC_TOLD = Variant("gateway, traffic told", {"HOME_BOOTSTRAP_SERVERS": "{sink}"})
NOT_SHARED = Variant("gateway, no shared connections", {"SHARED_CONNECTIONS": "0"})
UPSTREAM_TLS = Variant("gateway, upstream TLS", {}, upstream_tls=True)


@pytest.fixture(scope="session")
def rounds() -> int:
    """MESH_BENCH_ROUNDS: more than elsewhere, since a run takes a second."""
    return int(os.environ.get("MESH_BENCH_ROUNDS", "5"))


@pytest.fixture(scope="session")
def seconds() -> float:
    """MESH_BENCH_SECONDS: of one run, after its warm-up."""
    return float(os.environ.get("MESH_BENCH_SECONDS", "1"))


@pytest.fixture(scope="session")
def wire_programs(sheet: Sheet) -> Programs:
    try:
        return programs()
    except NoProgramsError as error:
        sheet.add(Table("The wire", ("left out",), [[str(error)]]))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def wire_rig(wire_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The relay and the gateway."""
    with rig(wire_programs, (PLAIN,), tmp_path_factory.mktemp("wire")) as made:
        yield made


@pytest.fixture(scope="module")
def watched_rig(wire_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A gateway that counts nothing, beside those that tell of traffic, and trace. A real collector takes the spans."""
    folder = tmp_path_factory.mktemp("watched")
    with collector(folder) as spans:
        told = TRAFFIC_TOLD.environment
        traced = {"TRACING_ENDPOINT": spans.grpc, "TRACING_RATE": "0.01", **told}
        variants = [
            Variant("counts nothing", {}, sources=made_in(folder / "uncounted"), starts=STARTS),
            Variant("as it comes", {}, starts=STARTS),
            Variant("traffic told", told, starts=STARTS),
            Variant("traffic told, tracing at 1%", traced, starts=STARTS),
        ]
        with rig(wire_programs, variants, folder) as made:
            yield made


@pytest.fixture(scope="module")
def guarded_rig(wire_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A gateway without a policy, beside one that enforces ACLs, one with quotas, and one with both."""
    acl_policy, quota_policy = allowing_the_bench(), quotas_without_a_pause()
    variants = [
        Variant("no policy", {}, starts=STARTS),
        Variant("ACLs", {}, policies=Policies(acl_policy), starts=STARTS),
        Variant("quotas", {}, policies=Policies(quota_policy=quota_policy), starts=STARTS),
        Variant("ACLs and quotas", {}, policies=Policies(acl_policy, quota_policy), starts=STARTS),
    ]
    with rig(wire_programs, variants, tmp_path_factory.mktemp("guarded")) as made:
        yield made


@pytest.fixture(scope="module")
def variants_rig(wire_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """With a gateway for each variant beside them."""
    variants = [
        PLAIN,
        NOT_SHARED,
        ONE_RULE,
        RENAMES,
        TRAFFIC_TOLD,
        *([UPSTREAM_TLS] if can_have_tls() else []),
    ]
    with rig(wire_programs, variants, tmp_path_factory.mktemp("variants")) as made:
        yield made


@pytest.fixture(scope="session")
def baseline(sheet: Sheet) -> Iterator[Baseline]:
    made = Baseline()
    yield made
    if made.now:
        sheet.add(made.table())
        made.keep()
