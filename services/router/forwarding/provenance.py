"""The origin of a record: the one header that a record rule adds to the records that it writes. No I/O.

    mesh-origin: 182736 apples 4L6g3nShT-eMCtK--X86sw,TnbZb0V9S2uZOTVFNJ1kyA

1. The header holds the offset on the source cluster, the id of the rule, and the Kafka cluster ids of all clusters that
   the record has been on. The source cluster comes last.
2. Kafka's own cluster ids, not the mesh's names: a cluster may be registered anew, under another name, or twice.
3. A mirror writes no record to a cluster that is named there. So whatever mirrors an operator sets up, in circles, too,
   a record is on each cluster once.
4. The next rule that reads a record puts its own header in place of the one it finds. A header of this name that says
   something else is the application's own: it stays, and ours comes behind it.
5. The offset makes the target's log its own offset map: see `translation`.
"""

from __future__ import annotations

from dataclasses import dataclass

from mesh.judging.records import Headers

HEADER = "mesh-origin"


@dataclass(frozen=True, slots=True)
class Origin:
    """The content of the header."""

    offset: int
    rule_id: str
    clusters: tuple[str, ...]


def origin_of(headers: Headers | None) -> Origin | None:
    """The content of the last header of this name; None if no record rule wrote one."""
    for name, value in reversed(headers or ()):
        if name == HEADER:
            return _read(value)
    return None


class Stamp:
    """Makes the headers of records that one rule reads from one cluster and writes."""

    def __init__(self, rule_id: str, source: str) -> None:
        """`source`: its Kafka cluster id."""
        self._rule_id = rule_id
        self._source = source
        self.first_tail = f" {rule_id} {source}".encode()
        """The text behind the offset, for a record that no rule has written yet. Most records are such."""

    def clusters(self, headers: Headers | None) -> tuple[str, ...]:
        """The clusters that a record with these headers has been on before. The source counts only if the record came
        back to the source.
        """
        origin = origin_of(headers) if headers else None
        return origin.clusters if origin else ()

    def stamped(self, headers: Headers | None, offset: int, topic: str = "") -> Headers:
        """These headers with our own in place of one that we find. `topic`: where the record goes."""
        if not headers:
            return [(HEADER, b"%d%b" % (offset, self.first_tail))]
        origin = origin_of(headers)
        if origin is None:
            return [*headers, (HEADER, b"%d%b" % (offset, self.first_tail))]
        path = (*(cluster for cluster in origin.clusters if cluster != self._source), self._source)
        value = f"{offset} {self._rule_id} {','.join(path)}".encode()
        return [each for each in headers if each[0] != HEADER or _read(each[1]) is None] + [(HEADER, value)]

    def ended(self, failure: str = "") -> None:
        """The records so far are committed, or given up for this reason."""


def _read(value: bytes | None) -> Origin | None:
    match (value or b"").split(b" "):
        case [offset, rule_id, clusters] if offset.isdigit() and rule_id and clusters:
            try:
                return Origin(int(offset), rule_id.decode(), tuple(clusters.decode().split(",")))
            except UnicodeDecodeError:
                return None
    return None
