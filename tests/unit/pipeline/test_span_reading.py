"""Why nothing comes of a span: its cluster is away, and not a transaction open."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from services.pipeline.kafka.positions import Span, UnreachableError
from services.pipeline.kafka.reader import SpanReader


def test_a_cluster_that_is_away_is_told_as_such() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nobody.listen()  # and says nothing
        servers = f"127.0.0.1:{nobody.getsockname()[1]}"
        with (
            closing(SpanReader({"bootstrap.servers": servers}, stall_timeout_s=0.5)) as reader,
            pytest.raises(UnreachableError, match=r"apples/0 stands at offset 3 of 9 for \d+ s: .*"),
        ):
            list(reader.read([Span("apples", 0, 3, 9)]))
