"""ACLs on the command line: what is named, and what each word means."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from mesh.rpc import acls
from meshctl.acls import OPERATION, RESOURCE, Named
from meshctl.cli import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["acl", *arguments])


def named(**fields: object) -> Named:
    options: dict[str, object] = {
        "allow_principal": (), "deny_principal": (), "host": (), "operation": (), "topic": (), "group": (),
        "transactional_id": (), "delegation_token": (), "user": (), "cluster": False, "pattern": None,
    }  # fmt: skip
    return Named.of(options | fields)


@pytest.mark.parametrize("word", ["DescribeConfigs", "describe-configs", "DESCRIBE_CONFIGS", "describeconfigs"])
def test_an_operation_has_kafkas_word_in_any_spelling(word: str) -> None:
    assert OPERATION.convert(word, None, None) == acls.ACL_OPERATION_DESCRIBE_CONFIGS


def test_other_words_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(click.BadParameter, match=r"'Eat' is no operation: All, Read, Write"):
        OPERATION.convert("Eat", None, None)
    with pytest.raises(click.BadParameter, match=r"topic:NAME, group:NAME, .* and cluster are"):
        RESOURCE.convert("orders", None, None)
    with pytest.raises(click.BadParameter, match="is no resource"):
        RESOURCE.convert("topic:", None, None)


@pytest.mark.parametrize(
    ("word", "resource"),
    [
        ("topic:orders", (acls.ACL_RESOURCE_TYPE_TOPIC, "orders")),
        ("transactional-id:a:b", (acls.ACL_RESOURCE_TYPE_TRANSACTIONAL_ID, "a:b")),
        ("user:User:alice", (acls.ACL_RESOURCE_TYPE_USER, "User:alice")),
        ("cluster", (acls.ACL_RESOURCE_TYPE_CLUSTER, "kafka-cluster")),
    ],
)
def test_a_resource_is_its_type_and_its_name(word: str, resource: object) -> None:
    assert RESOURCE.convert(word, None, None) == resource


def test_each_principal_gets_each_operation_on_each_resource_from_each_host() -> None:
    found = named(
        allow_principal=("User:a", "User:b"),
        deny_principal=("User:c",),
        operation=(acls.ACL_OPERATION_READ, acls.ACL_OPERATION_WRITE),
        topic=("orders",),
        cluster=True,
        host=("10.0.0.1", "10.0.0.2"),
    ).to_add()
    assert len(found) == 3 * 2 * 2 * 2
    assert {each.permission for each in found if each.principal == "User:c"} == {acls.ACL_PERMISSION_DENY}
    assert {each.pattern_type for each in found} == {acls.ACL_PATTERN_TYPE_LITERAL}


def test_without_an_operation_all_are_meant_and_without_a_host_every_host() -> None:
    [found] = named(allow_principal=("User:a",), group=("shop",), pattern="prefixed").to_add()
    assert (found.operation, found.host, found.pattern_type) == (
        acls.ACL_OPERATION_ALL,
        "*",
        acls.ACL_PATTERN_TYPE_PREFIXED,
    )


def test_a_filter_has_conditions_for_what_is_named_alone() -> None:
    [everything] = named().filters()
    assert everything == acls.AclFilter(
        resource_type=acls.ACL_RESOURCE_TYPE_ANY,
        pattern_type=acls.ACL_PATTERN_TYPE_ANY,
        operation=acls.ACL_OPERATION_ANY,
        permission=acls.ACL_PERMISSION_ANY,
    )
    [found] = named(deny_principal=("User:c",), topic=("orders",), pattern="match").filters()
    assert (found.permission, found.pattern_type) == (acls.ACL_PERMISSION_DENY, acls.ACL_PATTERN_TYPE_MATCH)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "--allow-principal", "User:a"), "name a resource: --topic NAME"),
        (("add", "--topic", "orders"), "name a principal"),
        (("add", "--topic", "o", "--allow-principal", "User:a", "--pattern", "match"), "'match' is not one of"),
        (("remove", "--yes"), "name something"),
        (("remove", "--topic", "orders", "-o", "json"), "say --yes"),
        (("mode", "observe", "--super-user", "User:a", "--no-super-users"), "exclude each other"),
    ],
)
def test_what_is_missing_is_named_before_any_call(arguments: tuple[str, ...], said: str) -> None:
    refused = run(*arguments)
    assert (refused.exit_code, said in refused.output) == (2, True), refused.output
