"""One /metrics for all workers."""

import pickle
import socket
import threading
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from mesh.exposition.protobuf import written
from services.gateway.counting import Histograms
from services.gateway.workers.exposition import WorkersCollector, answered
from services.gateway.workers.words import LENGTH
from tests.fixtures.exposition import families_in


def registry(requests: int, connections: int) -> CollectorRegistry:
    found = CollectorRegistry()
    Counter("requests", "Requests.", ["api"], registry=found).labels("Produce").inc(requests)
    Gauge("connections", "Connections.", registry=found).set(connections)
    return found


def telling(of: CollectorRegistry, *, to_the_end: bool = True) -> Callable[[], socket.socket]:
    """A worker that answers."""

    def ask() -> socket.socket:
        ours, theirs = socket.socketpair()

        def tell() -> None:
            with theirs:
                for family in of.collect():
                    told = pickle.dumps(family)
                    theirs.sendall(LENGTH.pack(len(told)) + told)
                if to_the_end:
                    theirs.sendall(LENGTH.pack(0))

        threading.Thread(target=tell, daemon=True).start()
        return ours

    return ask


def shown(*workers: Callable[[], socket.socket | None]) -> dict[tuple[str, str], float]:
    """Series by name and worker, as a scraper reads them."""
    own = CollectorRegistry()
    Gauge("connections", "Connections.", registry=own).set(100)
    exposed = CollectorRegistry()
    exposed.register(WorkersCollector(own, lambda: dict(enumerate(workers, start=1))))
    text = generate_latest(exposed).decode()
    assert text.count("# TYPE connections gauge") == 1
    families = text_string_to_metric_families(text)
    return {
        (sample.name, sample.labels.get("worker", "")): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_each_workers_series_have_its_number() -> None:
    assert shown(telling(registry(3, 10)), telling(registry(4, 20))) == {
        ("requests_total", "1"): 3,
        ("requests_total", "2"): 4,
        ("connections", "1"): 10,
        ("connections", "2"): 20,
        ("connections", ""): 100,
    }


def test_one_that_is_not_there_or_ends_meanwhile_is_left_out() -> None:
    ending = telling(registry(1, 1), to_the_end=False)
    assert shown(lambda: None, ending, telling(registry(4, 20))) == {
        ("requests_total", "3"): 4,
        ("connections", "3"): 20,
        ("connections", ""): 100,
    }


def test_one_that_does_not_answer_in_time_is_left_out() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert answered(ours, time.monotonic()) == []


def test_each_workers_native_histogram_has_its_number() -> None:
    def observed(*seconds: float) -> CollectorRegistry:
        found = CollectorRegistry()
        histogram = Histograms("request_seconds", "Seconds.", "api", found).of("Produce")
        for each in seconds:
            histogram.observe(each)
        return found

    exposed = CollectorRegistry()
    workers = dict(enumerate((telling(observed(0.1)), telling(observed(0.2, 0.3))), start=1))
    exposed.register(WorkersCollector(CollectorRegistry(), lambda: workers))
    found = {
        tuple(label.value for label in metric.label): metric.histogram
        for metric in families_in(written(exposed.collect()))["request_seconds"].metric
    }
    assert {key: each.sample_count for key, each in found.items()} == {("Produce", "1"): 1, ("Produce", "2"): 2}
    assert all(each.positive_span and each.bucket for each in found.values())
