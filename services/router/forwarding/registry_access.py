"""The address of the schema registry: the router gets it from its settings, and passes it to its child process."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """How to get to the schema registry; an empty `url`: there is none."""

    url: str = ""
    user_info: str = ""
    """`user:password`, as a reference."""
    ca_location: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The settings for the child process, in which secrets stay references."""
        said = (("url", self.url), ("user-info", self.user_info), ("ca-location", self.ca_location))
        return tuple(f"--registry-{name}={value}" for name, value in said if value)

    @classmethod
    def of_arguments(cls, arguments: Sequence[str]) -> RegistryAccess:
        parser = ArgumentParser(description=__doc__)
        for name in ("url", "user-info", "ca-location"):
            parser.add_argument(f"--registry-{name}", default="")
        said = parser.parse_args(arguments)
        return cls(said.registry_url, said.registry_user_info, said.registry_ca_location)
