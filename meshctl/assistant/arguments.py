"""The types of arguments that several tools share: each says its meaning and its bounds in the tool's schema."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Protocol

from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import Field

MOST_NAME = 500
"""Characters of a name: longer than any name of Kafka."""
USUAL_PAGE = 25

Size = Annotated[int, Field(ge=1, le=100, description="At most so many items.")]
Token = Annotated[str, Field(max_length=5000, description="next_page_token of the answer before; empty at first.")]
Topic = Annotated[str, Field(min_length=1, max_length=MOST_NAME, description="A topic, as clients name it.")]
Group = Annotated[str, Field(min_length=1, max_length=MOST_NAME, description="A consumer group.")]
Cluster = Annotated[str, Field(min_length=1, max_length=MOST_NAME, description="The cluster_name of a cluster.")]
Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME)]
Text = Annotated[str, Field(max_length=MOST_NAME)]
Hours = Annotated[float, Field(gt=0, le=24 * 366, description="The last so many hours.")]
Reason = Annotated[str, Field(min_length=1, max_length=1000, description="Why, for the history of the mesh.")]


class _WithStart(Protocol):
    @property
    def start_time(self) -> Timestamp: ...


def since(request: _WithStart, hours: float) -> None:
    """Sets the start of a question about the last hours."""
    request.start_time.FromDatetime(datetime.now(UTC) - timedelta(hours=hours))


def named(kind: str, name: str) -> str:
    """The resource name of a thing: "rules/apples", whether "apples" or that is given."""
    return name if name.startswith(f"{kind}/") else f"{kind}/{name}"
