"""Finds the quotas that count for a client, by Kafka's order of entities (KIP-13, KIP-55, KIP-546, KIP-612).

Theory of operation
1. For each key the first of these entities counts that has a quota: (user, client.id), (user, default), user, (default,
   client.id), (default, default), default user, client.id, default client.id. A quota for an IP address counts before
   the one for the default address.
2. Clients share a quota as the entity says. If it names a user alone, all clients of each user share one; if it names
   a client.id alone, all clients with that client.id do. If it names both, each pair has a quota of its own. A default
   gives each one that it stands for a quota of its own.
3. A group of a client's token counts as a user called "Group:NAME", behind the client's own user and before the default
   user. The first group in the token that has a quota counts. All its clients share the quota.
4. A user called "Prefixed:TEXT" stands for all users whose names begin with the text, behind the groups. The longest
   text that has a quota counts. All clients of these users share the quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mesh.quotas.entity import DEFAULT, GROUP, PREFIXED, Default, Entity, Key, Name, Quota

Sharers = tuple[Key, str | None, str | None, str | None]
"""The clients that share one quota: key, user, client.id and address; None: the clients may differ in this."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota as it counts for a client."""

    quota: Quota
    sharers: Sharers


class Policy:
    """The quotas of the mesh. They never change."""

    def __init__(self, quotas: Iterable[Quota] = ()) -> None:
        self.quotas = tuple(quotas)
        self._by_key: dict[Key, dict[Entity, Quota]] = {key: {} for key in Key}
        lengths: dict[Key, set[int]] = {key: set() for key in Key}
        for each in self.quotas:
            self._by_key[each.key][each.entity] = each
            user = each.entity.user
            if isinstance(user, str) and user.startswith(PREFIXED):
                lengths[each.key].add(len(user) - len(PREFIXED))
        self._lengths = {key: tuple(sorted(found, reverse=True)) for key, found in lengths.items()}
        """The lengths of the texts behind PREFIXED, the longest first."""

    def has(self, key: Key) -> bool:
        """Whether any client has a quota of this key."""
        return bool(self._by_key[key])

    def limit(self, key: Key, user: str, client_id: str, groups: Sequence[str] = ()) -> Limit | None:
        """The quota that counts for a client of this user and client.id, whose token names these groups."""
        known = self._by_key[key]
        if not known:
            return None
        beginnings = (f"{PREFIXED}{user[:length]}" for length in self._lengths[key] if length <= len(user))
        users: tuple[Name, ...] = (user, *(f"{GROUP}{each}" for each in groups), *beginnings, DEFAULT)
        for named in users:
            for client in (client_id, DEFAULT, None):
                quota = known.get(Entity(named, client))
                if quota is not None:
                    sharing = user if isinstance(named, Default) else named
                    return Limit(quota, (key, sharing, None if client is None else client_id, None))
        clients: tuple[Name, ...] = (client_id, DEFAULT)
        for client in clients:
            quota = known.get(Entity(None, client))
            if quota is not None:
                return Limit(quota, (key, None, client_id, None))
        return None

    def limit_of_address(self, key: Key, address: str) -> Limit | None:
        """The quota that counts for clients at this IP address."""
        known = self._by_key[key]
        addresses: tuple[Name, ...] = (address, DEFAULT)
        for named in addresses:
            quota = known.get(Entity(ip=named)) if known else None
            if quota is not None:
                return Limit(quota, (key, None, None, address))
        return None

    def limits(self, user: str, client_id: str, address: str, groups: Sequence[str] = ()) -> list[Limit]:
        """The quotas that count for a client, one of each key at most."""
        found = (
            self.limit_of_address(key, address) if key.is_about_addresses else self.limit(key, user, client_id, groups)
            for key in Key
        )
        return [each for each in found if each is not None]
