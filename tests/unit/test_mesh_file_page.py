"""The JSON Schema of mesh.yaml and its page follow from the code; the schema and `meshctl apply` agree about files."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

import jsonschema_rs
import pytest
import yaml

from docs.mesh_file import files, schema
from mesh.rpc import acls, admin, record_rules, routing
from meshctl.meshfile.model import FileError
from meshctl.meshfile.native import FILE_KEYS
from meshctl.meshfile.reading import parse
from meshctl.meshfile.writing import document
from tests.fixtures.pages import blocks
from tests.plain_english import ROOT
from tests.unit.meshctl.test_mesh_file import MESH, WRONG
from tests.unit.test_pages import pages

EXAMPLE = (ROOT / "examples" / "mesh.yaml").read_text(encoding="utf-8")
BEYOND_SHAPE = ("not YAML", "is there twice", "RE2", "line 1: the file is empty")
"""In messages of `apply` about what no schema can refuse."""
CLUSTER = "clusters: [{cluster_name: c, bootstrap_servers: %s}]"
WRONG_ADDRESSES = ["a", "a:0", "a:65536", "'::1:9092'", "[a:1, b]", "'a:1, b'", "''", "5", "[[a]]"]
RIGHT_ADDRESSES = ["a:1", "a:65535", "'[::1]:9092'", "[' a:1 ', 'b:02']", "',a:1 , b:2,'"]
WRONG_RECORD_RULES = [
    "{mirror: {}}",
    "{record_rule_id: '', mirror: {}}",
    "{record_rule_id: a}",
    "{record_rule_id: a, mirror: {}, content: {}}",
    "{record_rule_id: a, mirror: {topic: x, topic_prefix: y}}",
    "{record_rule_id: a, mirror: {topics: x}}",
    "{record_rule_id: a, mirror: {filter: 5}}",
    "{record_rule_id: a, mirror: {transforms: {drop_header: a}}}",
    "{record_rule_id: a, mirror: {transforms: [{drop_header: a, redact_json_field: b}]}}",
    "{record_rule_id: a, mirror: {group_offsets: {sync_interval: 10}}}",
    "{record_rule_id: a, content: {value_format: xml}}",
    "{record_rule_id: a, mirror: {}, start: {earliest: true, latest: true}}",
    "{record_rule_id: a, mirror: {}, start: {offsets: {topic: x, offsets: {zero: 1}}}}",
    "text",
]
WRONG_OTHERWISE = [
    "clusters: {}",
    CLUSTER % "'a:1', producer_config: {ssl.key.password: open}",
    CLUSTER % "'a:1', consumer_config: {ssl.key.pem: open}",
    CLUSTER % "'a:1', partition_count: 1000001",
    "rules: [{topic: a, target_cluster: c, client: {}}]",
    "rules: [{topic: a, target_cluster: c, client: {name: a}}]",
    "rules: [{unmatched_topics: false, target_cluster: c}]",
    "rules: [{unmatched_topics: true, topic: a, target_cluster: c}]",
    "rules: [{unmatched_topics: true, shadow_topics: true, target_cluster: c}]",
    *(CLUSTER % each for each in WRONG_ADDRESSES),
    *(f"record_rules: [{each}]" for each in WRONG_RECORD_RULES),
    "acls: [{principal: User:a, operations: [Read], topic: a, topic_prefix: b}]",
    "acls: [{principal: User:a, operations: [Read], cluster: false}]",
    "acls: [{principal: User:a, operations: [Read], topic: ''}]",
    "acls: [{principal: User:a, topic: a}]",
    "acls: [{operations: [Read], topic: a}]",
    "acls: [{principal: User:a, operations: [Read], topic: a, permission: never}]",
    "acls: [{principal: User:a, operations: [Read], topic: a, hosts: ['*']}]",
    "acl_policy: {}",
    "acl_policy: {mode: enforced}",
    "acl_policy: {users: [User:a]}",
]


def shape_of(text: str) -> Any:
    """The file as JSON has it: keys are text, and so are times."""
    return json.loads(json.dumps(yaml.safe_load(text), default=datetime.isoformat))


@pytest.fixture(scope="module")
def checker() -> jsonschema_rs.Draft7Validator:
    jsonschema_rs.meta.validate(schema())
    return jsonschema_rs.Draft7Validator(schema())


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_a_written_file_is_as_make_reference_writes_it(path: Any) -> None:
    assert path.read_text(encoding="utf-8") == files()[path], "run: make reference"


def test_the_example_names_its_schema() -> None:
    (path,) = (path for path in files() if path.suffix == ".json")
    first = EXAMPLE.partition("\n")[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert (ROOT / "examples" / first.partition("=")[2]).resolve() == path.resolve()


def mesh_files_of_pages() -> list[str]:
    found = [block for page in pages() for block in blocks(page.read_text(encoding="utf-8"), "yaml")]
    keys = "|".join(FILE_KEYS)
    return [each for each in found if re.search(rf"\A(#.*\n)*({keys}):", each)]


@pytest.mark.parametrize(
    "text",
    [
        EXAMPLE,
        MESH,
        *mesh_files_of_pages(),
        "clusters: []",
        "rules: [{topic: 2024, target_cluster: 1}]",
        "rules: [{unmatched_topics: true, upstream_topic: 'a.{topic}', target_cluster: c}]",
        "rules: [{client_software: a/1, node_view: single}]",
        "rules: [{unmatched_topics: false, group_prefix: '', target_cluster: c, shadow_topics: false}]",
        "rules: [{topic: a, target_cluster: c, client: {source_networks: '10.0.0.0/8, 11.0.0.0/8'}}]",
        "record_rules: [{record_rule_id: a, mirror: {}, start: {time: 2026-11-21T20:00:00Z}}]",
        "record_rules: [{record_rule_id: a, mirror: {}, start: {offsets: {topic: x, offsets: {0: 5}}}}]",
        "record_rules: [{record_rule_id: a, content: {value_format: avro, branches: [{when: 'true'}]}}]",
        *(CLUSTER % each for each in RIGHT_ADDRESSES),
        "acls: []",
        "acls: [{principal: 'User:*', operations: 'Read, Write', topic: '*', host: '::1', permission: deny}]",
        "acls: [{principal: User:a, operations: [All], cluster: true}]",
        "acl_policy: {mode: 'off', super_users: []}",
        "acl_policy: {super_users: 'User:a, User:b'}",
    ],
)
def test_the_schema_takes_files_that_apply_takes(text: str, checker: jsonschema_rs.Draft7Validator) -> None:
    parse(text)
    assert [each.message for each in checker.iter_errors(shape_of(text))] == []


def test_the_schema_takes_files_that_export_writes(checker: jsonschema_rs.Draft7Validator) -> None:
    given = parse(EXAMPLE)
    written = document(
        [admin.Cluster(spec=each.spec) for each in given.clusters],
        [admin.Rule(spec=each.spec) for each in given.rules or ()],
        [record_rules.RecordRule(spec=each.spec) for each in given.record_rules or ()],
        acls.AclPolicy(acls=[each.acl for each in given.acls or ()], super_users=["User:root"]),
        [each.tenant for each in given.tenants or ()],
    )
    assert [len(each) for each in written.values()] == [2, 9, 1, 2, 2, 1]
    checker.validate(json.loads(json.dumps(written)))


@pytest.mark.parametrize(
    "text",
    [*(text for text, message in WRONG if not any(each in message for each in BEYOND_SHAPE)), *WRONG_OTHERWISE],
)
def test_the_schema_refuses_shapes_that_apply_refuses(text: str, checker: jsonschema_rs.Draft7Validator) -> None:
    with pytest.raises(FileError):
        parse(text)
    assert not checker.is_valid(shape_of(text))


def test_each_field_of_clusters_and_rules_can_be_in_the_file() -> None:
    """A new field of the contract is a key of the file, too."""
    defined = schema()["definitions"]
    assert set(defined["cluster"]["properties"]) == set(routing.ClusterSpec.DESCRIPTOR.fields_by_name)
    of_rules = {*routing.RuleSpec.DESCRIPTOR.fields_by_name, *routing.RuleMatch.DESCRIPTOR.fields_by_name} - {"match"}
    assert set(defined["rule"]["properties"]) == of_rules
    assert set(defined["client"]["properties"]) == set(routing.ClientMatch.DESCRIPTOR.fields_by_name)
