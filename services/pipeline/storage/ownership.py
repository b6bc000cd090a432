"""A folder that one driver at a time changes: the one that started last. The jobs `archive` and `audit` have such ones.

    FOLDER/_owner     the driver that writes: a unique token for each run, and for people the machine and the process

1. A run takes a folder once, at its start. It never takes the folder back: two drivers would take it from each other.
2. Each change checks first who owns the folder. So a driver that stood still, and goes on when another driver has taken
   the folder, changes nothing more. It gets a FencedError, and ends.
3. A driver may stand still between a check and its change. So a change should do no harm if it comes late. It concerns
   files that were listed before the check, and whose names no other file ever gets.

Spark itself refuses a second writer of a checkpoint if both plan the same batch. Spark does not detect two drivers that
repeat a planned batch: each driver would add its records.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from typing import TYPE_CHECKING

from services.pipeline.kafka.positions import StreamError
from services.pipeline.storage.hadoop import HadoopFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWNER = "_owner"


class FencedError(StreamError):
    """Another driver writes the folder."""


class OwnedFolder(HadoopFolder):
    """A folder for one run. Each change may raise FencedError."""

    def __init__(self, session: SparkSession, folder: str) -> None:
        super().__init__(session, folder)
        self._token = str(uuid.uuid4())
        self.is_taken = False
        """Whether this run has taken the folder; another run may have taken it since."""

    def take(self) -> None:
        """Makes this run the one that writes the folder; from the second call on, only checks."""
        if self.is_taken:
            self.check()
            return
        super().make("")
        super().write(OWNER, json.dumps({"token": self._token, "host": socket.gethostname(), "pid": os.getpid()}))
        self.is_taken = True

    def check(self) -> None:
        """FencedError if another run has taken the folder.

        A missing `_owner` file is no error.
        """
        about = json.loads(self.read(OWNER)) if self.exists(OWNER) else {}
        if about.get("token", self._token) != self._token:
            raise FencedError(
                f"{self.root} is written by process {about.get('pid')} on {about.get('host')} now: "
                "one driver at a time writes a folder; stop one of them"
            )

    def write(self, path: str, text: str) -> None:
        self.check()
        super().write(path, text)

    def make(self, path: str) -> None:
        self.check()
        super().make(path)

    def move(self, path: str, to: str) -> None:
        self.check()
        super().move(path, to)

    def delete(self, path: str) -> None:
        self.check()
        super().delete(path)
