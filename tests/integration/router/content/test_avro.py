"""Content rules about Avro values, whose schemas a registry knows."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro

from mesh.rpc import record_rules
from services.router.forwarding.registry_access import RegistryAccess
from tests.fixtures.content_rules import Given, content_rule, reason, send, values
from tests.fixtures.record_rules import Side, Workers, ends
from tests.fixtures.schema_registry import SchemaRegistry
from tests.fixtures.small_registry import SmallRegistry

COUNTRY = {"type": "enum", "name": "Country", "symbols": ["DE", "FR"]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "country", "type": "Country"}, {"name": "amount", "type": "double"}],
}
AVRO = record_rules.VALUE_FORMAT_AVRO


def order(schema_id: int, country: str, amount: float) -> bytes:
    """As Confluent's serializers write it."""
    data = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
    data.seek(5)
    named: dict[str, dict[Any, Any]] = {}
    fastavro.parse_schema(COUNTRY, named_schemas=named)
    schema = fastavro.parse_schema(ORDER, named_schemas=named)
    fastavro.schemaless_writer(data, schema, {"country": country, "amount": amount})
    return data.getvalue()


def test_fields_of_avro_decide(
    c1: Side, c2: Side, sides: tuple[Side, Side], topic: str, schema_registry: SchemaRegistry, tmp_path: Path
) -> None:
    for side, name in ((c1, ""), (c1, ".de"), (c1, ".dlq"), (c2, ".large")):
        side.create(f"{topic}{name}")
    schema_registry.register(f"{topic}-country", json.dumps(COUNTRY))
    reference = {"name": "Country", "subject": f"{topic}-country", "version": 1}
    schema_id = schema_registry.register(f"{topic}-value", json.dumps(ORDER), references=[reference])
    german, large = order(schema_id, "DE", 1.5), order(schema_id, "FR", 5000)
    unknown = order(schema_id + 1000, "DE", 1.5)
    send(c1, topic, [Given("a", each) for each in (german, large, unknown, b'{"country":"DE"}', None)])

    access = RegistryAccess(schema_registry.url)
    with Workers(tmp_path / "workers.log", sides, access.arguments).running() as workers:
        branches = [
            ("value == null", ("c1", f"{topic}.de")),
            ("value.country == 'DE'", ("c1", f"{topic}.de")),
            ("value.amount > 1000", ("c2", f"{topic}.large")),
        ]
        workers.run(content_rule(topic, branches, value_format=AVRO))
        workers.wait_until_caught_up("by-content", ends(c1, topic))

    assert values(c1.read(f"{topic}.de")) == [german, None]
    assert values(c2.read(f"{topic}.large")) == [large]
    of_no_schema, no_avro = c1.read(f"{topic}.dlq")
    assert of_no_schema.value == unknown
    assert f"the schema registry has no schema {schema_id + 1000}" in reason(of_no_schema)
    assert "not Avro with a schema id" in reason(no_avro)


def test_a_registry_that_fails_holds_the_rule_and_makes_no_dead_letters(
    c1: Side, c2: Side, sides: tuple[Side, Side], topic: str, tmp_path: Path
) -> None:
    c1.create(topic)
    c1.create(f"{topic}.dlq")
    c2.create(f"{topic}.all")
    values_there = [order(7, "DE", amount) for amount in (1.0, 2.0)]
    send(c1, topic, [Given("a", None), *(Given("a", value) for value in values_there)])

    with SmallRegistry(failures=[503] * 1000) as registry:
        access = RegistryAccess(registry.url)
        with Workers(tmp_path / "workers.log", sides, access.arguments).running() as workers:
            branches = [("value == null || value.amount > 0", ("c2", f"{topic}.all"))]
            workers.run(content_rule(topic, branches, value_format=AVRO))
            said = workers.wait_for("by-content", "waits", lambda progress: "answers 503" in progress.problem)
            assert f"{topic}-0 offset 1: the schema registry at {registry.url}" in said.problem
            workers.wait_until_caught_up("by-content", {(topic, 0): 1})

            inline = {**ORDER, "fields": [{"name": "country", "type": COUNTRY}, ORDER["fields"][1]]}
            registry.schemas[7] = {"schema": json.dumps(inline)}
            registry.failures.clear()
            workers.wait_until_caught_up("by-content", ends(c1, topic))

    assert values(c2.read(f"{topic}.all")) == [None, *values_there]
    assert c1.read(f"{topic}.dlq") == []
