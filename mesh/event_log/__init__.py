"""The log as all who read it agree on: events of any release and size, and the chain of hashes through them. No I/O."""

from mesh.event_log.chain import Chain
from mesh.event_log.formats import FORMAT, NewerFormatError, upcast
from mesh.event_log.pieces import MOST_EVENT_BYTES, PIECE_BYTES, Assembler, DamagedPieceError, records_of

__all__ = [
    "FORMAT",
    "MOST_EVENT_BYTES",
    "PIECE_BYTES",
    "Assembler",
    "Chain",
    "DamagedPieceError",
    "NewerFormatError",
    "records_of",
    "upcast",
]
