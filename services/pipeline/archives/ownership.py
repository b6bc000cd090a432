"""One driver at a time writes a folder: the one that started last. An earlier driver detects this before it writes.

    FOLDER/_owner     the driver that writes: a unique token for each run, and for people the machine and the process

Spark itself refuses a second writer of a checkpoint if both plan the same batch. Spark does not detect two drivers that
repeat a planned batch: each driver would add its records.
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
    """Takes and checks the ownership of one folder, for one run."""

    def __init__(self, files: HadoopFolder) -> None:
        self._files = files
        self._token = str(uuid.uuid4())

    def take(self) -> None:
        """Makes this run the one that writes the folder."""
        about = {"token": self._token, "host": socket.gethostname(), "pid": os.getpid()}
        self._files.make("")
        self._files.write(OWNER, json.dumps(about))

    def check(self) -> None:
        """FencedError if another run has taken the folder.

        A missing `_owner` file is no error.
        """
        about = json.loads(self._files.read(OWNER)) if self._files.exists(OWNER) else {}
        if about.get("token", self._token) != self._token:
            raise FencedError(
                f"{self._files.root} is written by process {about.get('pid')} on {about.get('host')} now: "
                "one driver at a time writes a folder; stop one of them"
            )
