"""Writes kafka-jars.lock: Maven resolves kafka-pom.xml, and its answer with the checksums becomes the lock.

For maintainers (`make lock-kafka`) and for the test that compares; needs `mvn`. A newcomer's machine never runs this.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from local.jars import LOCK, Jar, sha256_of

POM = Path(__file__).with_name("kafka-pom.xml")
MAVEN_TIMEOUT_S = 300
HEADER = "# group:artifact:version sha256; written by `make lock-kafka` from local/kafka-pom.xml\n"

_LISTED = re.compile(r"^(?:\[INFO\])?\s+([\w.-]+):([\w.-]+):jar:([\w.-]+):(?:compile|runtime):(\S+\.jar)", re.MULTILINE)


class MavenError(Exception):
    """Maven failed; the message contains Maven's output."""


def resolve() -> list[Jar]:
    """The run-time dependencies of the pom, as Maven lists them."""
    with tempfile.TemporaryDirectory(prefix="jar-lock-") as folder:
        listing = Path(folder) / "jars.txt"
        command = ["mvn", "--batch-mode", "--no-transfer-progress", "-f", str(POM), "dependency:list"]
        options = ["-DincludeScope=runtime", "-DoutputAbsoluteArtifactFilename=true", f"-DoutputFile={listing}"]
        run = subprocess.run([*command, *options], capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False)
        if run.returncode != 0:
            raise MavenError(f"mvn dependency:list failed:\n{run.stdout[-3000:]}{run.stderr[-1000:]}")
        text = re.sub(r"\x1b\[[0-9;]*m", "", listing.read_text(encoding="utf-8"))
    found = _LISTED.findall(text)
    return sorted(Jar(group, artifact, version, sha256_of(Path(path))) for group, artifact, version, path in found)


def render(jars: list[Jar]) -> str:
    return HEADER + "".join(f"{jar}\n" for jar in jars)


if __name__ == "__main__":
    try:
        LOCK.write_text(render(resolve()), encoding="ascii")
    except MavenError as error:
        sys.exit(str(error))
