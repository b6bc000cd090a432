"""Whether the pipeline can run here: not every environment has the parts that Spark needs."""

from __future__ import annotations

from importlib.util import find_spec

from local.java import OLDEST_MAJOR, system_java

EXTRA = ("pandas", "pyarrow", "pyspark")


def why_not() -> str:
    """The missing part and its remedy, in a sentence; empty when nothing is missing."""
    if any(find_spec(name) is None for name in EXTRA):
        return "the extra `pipeline` is not installed (in a checkout: make run PIPELINE=1)"
    if system_java() is None:
        return f"Spark needs a Java {OLDEST_MAJOR} or newer of the system: install one, or set JAVA_HOME"
    return ""
