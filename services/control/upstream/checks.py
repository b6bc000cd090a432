"""Producer and consumer configurations, checked by librdkafka itself: a wrong property is named at once, not at
first use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer

from services.control.domain.clusters.properties import names_a_file
from services.control.domain.errors import InvalidField
from services.control.upstream.references import resolved

NOWHERE = {"bootstrap.servers": "127.0.0.1:9", "log_level": "0"}
"""Properties of clients made for a check: the discard port, to which no client exists long enough to connect."""
QUOTED = re.compile(r'property "([^"]+)"')


def check_with_librdkafka(spec_field: str, producer: Mapping[str, str], consumer: Mapping[str, str]) -> None:
    """InvalidField names the property and its value. May block for some milliseconds: call it from a worker thread."""
    _check(f"{spec_field}.producer_config", producer, lambda config: Producer(config).flush(0))
    if consumer.get("group.id", "kafka-mesh") == "":
        # librdkafka aborts the whole process over this one
        raise InvalidField(
            f"{spec_field}.consumer_config[group.id]", "must not be empty; leave it out for the mesh's own group"
        )
    _check(
        f"{spec_field}.consumer_config", consumer, lambda config: Consumer({"group.id": "kafka-mesh", **config}).close()
    )


def _check(field: str, properties: Mapping[str, str], construct: Callable[[dict[str, str]], object]) -> None:
    if not properties:
        return
    for name, value in properties.items():
        if names_a_file(name) and is_neither_file_nor_folder(value):
            raise InvalidField(f"{field}[{name}]", f"{value} is neither a file nor a folder")
    values = {name: resolved(f"{field}[{name}]", value) for name, value in properties.items()}
    try:
        construct({**values, **NOWHERE})
    except (KafkaException, ValueError, TypeError) as error:
        reason = _sentence(error)
        culprit = _culprit(reason, values, construct)
        place = f"{field}[{culprit}]" if culprit else field
        if values == properties:
            shown = f" (value {properties[culprit]!r})" if culprit else ""
            raise InvalidField(place, f"librdkafka: {reason}{shown}") from None
        # librdkafka may repeat a value, and some values are secrets now
        text = "librdkafka refuses it; its reason is not repeated, for it may hold a secret"
        raise InvalidField(place, text) from None


def is_neither_file_nor_folder(path: str) -> bool:
    """Whether the path is a device or a pipe, say: reading it may never end. Gateways report a path that is missing."""
    return Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir())


def _culprit(reason: str, values: dict[str, str], construct: Callable[[dict[str, str]], object]) -> str:
    """The property that librdkafka means. If librdkafka names an older alias, each property is tried alone."""
    quoted = QUOTED.search(reason)
    if quoted and quoted[1] in values:
        return quoted[1]
    for name, value in values.items():
        try:
            construct({name: value, **NOWHERE})
        except (KafkaException, ValueError, TypeError) as error:
            if _sentence(error) == reason:
                return name
    return ""


def _sentence(error: Exception) -> str:
    text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
    return str(text).strip()
