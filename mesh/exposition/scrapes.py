"""The answer to a scrape of /metrics, in the format that the scraper asks for: a text, or Prometheus' protobuf."""

import gzip
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.exposition import gzip_accepted
from prometheus_client.registry import Collector, RestrictedRegistry

PROTOBUF = {"proto": "io.prometheus.client.MetricFamily", "encoding": "delimited"}
PROTOBUF_TYPE = "application/vnd.google.protobuf"
TEXT_TYPES = ("application/openmetrics-text", "text/plain")

Answer = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def scrapes(registry: CollectorRegistry) -> Answer:
    """As a WSGI application."""
    of_texts: Answer = make_wsgi_app(_WithoutNative(registry))

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        asks = environ["REQUEST_METHOD"] == "GET" and not environ.get(
            "QUERY_STRING"
        )  # `name[]` picks among texts alone
        if not (asks and wants_protobuf(environ.get("HTTP_ACCEPT", ""))):
            return of_texts(environ, start_response)
        from mesh.exposition.protobuf import written  # memory that a process spends when Prometheus asks

        body = written(registry.collect())
        headers = [
            ("Content-Type", "; ".join((PROTOBUF_TYPE, *(f"{name}={value}" for name, value in PROTOBUF.items()))))
        ]
        if gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")):
            body = gzip.compress(body)
            headers.append(("Content-Encoding", "gzip"))
        start_response("200 OK", headers)
        return [body]

    return answer


def wants_protobuf(accept: str) -> bool:
    """Whether `Accept` prefers the protobuf format to all texts. Prometheus does, if it scrapes native histograms."""
    weights = {True: 0.0, False: 0.0}
    for each in accept.split(","):
        kind, *parameters = (part.strip() for part in each.split(";"))
        given = dict(part.split("=", 1) for part in parameters if "=" in part)
        is_protobuf = kind == PROTOBUF_TYPE and PROTOBUF.items() <= given.items()
        if is_protobuf or kind in TEXT_TYPES:
            weights[is_protobuf] = max(weights[is_protobuf], _weight(given.get("q", "1")))
    return weights[True] > weights[False]


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


class _WithoutNative(Collector):
    """A registry for the formats that have no native histograms."""

    def __init__(self, registry: CollectorRegistry | RestrictedRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if sample.native_histogram is None]
            yield family

    def restricted_registry(self, names: Iterable[str]) -> "_WithoutNative":
        """`name[]` of a scrape."""
        assert isinstance(self._registry, CollectorRegistry)
        return _WithoutNative(self._registry.restricted_registry(names))
