"""`kafka-mesh pipeline executor`: the entrypoint of the pods that Spark requests from Kubernetes.

For these pods Spark expects an image of its own. Its entrypoint has the argument `executor` and reads the environment
that Spark's driver sets. This command replaces that entrypoint, so that one image is enough. The chart in `deploy/helm`
sets it as the pods' command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import click

from services.pipeline.commands.foreground import require_spark

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
_JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")


@click.command("executor", hidden=True)
def executor_command() -> None:
    """Be an executor of Spark's in a pod of Kubernetes; Spark's driver says all else by the environment."""
    require_spark()
    spec = find_spec("pyspark")
    assert spec is not None and spec.origin is not None  # require_spark has checked it
    home = Path(spec.origin).parent
    os.environ["SPARK_HOME"] = str(home)
    command = executor_line(os.environ, home)
    os.execvp(command[0], command)


def executor_line(environment: Mapping[str, str], home: Path) -> list[str]:
    """The command of Spark's own entrypoint; ClickException names the variables that the driver has not set."""
    if missing := [name for name in [*ARGUMENTS.values(), "SPARK_EXECUTOR_MEMORY"] if not environment.get(name)]:
        raise click.ClickException(f"not started by Spark's driver: {', '.join(missing)} not set")
    numbered = {int(found[1]): value for name, value in environment.items() if (found := _JAVA_OPTION.fullmatch(name))}
    java = f"{environment['JAVA_HOME']}/bin/java" if environment.get("JAVA_HOME") else "java"
    classes = [environment.get("SPARK_CLASSPATH", ""), f"{home}/jars/*", environment.get("SPARK_DIST_CLASSPATH", "")]
    return [
        java,
        *(option for _number, option in sorted(numbered.items())),
        f"-Xms{environment['SPARK_EXECUTOR_MEMORY']}",
        f"-Xmx{environment['SPARK_EXECUTOR_MEMORY']}",
        "-cp",
        ":".join(each for each in classes if each),
        BACKEND,
        *(word for option, name in ARGUMENTS.items() for word in (option, environment[name])),
    ]
