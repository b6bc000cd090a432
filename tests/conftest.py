"""What every test may ask for. The fixtures stand in tests/fixtures, one file for each kind of thing."""

import os

from hypothesis import HealthCheck, settings

from tests.fixtures.bytecode import keep_bytecode

keep_bytecode(os.environ)
# a busy machine makes an example slow, and no test wrong
settings.register_profile("kafka-mesh", deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
    "tests.fixtures.router_pairs",
    "tests.fixtures.schema_registry",
    "tests.fixtures.secured_kafka",
    "tests.fixtures.three_brokers",
    "tests.fixtures.traffic",
]
