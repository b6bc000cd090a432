"""An ACL as a value. The enumerations have Kafka's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class ResourceType(IntEnum):
    """The kind of thing that an ACL is about."""

    ANY = 1
    """Only in filters."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @property
    def word(self) -> str:
        return _word(self)


class PatternType(IntEnum):
    """The way in which the name of an ACL meets the name of a resource."""

    ANY = 1
    """Only in filters: every pattern type, with exactly the filter's name."""
    MATCH = 2
    """Only in filters: every ACL that counts for the filter's name."""
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """An operation of a client on a resource."""

    ANY = 1
    """Only in filters."""
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @property
    def bit(self) -> int:
        """The operation in a set of operations, as in the authorized operations of Kafka's answers."""
        return 1 << self

    @property
    def word(self) -> str:
        return _word(self)


class Permission(IntEnum):
    """Whether an ACL allows or denies."""

    ANY = 1
    """Only in filters."""
    DENY = 2
    ALLOW = 3


def _word(member: IntEnum) -> str:
    return member.name.lower().replace("_", " ")


EVERY_NAME: Final = "*"
"""The name of a literal ACL for all resources of its type."""
EVERY_HOST: Final = "*"
EVERYBODY: Final = "User:*"
"""The principal of an ACL for all clients. No other kind of principal has such a name."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""

_O = Operation
OPERATIONS_OF: Final[Mapping[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset(
        {_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}
    ),
    ResourceType.GROUP: frozenset({_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
    ResourceType.CLUSTER: frozenset(
        {
            _O.CREATE,
            _O.CLUSTER_ACTION,
            _O.DESCRIBE_CONFIGS,
            _O.ALTER_CONFIGS,
            _O.IDEMPOTENT_WRITE,
            _O.ALTER,
            _O.DESCRIBE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({_O.DESCRIBE, _O.WRITE, _O.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({_O.DESCRIBE}),
    ResourceType.USER: frozenset({_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS}),
}
"""The operations that each type of resource knows. An ACL may name ALL besides."""


@dataclass(frozen=True, slots=True)
class Acl:
    """One ACL. Two ACLs with the same fields are the same ACL."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    """The principal with its kind: `User:alice`, `Group:finance`."""
    host: str
    """The IP address in its shortest form, or `*`."""
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        verb = "denies" if self.permission is Permission.DENY else "allows"
        what = f"{self.pattern_type.name.lower()} {self.resource_type.word} {self.resource_name!r}"
        return f"{verb} {self.principal} from host {self.host} to {self.operation.word} {what}"
