"""Which format a scraper gets."""

import gzip
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from mesh.exposition.histograms import Histogram
from mesh.exposition.scrapes import wants_protobuf
from mesh.lifecycle import Lifecycle
from mesh.telemetry import serve_management
from tests.fixtures.exposition import families_in

PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
OF_PROMETHEUS = (
    f"{OPENMETRICS},application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
WITH_THE_FEATURE = f"{PROTOBUF},{OPENMETRICS};q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
NAME = "kafka_mesh_eating_seconds"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (WITH_THE_FEATURE, True),
        (f"{OPENMETRICS};q=0.5,{PROTOBUF};q=0.6", True),
        (PROTOBUF, True),
        (OF_PROMETHEUS, False),
        (f"{OPENMETRICS};q=0.6,{PROTOBUF};q=0.5", False),
        (PROTOBUF.replace("delimited", "text"), False),
        (f"{PROTOBUF};q=zero", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_a_scraper_gets_protobuf_if_it_prefers_it_to_texts(accept: str, wanted: bool) -> None:
    assert wants_protobuf(accept) is wanted


@pytest.fixture
def url() -> Iterator[str]:
    registry = CollectorRegistry()
    Histogram(NAME, "How long it took.", registry=registry, buckets=(1.0,)).observe(0.3)
    server = serve_management("127.0.0.1:0", Lifecycle(), registry)
    yield f"http://127.0.0.1:{server.port}/metrics"
    server.stop()


def test_texts_have_classic_buckets_alone(url: str) -> None:
    plain, openmetrics = (httpx.get(url, headers={"Accept": each}).text for each in ("text/plain", OF_PROMETHEUS))
    names = [line.split("{")[0].split(" ")[0] for line in plain.splitlines() if not line.startswith("#")]
    assert names == [f"{NAME}_bucket", f"{NAME}_bucket", f"{NAME}_count", f"{NAME}_sum", f"{NAME}_created"]
    (family,) = text_string_to_metric_families(openmetrics)  # type: ignore[no-untyped-call]
    assert [sample.name for sample in family.samples] == names
    picked = httpx.get(url, params={"name[]": f"{NAME}_count"}, headers={"Accept": PROTOBUF}).text
    assert f"{NAME}_count 1.0" in picked
    assert "_bucket" not in picked


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_protobuf_has_both_kinds_of_buckets(url: str, encoding: str) -> None:
    with httpx.stream("GET", url, headers={"Accept": WITH_THE_FEATURE, "Accept-Encoding": encoding}) as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-type"].startswith("application/vnd.google.protobuf; proto=io.prometheus.client.")
    (metric,) = families_in(gzip.decompress(raw) if encoding == "gzip" else raw)[NAME].metric
    assert [bucket.cumulative_count for bucket in metric.histogram.bucket] == [1, 1]
    assert (metric.histogram.sample_count, list(metric.histogram.positive_delta)) == (1, [1])
