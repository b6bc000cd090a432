"""The changes that a rule makes to its records, as one function from content to content."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mesh.judging.records import Content, UnjudgedError
from mesh.judging.redaction import Redaction
from mesh.judging.values import UnreadableError
from mesh.record_transforms import check_transform, json_path
from mesh.rpc import record_rules

Change = Callable[[Content], Content]


class Transforms:
    """Applies a rule's transforms in their order."""

    def __init__(self, transforms: Iterable[record_rules.Transform]) -> None:
        """InvalidTransformError when one of them can't be."""
        self._changes = [_change(transform) for transform in transforms]

    def __call__(self, content: Content) -> Content:
        for change in self._changes:
            content = change(content)
        return content


def _change(transform: record_rules.Transform) -> Change:
    check_transform(transform)
    match transform.WhichOneof("kind"):
        case "set_header":
            return _setting(transform.set_header.name, transform.set_header.value.encode())
        case "drop_header":
            return _dropping(transform.drop_header)
    return _redacting(transform.redact_json_field)


def _setting(name: str, value: bytes) -> Change:
    header = (name, value)

    def set_header(content: Content) -> Content:
        return Content(content.value, [each for each in content.headers if each[0] != name] + [header])

    return set_header


def _dropping(name: str) -> Change:
    def drop_header(content: Content) -> Content:
        return Content(content.value, [each for each in content.headers if each[0] != name])

    return drop_header


def _redacting(path: str) -> Change:
    redaction = Redaction(json_path(path))

    def redact_field(content: Content) -> Content:
        if content.value is None:
            return content
        try:
            return Content(redaction(content.value), content.headers)
        except UnreadableError as error:
            raise UnjudgedError(f"{path} can't be redacted: {error}") from None

    return redact_field
