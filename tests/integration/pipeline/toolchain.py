"""What tests of Spark need: the extra, which most environments lack, and a Java."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from services.pipeline.session import SessionError, check_java
from tests.fixtures.toolchains import do_without

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for the seconds that a test lasts


def need_spark() -> None:
    """Skips where the extra is not installed, in CI too: CI decides by what it installs. Java is there in CI."""
    if find_spec("pyspark") is None:
        pytest.skip("the extra `pipeline` is not installed (make env PIPELINE=1)")
    try:
        check_java()
    except SessionError as error:
        do_without(str(error))
