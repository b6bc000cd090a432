"""The folders of the job `audit`: one for each cluster, with its days and its checkpoint, wherever Hadoop reaches."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import structlog

from services.pipeline.positions import StreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT = "_checkpoint"  # readers pass by what begins with an underscore
DAY_FOLDERS = "day=*"

log = structlog.get_logger(__name__)


class FolderError(StreamError):
    """The events can't be written there."""


def cluster_folder(folder: str, cluster: str) -> str:
    return f"{folder.rstrip('/')}/cluster={quote(cluster, safe='')}"


def check_folder(session: SparkSession, folder: str) -> None:
    """FolderError when there are days and no checkpoint: batch 0 would replace batch 0."""
    files, path = _files(session, folder)
    if _glob(session, files, path, DAY_FOLDERS) and not files.exists(_path(session, path, CHECKPOINT)):
        raise FolderError(
            f"{folder} holds days but no {CHECKPOINT}: what was read for it is unknown; "
            f"bring {CHECKPOINT} back, or move the days elsewhere"
        )


def delete_days_before(session: SparkSession, folder: str, first: date) -> None:
    """Of all clusters."""
    files, path = _files(session, folder)
    for found in _glob(session, files, path, f"cluster=*/{DAY_FOLDERS}"):
        day = found.getPath().getName().removeprefix("day=")
        if day < first.isoformat():
            files.delete(found.getPath(), True)
            log.info("old day deleted", folder=found.getPath().toString())


def _files(session: SparkSession, folder: str) -> tuple[Any, Any]:
    path = session._jvm.org.apache.hadoop.fs.Path(folder)
    return path.getFileSystem(session._jsc.hadoopConfiguration()), path


def _path(session: SparkSession, parent: Any, child: str) -> Any:
    return session._jvm.org.apache.hadoop.fs.Path(parent, child)


def _glob(session: SparkSession, files: Any, path: Any, pattern: str) -> list[Any]:
    return list(files.globStatus(_path(session, path, pattern)) or ())
