"""What a compiled copy of the walks is called: the build makes it under that name, and a gateway looks for no other.

The name says which Python it is for, and holds a digest of what it was made of: a copy of other sources is never taken
for theirs. The build runs this file by itself, before anything else of the mesh can be imported.
"""

import hashlib
import sys
from pathlib import Path
from typing import Final

COPIES: Final = Path(__file__).with_name("compiled")
SOURCES: Final = Path(__file__).with_name("walks")

MODULES: Final = ("readers", "headers", "produce", "produce_response", "fetch_request", "fetch_response")
"""What is compiled of the sources: all but `octets`, which has C of its own."""

DIRECTIVES: Final = {
    "language_level": 3,
    "annotation_typing": False,  # an `int` of Python's is what it says in the `.pxd`
    "boundscheck": False,  # each walk compares with its `end`
    "wraparound": False,
    "initializedcheck": False,
}
"""What Cython is told."""


def name_of_copy() -> str:
    digest = hashlib.sha256(repr(sorted(DIRECTIVES.items())).encode())
    for path in sorted(SOURCES.glob("*.p*")):
        if path.suffix in (".py", ".pxd"):
            digest.update(b"\0".join((path.name.encode(), path.read_bytes(), b"")))
    return f"{sys.implementation.cache_tag}_{digest.hexdigest()[:16]}".replace("-", "_")
