"""The log as all who read it agree on: events of any release and size, their chain of hashes, and their signatures.

No I/O.
"""

from mesh.event_log.chain import Chain
from mesh.event_log.formats import FORMAT, NewerFormatError, upcast
from mesh.event_log.pieces import MOST_EVENT_BYTES, PIECE_BYTES, Assembler, DamagedPieceError, records_of
from mesh.event_log.signatures import CONTROL, ROUTER, Signatures, SigningKeyError, Signs, UnsignedError, signed_event
from mesh.event_log.signed_end import SignedEnd

__all__ = [
    "CONTROL",
    "FORMAT",
    "MOST_EVENT_BYTES",
    "PIECE_BYTES",
    "ROUTER",
    "Assembler",
    "Chain",
    "DamagedPieceError",
    "NewerFormatError",
    "Signatures",
    "SignedEnd",
    "SigningKeyError",
    "Signs",
    "UnsignedError",
    "records_of",
    "signed_event",
    "upcast",
]
