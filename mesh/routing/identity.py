"""The identity by which clients' requests reach one cluster: which credential counts for which client. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum


class IdentityMode(Enum):
    """See IdentityMode in routing.proto. The mesh's own identity, for all clients, is the lack of a policy."""

    MAPPED = "mapped"
    PASSTHROUGH = "passthrough"
    EXCHANGE = "exchange"

    @property
    def is_by_token(self) -> bool:
        """Whether the client's own token decides."""
        return self is not IdentityMode.MAPPED


class IdentityFallback(Enum):
    """The identity of a client without a credential or a token."""

    REFUSE = "refuse"
    MESH = "mesh"


@dataclass(frozen=True, slots=True)
class Credential:
    """librdkafka properties for one principal, or for all that begin so, in the place of the cluster's own."""

    principal: str
    """"User:alice", or a group of a token as "Group:billing"."""
    prefixed: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.principal}{'*' if self.prefixed else ''}"


@dataclass(frozen=True, slots=True)
class UpstreamIdentity:
    """See UpstreamIdentity in routing.proto."""

    mode: IdentityMode
    credentials: tuple[Credential, ...] = ()
    fallback: IdentityFallback = IdentityFallback.REFUSE
    audience: str = ""
    """Exchanged tokens are for this audience; empty: the issuer chooses."""
    _exact: Mapping[str, Credential] = field(init=False, repr=False, compare=False)
    _prefixes: tuple[Credential, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        exact = {each.principal: each for each in self.credentials if not each.prefixed}
        longest_first = sorted(
            (each for each in self.credentials if each.prefixed), key=lambda each: -len(each.principal)
        )
        object.__setattr__(self, "_exact", exact)
        object.__setattr__(self, "_prefixes", tuple(longest_first))

    def credential_of(self, principal: str, groups: Iterable[str]) -> Credential | None:
        """The credential of this client: its own, else of the first of its groups that has one, else by prefix."""
        for name in (principal, *(f"Group:{group}" for group in groups)):
            found = self._exact.get(name)
            if found is not None:
                return found
        return next((each for each in self._prefixes if principal.startswith(each.principal)), None)
