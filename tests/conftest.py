"""What every test may ask for. The fixtures stand in tests/fixtures, one file for each kind of thing."""

import os

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.fixtures.bytecode import keep_bytecode
from tests.fixtures.sweeps import REPEAT

keep_bytecode(os.environ)
# a busy machine makes an example slow, and no test wrong
settings.register_profile(
    "kafka-mesh", max_examples=25 * REPEAT, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("kafka-mesh")

pytest_plugins = [
    "tests.fixtures.clusters",
    "tests.fixtures.databases",
    "tests.fixtures.kerberos",
    "tests.fixtures.logging",
    "tests.fixtures.meshes",
    "tests.fixtures.names",
    "tests.fixtures.earlier_kafka",
    "tests.fixtures.older_kafka",
    "tests.fixtures.own_meshes",
    "tests.fixtures.releases",
    "tests.fixtures.router_pairs",
    "tests.fixtures.schema_registry",
    "tests.fixtures.secured_kafka",
    "tests.fixtures.three_brokers",
    "tests.fixtures.traffic",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever Hypothesis makes examples for has further ones in `make soak`."""
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.repeated)
