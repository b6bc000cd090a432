"""Kafka's jars: a committed lock of coordinates and checksums, and the way from there into the user's cache.

jgo, a Maven client in pure Python, fetches each jar by itself. It never resolves: its resolution of `kafka_2.13` mixes
in an older kafka-clients, so the lock is Maven's own answer to `kafka-pom.xml`, written down. A jar counts only when
its sha256 is the lock's, and appears under its name only when complete. A download that was cut off continues at its
last byte.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

LOCK = Path(__file__).with_name("kafka-jars.lock")
FETCH_THREADS = 8
FETCH_TIMEOUT_S = 60
FETCH_TRIES = 3  # a repository answers 429 or 5xx now and then


class JarError(Exception):
    """A jar could not be had, or is not the one that the lock means."""


@dataclass(frozen=True, slots=True, order=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def filename(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    def __str__(self) -> str:
        return f"{self.coordinates} {self.sha256}"


def locked_jars(lock: Path = LOCK) -> list[Jar]:
    """The jars of the lock, one `group:artifact:version sha256` a line."""
    jars = []
    for line in lock.read_text(encoding="ascii").splitlines():
        if line and not line.startswith("#"):
            coordinates, sha256 = line.split()
            group, artifact, version = coordinates.split(":")
            jars.append(Jar(group, artifact, version, sha256))
    return jars


def cache_folder() -> Path:
    """The folder of jars that all checkouts share; KAFKA_MESH_CACHE names another folder."""
    if named := os.environ.get("KAFKA_MESH_CACHE"):
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kafka-mesh"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafka-mesh"


def jar_folder(cache: Path | None = None) -> Path:
    return (cache or cache_folder()) / "jars"


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def missing_jars(cache: Path | None = None) -> list[Jar]:
    """Jars of the lock that are not in the cache; a jar gets its name only after its checksum was compared."""
    folder = jar_folder(cache)
    return [jar for jar in locked_jars() if not (folder / jar.filename).exists()]


def classpath(cache: Path | None = None) -> str:
    """What `java -cp` takes: the jars of the lock, and no other jar in the cache."""
    folder = jar_folder(cache)
    return os.pathsep.join(str(folder / jar.filename) for jar in locked_jars())


def fetch_missing(cache: Path | None = None) -> Iterator[Jar]:
    """Download missing jars, a few at a time; yields each jar when it is complete."""
    missing = missing_jars(cache)
    if not missing:
        return
    folder = jar_folder(cache)
    folder.mkdir(parents=True, exist_ok=True)
    repository = folder.parent / "maven"
    with ThreadPoolExecutor(FETCH_THREADS, thread_name_prefix="jar") as threads:
        fetched = {threads.submit(_fetch, jar, folder, repository): jar for jar in missing}
        try:
            for future in as_completed(fetched):
                future.result()
                yield fetched[future]
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
    shutil.rmtree(repository, ignore_errors=True)


def _fetch(jar: Jar, folder: Path, repository: Path) -> None:
    source = _in_maven_cache(jar) or _download(jar, repository)
    part = folder / f".{jar.filename}.{os.getpid()}.part"
    shutil.copyfile(source, part)
    found = sha256_of(part)
    if found != jar.sha256:
        part.unlink()
        source.unlink()
        raise JarError(f"{jar.coordinates}: the repository's jar has sha256 {found}, the lock says {jar.sha256}")
    part.replace(folder / jar.filename)


def _in_maven_cache(jar: Jar) -> Path | None:
    """A developer's Maven has most of them already."""
    path = Path.home().joinpath(".m2", "repository", *jar.group.split("."), jar.artifact, jar.version, jar.filename)
    return path if path.exists() and sha256_of(path) == jar.sha256 else None


def _download(jar: Jar, repository: Path) -> Path:
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=repository, timeout=FETCH_TIMEOUT_S)
    for attempt in range(1, FETCH_TRIES + 1):
        try:
            return Path(context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve())
        except Exception as error:  # jgo raises what requests raises, and bare RuntimeErrors
            if attempt == FETCH_TRIES:
                raise JarError(f"{jar.coordinates}: not fetched from the Maven repository: {error}") from error
    raise AssertionError("unreachable")


def main() -> int:
    """`python -m local.jars`: download missing jars, and print a line for each."""
    total = len(missing_jars())
    try:
        for count, jar in enumerate(fetch_missing(), start=1):
            print(f"{count}/{total} {jar.filename}", flush=True)
    except JarError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
