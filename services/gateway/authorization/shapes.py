"""The shapes of guards: a need of the whole request, and needs of each item of a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mesh.acls import Operation, ResourceType
from mesh.acls.acl import CLUSTER_NAME
from services.gateway.authorization.asking import Asking, Guard
from services.gateway.authorization.refusals import CODES
from services.gateway.requests.plan import Close, NoAnswer, Plan
from services.gateway.wire.error_words import words_of
from services.gateway.wire.errors import ErrorCode
from services.gateway.wire.schema import NO_UUID, Struct, fields_of

Need = Callable[[Asking, Any], int]
"""The error code of the refusal of a request, or an item of it; 0: it is allowed."""
Refused = Callable[[Any, int], Any]
"""The answer to a request, or an item of it, that is refused with this code."""


def needs(operation: Operation, resource_type: ResourceType, name: str = "") -> Need:
    """The resource has the name that is in this field; without a field it is the cluster."""

    def need(asking: Asking, asked: Any) -> int:
        resource = asked if isinstance(asked, str) else getattr(asked, name) or "" if name else CLUSTER_NAME
        return 0 if asking.may(operation, resource_type, resource) else CODES[resource_type]

    return need


def cluster(operation: Operation) -> Need:
    def need(asking: Asking, _: Any) -> int:
        return 0 if asking.may(operation, ResourceType.CLUSTER) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    return need


def cluster_or(operation: Operation, other: Need) -> Need:
    """The operation on the cluster is enough; a client without it needs the other, and hears of that alone."""

    def need(asking: Asking, asked: Any) -> int:
        return 0 if asking.access.allows(operation, ResourceType.CLUSTER) else other(asking, asked)

    return need


def each_topic(operation: Operation, names: Callable[[Any], Sequence[str]]) -> Need:
    def need(asking: Asking, asked: Any) -> int:
        refused = [each for each in names(asked) if not asking.may(operation, ResourceType.TOPIC, each)]
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if refused else 0

    return need


def top(response: type[Any], **given: Any) -> Refused:
    """An answer with an error for the whole request, and Kafka's words where it has a text."""
    has_text = any(name == "error_message" for name, _, _ in fields_of(response))

    def refused(_: Any, code: int) -> Any:
        return response(**given, error_code=code, **({"error_message": words_of(code)} if has_text else {}))

    return refused


def fitted(part: Any, version: int) -> Any:
    """Without what this version of the answer does not carry."""
    for name, spec, default in fields_of(type(part)):
        if not spec.present(version):
            setattr(part, name, default())
    return part


def whole(request: type[Struct], *conditions: Need, refused: Refused) -> Guard:
    """The request goes on or is refused as a whole."""

    def guard(asking: Asking) -> Plan:
        message = asking.request.decode(request)
        for need in conditions:
            code = need(asking, message)
            if code:
                return fitted(refused(message, code), asking.request.version)  # type: ignore[no-any-return]
        return (yield from asking.pass_on())

    return guard


def rows(
    request: type[Struct],
    response: type[Any],
    fields: tuple[str, str],
    need: Need,
    refused: Refused,
    *,
    first: Sequence[Need] = (),
    all_refused: Refused | None = None,
) -> Guard:
    """Each item of a list goes on or is refused.

    `fields`: of the items in the request, and of their results in the answer. `first`: if one of these is not allowed,
    all items are refused for that, or `all_refused` makes the answer.
    """
    items, results = fields

    def guard(asking: Asking) -> Plan:
        message = asking.request.decode(request)
        asked: list[Any] = getattr(message, items)
        code = next((code for each in first if (code := each(asking, message))), 0)
        if code:
            if all_refused is not None:
                return fitted(all_refused(message, code), asking.request.version)  # type: ignore[no-any-return]
            return response(**{results: [refused(each, code) for each in asked]})  # type: ignore[no-any-return]
        names = yield from asking.names([each.topic_id for each in asked if is_by_id(each)])
        kept, left_out = divided(asking, asked, need, names)
        if not left_out:
            return (yield from asking.pass_on())
        told = [refused(each, code) for each, code in left_out]
        if not kept:
            return response(**{results: told})  # type: ignore[no-any-return]
        setattr(message, items, kept)
        answer = yield from asking.go_on(message, response)
        if not isinstance(answer, NoAnswer | Close):
            getattr(answer, results).extend(told)
        return answer

    return guard


def divided(
    asking: Asking, asked: Sequence[Any], need: Need, names: Mapping[bytes, str]
) -> tuple[list[Any], list[tuple[Any, int]]]:
    """The items that go on, and the others with their errors. `names`: of the topics that are asked for by id.

    The topic of an unknown id may be known to a cluster a moment later, so such an item does not go on.
    """
    kept: list[Any] = []
    left_out: list[tuple[Any, int]] = []
    for each in asked:
        code = 0
        if is_by_id(each):
            name = names.get(each.topic_id)
            if name is not None:
                code = need(asking, name)
            elif asking.enforces:
                code = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            code = need(asking, each)
        if code:
            left_out.append((each, code))
        else:
            kept.append(each)
    return kept, left_out


def is_by_id(item: Any) -> bool:
    """Whether the item names its topic by id alone."""
    if getattr(item, "topic_id", NO_UUID) == NO_UUID:
        return False
    return not (getattr(item, "name", "") or getattr(item, "topic", ""))
