"""Fresh endpoints to replay against. By hand: `python -m tests.judge.endpoints [--two] RECORDING...`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from judge.replay.recording import read
from judge.replay.replaying import replayed
from judge.replay.specification import Specifications
from judge.replay.verdict import Verdict
from judge.systems.client_jars import client_jars
from mesh.routing import ForwardingRule, NamePrefix, NameRegex, RoutingTable, Subject
from tests.fixtures.clusters import SESSION_MS, KafkaCluster
from tests.integration.gateway.running import Rules, RunningGateway


def one_for_all(clusters: Sequence[str]) -> RoutingTable:
    """The table of a gateway: topics of the client tests lie on the cluster that their name begins with.

    So do the transactions that write to these topics.
    """
    names = [f"c{number}" for number in range(1, len(clusters) + 1)]
    rules = Rules(dict(zip(names, clusters, strict=True)))
    by_prefix = (ForwardingRule(f"of-{name}", NamePrefix(f"{name}-"), name) for name in names)
    writing = (
        ForwardingRule(f"writes-{name}", NamePrefix(f"writes-{name}-", Subject.TRANSACTIONAL_ID), name)
        for name in names
    )
    return rules.put(*by_prefix, *writing, ForwardingRule("others", NameRegex(".*"), names[0]))


@contextmanager
def gateway_before(clusters: Sequence[str], state: Path) -> Iterator[str]:
    gateway = RunningGateway(state, one_for_all(clusters))
    try:
        yield gateway.address
    finally:
        gateway.close()


@contextmanager
def fresh_clusters(count: int, folder: Path) -> Iterator[list[str]]:
    further = folder / "fresh.properties"
    further.write_text(f"broker.session.timeout.ms={SESSION_MS}\nlog.retention.ms=-1\n", encoding="ascii")
    with ExitStack() as stack:
        clusters = [KafkaCluster(f"fresh-{number}", folder / f"fresh-{number}", further) for number in range(count)]
        for cluster in clusters:
            cluster.launch()
            stack.callback(cluster.stop)
        for cluster in clusters:
            cluster.wait_until_it_answers()
        yield [cluster.bootstrap for cluster in clusters]


def main() -> int:
    two = "--two" in sys.argv
    recordings = [Path(each) for each in sys.argv[1:] if not each.startswith("--")]
    specs = Specifications(client_jars())
    total = Verdict()
    with (
        tempfile.TemporaryDirectory() as folder,
        fresh_clusters(3 if two else 2, Path(folder)) as [kafka, *behind],
        gateway_before(behind, Path(folder) / "gateway") as gateway,
    ):
        for path in recordings:
            before = len(total.findings)
            total.add(path.stem, *replayed(specs, read(path), [kafka], [gateway]))
            print(f"{path.stem}: {len(total.findings) - before} differences", flush=True)
    total.write(Path("build/replay"))
    print(total.text())
    return 1 if total.findings else 0


if __name__ == "__main__":
    sys.exit(main())
