"""Whether a caller may make a call, and by which grant. docs/how-to/roles.md says the order of the rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from mesh.rpc import access, grants
from mesh.rpc.roles import PEOPLE, role_and_bounds, role_word, suffices
from services.control.domain.access.grants import GROUP, Grants, Standing
from services.control.domain.access.things import Thing, why_outside

MOST_NAMED = 10
"""The most things or grants that a refusal lists."""


@dataclass(frozen=True, slots=True)
class Asker:
    """A person or program, as it has proved to be."""

    name: str
    groups: Collection[str] = ()
    certificate_role: access.Role.ValueType = access.ROLE_UNSPECIFIED


@dataclass(frozen=True, slots=True)
class Asked:
    """A call: its method, and the things that it names."""

    method: str
    """ "RuleService/SetRule"."""
    access_to: access.Access
    things: Collection[Thing] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, and the grants that were tried before, each with the reason why it does not allow the call."""

    grant: grants.Grant | None
    reason: str
    tried: tuple[tuple[grants.Grant, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """All that decides about people and programs."""

    known: Grants
    first_admins: Collection[str] = ()
    counts_certificates: bool = True
    """Whether the role in a certificate counts until the first decision about its name."""

    def of_settings(self) -> Iterator[grants.Grant]:
        """The grants of the first admins."""
        for name in sorted(self.first_admins):
            yield grants.Grant(
                principal=name,
                role=access.ROLE_ADMIN,
                on_behalf_of_others=True,
                source=grants.GRANT_SOURCE_SETTING,
            )

    def grants_of(self, asker: Asker) -> Iterator[grants.Grant]:
        """The grants of a caller, in the order in which they are tried."""
        yield from (each for each in self.of_settings() if each.principal == asker.name)
        own = self.known.get(asker.name, Standing())
        yield from own.grants
        if own.is_shut_out:
            return
        for group in asker.groups:
            yield from self.known.get(f"{GROUP}{group}", Standing()).grants
        if self.counts_certificates and asker.certificate_role in PEOPLE and asker.name not in self.known:
            yield grants.Grant(
                principal=asker.name, role=asker.certificate_role, source=grants.GRANT_SOURCE_CERTIFICATE
            )

    def verdict(self, asker: Asker, asked: Asked) -> Verdict:
        """Whether the caller may make the call."""
        tried: list[tuple[grants.Grant, str]] = []
        for grant in self.grants_of(asker):
            why_not = _why_not(grant, asked)
            if not why_not:
                return Verdict(grant, f"{grant_text(grant)} allows {_call_text(asked)}", tuple(tried))
            tried.append((grant, why_not))
        return Verdict(None, self._refusal(asker, asked, tried), tuple(tried))

    def may_name_another(self, asker: Asker) -> bool:
        """Whether the caller may say that it calls on behalf of others."""
        return any(grant.on_behalf_of_others for grant in self.grants_of(asker))

    def is_shut_out(self, name: str) -> bool:
        """Whether a decision has taken all rights from a principal."""
        return name not in self.first_admins and self.known.get(name, Standing()).is_shut_out

    def _refusal(self, asker: Asker, asked: Asked, tried: list[tuple[grants.Grant, str]]) -> str:
        needed = f"{_call_text(asked)} needs the role {_needed(asked)}"
        if tried:
            found = "; ".join(f"{grant_text(grant)}, but {why}" for grant, why in tried[:MOST_NAMED])
            more = f"; and {len(tried) - MOST_NAMED} more grants" if len(tried) > MOST_NAMED else ""
            return f"{needed}; {asker.name} has {found}{more}"
        if self.is_shut_out(asker.name):
            return f"{needed}; a decision has taken all rights from {asker.name}"
        return f"{needed}; {asker.name} has no grant"


def _why_not(grant: grants.Grant, asked: Asked) -> str:
    if not suffices(grant.role, asked.access_to):
        return "this role does not suffice"
    return why_outside(grant.narrowing, asked.things)


def _needed(asked: Asked) -> str:
    roles = [role for role in asked.access_to.roles if role in PEOPLE] or asked.access_to.roles
    return " or ".join(map(role_word, roles))


def _call_text(asked: Asked) -> str:
    things = [str(each) for each in dict.fromkeys(asked.things)]
    more = f" and {len(things) - MOST_NAMED} more" if len(things) > MOST_NAMED else ""
    return f"{asked.method} on {', '.join(things[:MOST_NAMED])}{more}" if things else asked.method


def grant_text(grant: grants.Grant) -> str:
    """ "operator for topics shop.* (revision 12)"."""
    origins = {
        grants.GRANT_SOURCE_SETTING: "by control's setting first_admins",
        grants.GRANT_SOURCE_CERTIFICATE: "by its certificate",
    }
    origin = origins.get(grant.source, f"revision {grant.revision}")
    of_group = f" of {grant.principal}" if grant.principal.startswith(GROUP) else ""
    return f"{role_and_bounds(grant)} ({origin}{of_group})"
