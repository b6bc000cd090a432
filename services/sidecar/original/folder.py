"""A folder of the original's configuration: its files with their placeholders filled. A shipped file stands in for each
file that the folder lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from services.sidecar.original.placeholders import PlaceholderError, Values

ENDINGS = (".yml", ".yaml", ".json")
"""The endings of files, in the original's order; JSON is YAML too."""
LARGEST_FILE = 1024 * 1024
SHIPPED = Path(__file__).with_name("shipped")

SERVED = (
    "server",
    "service",
    "kafka-producer",
    "kafka-consumer",
    "kafka-ksqldb",
    "kafka-streams",
    "security",
    "client",
    "health",
    "info",
    "logging",
    "chaos-monkey",
)
"""Files that have settings for this sidecar."""
BEFORE = "openapi-security"
NOT_USED = {
    "kafka-admin": "is not used: health asks as the producer does",
}
"""Files of parts that need no settings of their own, with the text of the warning about each."""
WITHOUT_MEANING = frozenset(
    {
        "app-status", "audit", "body", "cluster", "config", "correlation", "direct-registry", "exception", "handler",
        "header", "limit", "metrics", "openapi", "openapi-handler", "openapi-validator", "portal-registry", "primary",
        "registry", "sanitizer", "secret", "specification", "status", "traceability", "unified-security", "values",
    }
)  # fmt: skip
"""Files of the platform below the original; this sidecar has its own equivalent, or none."""


class OriginalConfigError(ValueError):
    """A folder, or a file in the folder, cannot be read as the original's configuration."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The files by name, and the warnings about the folder."""

    path: Path
    files: Mapping[str, Mapping[str, Any]]
    own: frozenset[str]
    """Names of the files that the folder contains, or sets values of."""
    values: Values
    warnings: list[str] = field(default_factory=list)

    def differs(self, file: str, name: str) -> bool:
        """Whether a setting differs from the value that the original ships."""
        usual = Values({}, {}).fill(_shipped(SHIPPED / f"{file}.yml"))
        return bool(self.files[file].get(name) != usual.get(name))

    def says(self, key: str) -> bool:
        """Whether somebody set the key: in values.yml, in the environment, or in a file of the folder."""
        return self.values.gives(key) or key.partition(".")[0] in self.own


def read(path: Path, environment: Mapping[str, str]) -> Folder:
    """Reads a folder. Raises OriginalConfigError."""
    if not path.is_dir():
        raise OriginalConfigError(
            f"{path} is no folder; it should have the original's kafka-producer.yml or values.yml"
        )
    found = {file.stem: file for ending in reversed(ENDINGS) for file in sorted(path.glob(f"*{ending}"))}
    values = Values(_mapping(found["values"]) if "values" in found else {}, environment)
    files = {name: _filled(found.get(name, SHIPPED / f"{name}.yml"), values) for name in SERVED}
    files["security"] = {**files["security"], **_security_of_before(found, values)}
    own = frozenset(name for name in SERVED if name in found)
    folder = Folder(path, files, own | ({"security"} if BEFORE in found else frozenset()), values)
    _tell_of_others(found, folder)
    return folder


def _security_of_before(found: Mapping[str, Path], values: Values) -> Mapping[str, Any]:
    """The content of openapi-security.yml, the earlier name of security.yml."""
    if BEFORE in found:
        return _filled(found[BEFORE], values)
    return {
        name: values.fill(f"${{{BEFORE}.{name}}}")
        for name in ("enableVerifyJwt", "enableVerifyScope", "ignoreJwtExpiry")
        if values.gives(f"{BEFORE}.{name}")
    }


def _tell_of_others(found: Mapping[str, Path], folder: Folder) -> None:
    for name, file in sorted(found.items()):
        if name in NOT_USED:
            folder.warnings.append(f"{file.name} {NOT_USED[name]}")
        elif name not in SERVED and name not in WITHOUT_MEANING and name != BEFORE:
            folder.warnings.append(f"{file.name} is not known here, and not used")
    if "values" in found:
        for key in _mapping(found["values"]):
            file_of = str(key).partition(".")[0]
            if key in folder.values.asked or file_of in WITHOUT_MEANING:
                continue
            why = NOT_USED.get(file_of, "is not known here, and not used")
            folder.warnings.append(f"{found['values'].name}: {key} {why}")


def _filled(file: Path, values: Values) -> Mapping[str, Any]:
    content = _shipped(file) if file.parent == SHIPPED else _mapping(file)
    try:
        filled: Mapping[str, Any] = values.fill(content)
    except PlaceholderError as error:
        raise OriginalConfigError(f"{file.name}: {error}") from None
    return filled


@cache
def _shipped(file: Path) -> Mapping[str, Any]:
    return _mapping(file)


def _mapping(file: Path) -> Mapping[str, Any]:
    try:
        with file.open("rb") as opened:
            content = yaml.safe_load(opened.read(LARGEST_FILE)) or {}
    except OSError as error:
        raise OriginalConfigError(f"{file}: {error.strerror or type(error).__name__}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        place = getattr(error, "problem_mark", None)
        line = f", line {place.line + 1}" if place is not None else ""
        raise OriginalConfigError(f"{file} is not YAML{line}") from None
    if not isinstance(content, dict):
        raise OriginalConfigError(f"{file}: expected a mapping, got {type(content).__name__}")
    return content
