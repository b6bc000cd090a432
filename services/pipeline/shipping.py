"""Packs this package as a file that executors of a cluster import, so that they run the driver's version.

Its dependencies (confluent-kafka, pyarrow, psycopg, ...) must be on the executors: in their image, or in the
environment that PYSPARK_PYTHON names.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("mesh", "services/__init__.py", "services/pipeline")
"""The packages that tasks may import."""
FILE = "kafka-mesh.zip"


def packed() -> Path:
    """The file; it exists as long as this process, for executors that start later."""
    folder = Path(tempfile.mkdtemp(prefix="kafka-mesh-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with zipfile.ZipFile(folder / FILE, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in SHIPPED:
            place = ROOT / part
            for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
                archive.write(file, file.relative_to(ROOT))
    return folder / FILE
