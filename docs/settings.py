"""The tables of docs/reference/*-settings.md, from the classes of settings: each field with its text.

A table may name a class that the service's class inherits, and has its fields then; one table has all others.

The text of a field is its description, or the docstring below the field. A path of a page in it, `docs/…/page.md`,
becomes a link.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from docs.tables import REFERENCE, ROOT, filled, places, table
from mesh.settings import ServiceSettings
from services.console.settings import ConsoleSettings
from services.control.settings import ControlSettings
from services.gateway.settings import GatewaySettings
from services.pipeline.settings import PipelineSettings
from services.router.settings import RouterSettings
from services.sidecar.settings import SidecarSettings

SETTINGS: Mapping[str, type[ServiceSettings]] = {
    "console": ConsoleSettings,
    "control": ControlSettings,
    "gateway": GatewaySettings,
    "pipeline": PipelineSettings,
    "router": RouterSettings,
    "sidecar": SidecarSettings,
}
_FIELD = re.compile(r"`[^`]*`|\b[a-z0-9_]+\b")
_PAGE = re.compile(r"`docs/([\w/-]+\.md)(#[\w-]+)?`")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as a page shows it."""

    name: str
    values: str
    default: str
    meaning: str


def settings(service: str) -> list[Setting]:
    """The settings of a service: those of its own class first, then those of the parts."""
    of = SETTINGS[service]
    shapes = of.model_json_schema()
    texts = {name: text for part in reversed(of.__mro__) for name, text in _texts(part)}
    names = [name for part in of.__mro__ for name in inspect.get_annotations(part) if name in of.model_fields]
    return [
        Setting(
            name.upper(),
            _values(shapes["properties"][name], shapes.get("$defs", {})),
            _default(of.model_fields[name]),
            _in_capitals(" ".join((of.model_fields[name].description or texts.get(name, "")).split()), of),
        )
        for name in dict.fromkeys(names)
    ]


def page(service: str) -> Path:
    return REFERENCE / f"{service}-settings.md"


def written(service: str) -> str:
    """The page with the tables that the code gives. ValueError if the page has no place for some settings."""
    known, names = settings(service), places(page(service))
    parts = {each.__name__: each for each in SETTINGS[service].__mro__}
    fields = {name: {field.upper() for field in inspect.get_annotations(parts[name])} for name in names if name}
    fields[""] = {each.name for each in known}.difference(*fields.values())
    return filled(
        page(service), {name: _table(each for each in known if each.name in of) for name, of in fields.items()}
    )


def _table(shown: Iterable[Setting]) -> str:
    rows = ((f"`{each.name}`", each.values, each.default, _linked(each.meaning)) for each in shown)
    return table(("name", "values", "default", "meaning"), rows)


def _texts(part: type) -> Iterator[tuple[str, str]]:
    """The docstring below each field of a class."""
    if not issubclass(part, BaseModel) or not inspect.get_annotations(part):
        return
    (defined,) = ast.parse(textwrap.dedent(inspect.getsource(part))).body
    assert isinstance(defined, ast.ClassDef), f"{part} is made by a class statement"
    for field, below in zip(defined.body, defined.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                yield name, text


def _in_capitals(text: str, of: type[BaseModel]) -> str:
    """The text with names of fields as the page has them."""

    def shown(found: re.Match[str]) -> str:
        word = found[0].strip("`")
        return f"`{word.upper()}`" if word in of.model_fields and "_" in word else found[0]

    return _FIELD.sub(shown, text)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if field.default is PydanticUndefined and default:
        return "see the meaning"  # made at the start, of this machine
    text = ",".join(map(_written, default)) if isinstance(default, tuple) else _written(default)
    return "empty" if text in ("", "None", "{}", "**********") else f"`{text}`"


def _written(default: object) -> str:
    """A default as the environment would have it."""
    match default:
        case Enum():
            return str(default.value if isinstance(default.value, str) else default.name.lower())
        case bool() | float():
            return str(default).lower().removesuffix(".0")
        case _:
            return str(default)


def _values(shape: Mapping[str, Any], defined: Mapping[str, Any]) -> str:
    if "anyOf" in shape:
        return _values(next(each for each in shape["anyOf"] if each.get("type") != "null"), defined)
    if "$ref" in shape:
        return _values(defined[shape["$ref"].rpartition("/")[2]], defined)
    match shape:
        case {"enum": values} if all(isinstance(each, str) for each in values):
            return " or ".join(f"`{each}`" for each in values)
        case {"type": "array", "items": {"type": "string"}}:
            return "list, with commas"
        case {"type": "array", "items": {"$ref": where}} if "enum" in defined[where.rpartition("/")[2]]:
            return f"list, with commas, of {_values(shape['items'], defined)}"
        case {"type": "array"}:
            return "JSON list"
        case {"type": "object"}:
            return "JSON object"
        case {"type": "boolean"}:
            return "`true` or `false`"
        case {"type": "integer" | "number" as kind}:
            return _range(shape, "whole number" if kind == "integer" else "number")
        case {"format": "path"}:
            return "path"
        case _:
            return "text"


def _range(shape: Mapping[str, Any], kind: str) -> str:
    words = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}
    bounds = [
        f"{word} {shape[key]:,}".removesuffix(".0").replace(",", " ") for key, word in words.items() if key in shape
    ]
    return ", ".join([kind, *bounds])


def _linked(text: str) -> str:
    """Paths of pages become links with the pages' titles."""

    def link(found: re.Match[str]) -> str:
        path, heading = found[1], found[2] or ""
        title = (ROOT / "docs" / path).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        where = path.removeprefix("reference/") if path.startswith("reference/") else f"../{path}"
        return f"[{title}]({where}{heading})"

    return _PAGE.sub(link, text)
