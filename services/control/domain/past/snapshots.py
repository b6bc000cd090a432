"""The view as bytes and back, by the types of its fields: a new field is in the next snapshot by itself.

`FORMAT` names the shape of the view and the way in which it follows from events. Control does not read snapshots of
another format, because the log gives the view anyway. Only one change has to be declared: if `apply` makes something
else of old events, the change has to raise FOLD.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from hashlib import sha256
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from google.protobuf.message import DecodeError, Message

from mesh.event_log import FORMAT as EVENT_FORMAT
from mesh.routing import InvalidRuleError, RoutingState
from mesh.routing.state_codec import state_from_proto, state_to_proto
from mesh.rpc import snapshots
from services.control.domain.view import MeshView

FOLD = 3
"""The version of the view that `apply` makes of events, here and in `mesh`."""
FAST = 1
"""zlib's level: control writes a snapshot more often than it sends one anywhere."""


class SnapshotError(ValueError):
    """The bytes are no view."""


@dataclass(frozen=True, slots=True)
class _Form:
    """How values of one type become JSON and back, and the shape of that JSON."""

    shape: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def view_to_bytes(view: MeshView) -> bytes:
    return zlib.compress(json.dumps(_VIEW.write(view), separators=(",", ":")).encode(), FAST)


def view_from_bytes(body: bytes) -> MeshView:
    """The view, equal to the written view; SnapshotError when the bytes are no view."""
    try:
        view: MeshView = _VIEW.read(json.loads(zlib.decompress(body)))
    except (zlib.error, ValueError, TypeError, LookupError, DecodeError, InvalidRuleError) as error:
        raise SnapshotError(f"not a view of format {FORMAT}: {error!r}") from None
    return view


def _form_of(kind: Any) -> _Form:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in (str, int, float, bool):
        return _Form(kind.__name__, _as_it_is, _as_it_is)
    if kind is RoutingState:
        return _routing_form()
    if kind is datetime:
        return _Form("datetime", datetime.isoformat, datetime.fromisoformat)
    if isinstance(kind, type) and issubclass(kind, Message):
        return _message_form(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _Form(kind.__name__, lambda value: value.value, kind)
    if is_dataclass(kind):
        return _dataclass_form(kind)
    if origin in (dict, Mapping):
        return _mapping_form(*map(_form_of, arguments))
    if origin is frozenset:
        return _set_form(_form_of(arguments[0]))
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return _tuple_form(_form_of(arguments[0]))
    if origin in (Union, UnionType) and len(arguments) == 2 and arguments[1] is NoneType:
        return _optional_form(_form_of(arguments[0]))
    raise TypeError(f"a snapshot has no form for {kind}: give it one here")


def _as_it_is(value: Any) -> Any:
    return value


def _routing_form() -> _Form:
    message = _message_form(snapshots.RoutingState)
    return _Form(
        "RoutingState",
        lambda state: message.write(state_to_proto(state)),
        lambda text: state_from_proto(message.read(text)),
    )


def _message_form(kind: type[Message]) -> _Form:
    def write(message: Message) -> str:
        return base64.b64encode(message.SerializeToString(deterministic=True)).decode()

    return _Form(kind.DESCRIPTOR.full_name, write, lambda text: kind.FromString(base64.b64decode(text)))


def _dataclass_form(kind: Any) -> _Form:
    bases = [(get_origin(base), get_args(base)) for base in getattr(kind, "__orig_bases__", ())]
    given = {of: said for base, known in bases for of, said in zip(base.__parameters__, known, strict=True)}
    types = {name: _filled(each, given) for name, each in get_type_hints(kind).items()}
    forms = {each.name: _form_of(types[each.name]) for each in fields(kind)}
    return _Form(
        f"{kind.__name__}({','.join(f'{name}:{form.shape}' for name, form in forms.items())})",
        lambda value: [form.write(getattr(value, name)) for name, form in forms.items()],
        lambda values: kind(*(form.read(each) for form, each in zip(forms.values(), values, strict=True))),
    )


def _filled(hint: Any, given: Mapping[Any, Any]) -> Any:
    """A type with what its class gives for its variables."""
    variables = getattr(hint, "__parameters__", ())
    return hint[tuple(given[each] for each in variables)] if variables else hint


def _mapping_form(key: _Form, value: _Form) -> _Form:
    return _Form(
        f"{{{key.shape}:{value.shape}}}",
        lambda items: [[key.write(k), value.write(v)] for k, v in items.items()],
        lambda pairs: {key.read(k): value.read(v) for k, v in pairs},
    )


def _set_form(member: _Form) -> _Form:
    return _Form(
        f"set[{member.shape}]",
        lambda members: sorted(map(member.write, members)),
        lambda members: frozenset(map(member.read, members)),
    )


def _tuple_form(member: _Form) -> _Form:
    return _Form(
        f"[{member.shape}]",
        lambda members: list(map(member.write, members)),
        lambda members: tuple(map(member.read, members)),
    )


def _optional_form(form: _Form) -> _Form:
    return _Form(
        f"{form.shape}?",
        lambda value: None if value is None else form.write(value),
        lambda value: None if value is None else form.read(value),
    )


_VIEW = _form_of(MeshView)
FORMAT = f"{EVENT_FORMAT}.{FOLD}-{sha256(_VIEW.shape.encode()).hexdigest()[:12]}"
"""The format of events, of the fold, and of the view's shape."""
