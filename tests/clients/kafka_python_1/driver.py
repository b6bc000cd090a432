"""kafka-python 1.4, told which Kafka it speaks to, by a program in an environment of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.clients import builds
from tests.clients.contract import EVERYTHING, Can, Compression
from tests.clients.steered import SteeredClient

PROJECT = Path(__file__).parent
PROGRAM, REQUIREMENTS = PROJECT / "program.py", PROJECT / "requirements.txt"
# It has headers and read_committed only where it is told Kafka 0.11.
CAN = EVERYTHING - {Can.SEND_HEADERS, Can.READ_COMMITTED, Can.LOG_IN, Can.TRANSACT}


def command(bootstrap: str, api_version: str) -> list[str]:
    def build(working: Path) -> None:
        builds.run([sys.executable, "-m", "venv", working])
        pip: list[str | Path] = [working / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
        builds.run([*pip, "install", "--require-hashes", "-r", REQUIREMENTS])

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    built = builds.built(f"kafka-python-1.4-python-{version}", [REQUIREMENTS], build)
    return [str(built / "bin" / "python"), str(PROGRAM), bootstrap, api_version]


class OldKafkaPythonClient(SteeredClient):
    def __init__(self, bootstrap: str, api_version: str) -> None:
        can, compressions = CAN, {Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4}
        if api_version.startswith("0.8"):
            can -= {Can.SET_TIMESTAMPS}
            compressions -= {Compression.LZ4}  # with the checksum of that time it wants one more native package
        name = f"kafka-python-1.4-{api_version}"
        super().__init__(name, command(bootstrap, api_version), can, frozenset(compressions))
