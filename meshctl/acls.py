"""ACLs on the command line: Kafka's words for operations and resources, and the options that name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import click

from mesh.acls.acl import CLUSTER_NAME, EVERY_HOST
from mesh.acls.words import MODES, OPERATIONS, RESOURCES
from mesh.rpc import acls

OPERATION_NUMBERS = {word.lower(): number for number, word in OPERATIONS.items()}
RESOURCE_NUMBERS = {word: number for number, word in RESOURCES.items()}
MODE_NUMBERS = {word: number for number, word in MODES.items()}
PATTERNS = {"literal": acls.ACL_PATTERN_TYPE_LITERAL, "prefixed": acls.ACL_PATTERN_TYPE_PREFIXED}
FILTER_PATTERNS = {**PATTERNS, "any": acls.ACL_PATTERN_TYPE_ANY, "match": acls.ACL_PATTERN_TYPE_MATCH}
Resource = tuple["acls.AclResourceType.ValueType", str]


class OperationType(click.ParamType):
    """An operation, in Kafka's word: Read, DescribeConfigs, also as describe-configs."""

    name = "operation"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = OPERATION_NUMBERS.get(str(value).replace("-", "").replace("_", "").lower())
        if number is None:
            self.fail(f"{value!r} is no operation: {', '.join(OPERATIONS.values())} are", param, ctx)
        return number


class ResourceNameType(click.ParamType):
    """A resource as TYPE:NAME, or "cluster"."""

    name = "resource"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        word, _, name = str(value).partition(":")
        number = RESOURCE_NUMBERS.get(word)
        if number is None or not (name or number == acls.ACL_RESOURCE_TYPE_CLUSTER):
            known = ", ".join(f"{each}:NAME" for each in RESOURCE_NUMBERS if each != "cluster")
            self.fail(f"{value!r} is no resource: {known} and cluster are", param, ctx)
        return number, name or CLUSTER_NAME


OPERATION, RESOURCE = OperationType(), ResourceNameType()


@dataclass(frozen=True, slots=True)
class Named:
    """The principals, hosts, operations and resources of one command line."""

    allowed: Sequence[str]
    denied: Sequence[str]
    hosts: Sequence[str]
    operations: Sequence[acls.AclOperation.ValueType]
    resources: Sequence[Resource]
    pattern: str | None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Named:
        """From the values of `named_options`."""
        resources: list[Resource] = [
            (number, name) for number, option in RESOURCE_OPTIONS.items() for name in options[option]
        ]
        if options["cluster"]:
            resources.append((acls.ACL_RESOURCE_TYPE_CLUSTER, CLUSTER_NAME))
        return cls(
            options["allow_principal"],
            options["deny_principal"],
            options["host"],
            options["operation"],
            resources,
            options["pattern"],
        )

    def to_add(self) -> list[acls.Acl]:
        """The ACLs of `add`: each principal with each host, operation and resource."""
        if not self.resources:
            raise click.UsageError(f"name a resource: {RESOURCE_HELP}")
        if not (self.allowed or self.denied):
            raise click.UsageError("name a principal: --allow-principal or --deny-principal")
        pattern = PATTERNS[self.pattern or "literal"]
        return [
            acls.Acl(
                resource_type=kind, resource_name=name, pattern_type=pattern, principal=principal, host=host,
                operation=operation, permission=permission,
            )
            for (kind, name), (principal, permission), host, operation in product(
                self.resources, self._principals, self.hosts or (EVERY_HOST,),
                self.operations or (acls.ACL_OPERATION_ALL,),
            )
        ]  # fmt: skip

    def filters(self) -> list[acls.AclFilter]:
        """Filters for what is named; one without conditions if nothing is."""
        nothing: Resource = (acls.ACL_RESOURCE_TYPE_ANY, "")
        everybody = ("", acls.ACL_PERMISSION_ANY)
        pattern = FILTER_PATTERNS[self.pattern or "any"]
        return [
            acls.AclFilter(
                resource_type=kind, resource_name=name, pattern_type=pattern, principal=principal, host=host,
                operation=operation, permission=permission,
            )
            for (kind, name), (principal, permission), host, operation in product(
                self.resources or (nothing,), tuple(self._principals) or (everybody,), self.hosts or ("",),
                self.operations or (acls.ACL_OPERATION_ANY,),
            )
        ]  # fmt: skip

    @property
    def _principals(self) -> Iterator[tuple[str, acls.AclPermission.ValueType]]:
        for principal in self.allowed:
            yield principal, acls.ACL_PERMISSION_ALLOW
        for principal in self.denied:
            yield principal, acls.ACL_PERMISSION_DENY


RESOURCE_OPTIONS = {number: word.replace("-", "_") for word, number in RESOURCE_NUMBERS.items() if word != "cluster"}
"""Type -> the parameter with its names."""
RESOURCE_HELP = ", ".join(f"--{word}{'' if word == 'cluster' else ' NAME'}" for word in RESOURCE_NUMBERS)


def named_options(patterns: Mapping[str, object], default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that name ACLs; all but --pattern may stand several times. `default`: the pattern without one."""
    several = [
        click.option(f"--{each}", multiple=True, metavar="NAME", help=f"The {each}; '*' is every {each}.")
        for each in ("topic", "group", "transactional-id", "delegation-token")
    ]
    options = [
        click.option("--allow-principal", multiple=True, metavar="PRINCIPAL", help="Allow this one: User:alice."),
        click.option("--deny-principal", multiple=True, metavar="PRINCIPAL", help="Deny this one; User:* is everyone."),
        click.option("--operation", multiple=True, type=OPERATION, metavar="OPERATION", help="Read, Write, All, ..."),
        *several,
        click.option("--user", multiple=True, metavar="PRINCIPAL", help="The owner of delegation tokens: User:alice."),
        click.option("--cluster", is_flag=True, help="The mesh as a whole, as clients see one cluster."),
        click.option(
            "--pattern", type=click.Choice(list(patterns)), help=f"How names count; without it: {default}.",
        ),
        click.option("--host", multiple=True, metavar="ADDRESS", help="Only clients from this IP address."),
    ]  # fmt: skip

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
