"""The name of a compiled copy of the walks: the build makes the copy under this name, and a gateway takes no other.

The name has the version of Python and a digest of the sources, so a copy of other sources is never taken for a copy of
these. The build runs this file by itself, before anything else of the mesh can be imported.
"""

import hashlib
import sys
from pathlib import Path
from typing import Final

COPIES: Final = Path(__file__).with_name("compiled")
SOURCES: Final = Path(__file__).with_name("walks")

MODULES: Final = ("readers", "headers", "produce", "produce_response", "fetch_request", "fetch_response")
"""The sources that are compiled: all but `octets`, which has C of its own."""

DIRECTIVES: Final = {
    "language_level": 3,
    "annotation_typing": False,  # an `int` of Python's is what it says in the `.pxd`
    "boundscheck": False,  # each walk compares with its `end`
    "wraparound": False,
    "initializedcheck": False,
}
"""The directives for Cython."""


def name_of_copy() -> str:
    digest = hashlib.sha256(repr(sorted(DIRECTIVES.items())).encode())
    for path in sorted(SOURCES.glob("*.p*")):
        if path.suffix in (".py", ".pxd"):
            digest.update(b"\0".join((path.name.encode(), path.read_bytes(), b"")))
    return f"{sys.implementation.cache_tag}_{digest.hexdigest()[:16]}".replace("-", "_")
