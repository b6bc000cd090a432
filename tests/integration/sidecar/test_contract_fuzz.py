"""Requests that nobody thought of, made from both contracts by schemathesis, against a live sidecar on real Kafka.

Every answer is held against the contract: status, content type, headers, body; nothing is a fault of the sidecar.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
import schemathesis.specs.openapi.object_authorization  # amid a request, CPython 3.11 may fail to parse it
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi import checks

from services.sidecar.api.contract import DOCUMENT, REST_V2_DOCUMENT
from tests.fixtures.clusters import KafkaCluster
from tests.integration.sidecar.world import WITHIN_SECONDS, SidecarWorld, started

EXAMPLES = 2
"""Of each operation, besides those that cover the bounds of its schema; all of them take a few seconds."""
NOT_OURS = [
    checks.unsupported_method,  # wants 405; the original answers 404 ERR10048 to unknown paths and methods alike
    checks.positive_data_acceptance,  # what fits may still not fit a topic, a format or an instance's state
    checks.ignored_auth,  # a sidecar on loopback without an issuer asks nobody; tests of tokens have their own
]

# topics at the bounds of the contract have 10,000 partitions, which would fill the broker's disk; test_admin has bounds
schema = schemathesis.openapi.from_path(DOCUMENT).exclude(operation_id=["shutdown", "create_topic"])
rest_v2 = schemathesis.openapi.from_path(REST_V2_DOCUMENT)
FEW = settings(
    max_examples=EXAMPLES, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def sidecar(kafka_c1: KafkaCluster) -> Iterator[SidecarWorld]:
    quick = {
        "max_read_ms": 20,
        "request_timeout_ms": 20,
        "unknown_topic_timeout_ms": 20,
        "transaction_timeout_ms": 10_000,  # a first key waits for the topic of answers to be made
    }
    with started(kafka_c1.bootstrap, max_instances=10, rest_v2_listen="127.0.0.1:0", **quick) as world:
        yield world


@schema.parametrize()
@FEW
def test_whatever_is_asked_is_answered_as_the_contract_says(
    case: schemathesis.Case[Any], sidecar: SidecarWorld
) -> None:
    case.call_and_validate(base_url=str(sidecar.http.base_url), timeout=WITHIN_SECONDS, excluded_checks=NOT_OURS)


@rest_v2.parametrize()
@FEW
def test_whatever_clients_of_rest_v2_ask_is_answered_as_their_contract_says(
    case: schemathesis.Case[Any], sidecar: SidecarWorld
) -> None:
    address = f"http://127.0.0.1:{sidecar.sidecar.rest_v2_port}"
    case.call_and_validate(base_url=address, timeout=WITHIN_SECONDS, excluded_checks=NOT_OURS)
