"""One driver at a time writes a folder: the one that came last. An earlier one finds that out before it writes.

    FOLDER/_owner     who writes: a token that no other run has, and for people the machine and the process

Spark itself refuses a second writer of a checkpoint when both plan the same batch. It does not see two drivers that run
a batch again which was planned before: each would add its records.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from typing import TYPE_CHECKING

from services.pipeline.positions import StreamError

if TYPE_CHECKING:
    from services.pipeline.archives.hadoop import HadoopFolder

OWNER = "_owner"


class FencedError(StreamError):
    """Another driver writes the folder."""


class FolderOwner:
    """Of one folder, for one run."""

    def __init__(self, files: HadoopFolder) -> None:
        self._files = files
        self._token = str(uuid.uuid4())

    def take(self) -> None:
        """From now on this run is the one that writes."""
        about = {"token": self._token, "host": socket.gethostname(), "pid": os.getpid()}
        self._files.make("")
        self._files.write(OWNER, json.dumps(about))

    def check(self) -> None:
        """FencedError when another run has taken the folder, or somebody has removed the note."""
        about = json.loads(self._files.read(OWNER)) if self._files.exists(OWNER) else {}
        if about.get("token", self._token) != self._token:
            raise FencedError(
                f"{self._files.root} is written by process {about.get('pid')} on {about.get('host')} now: "
                "one driver at a time writes a folder; stop one of them"
            )
