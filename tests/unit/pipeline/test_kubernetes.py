"""Executors on Kubernetes start as Spark wants it. The chart's manifests are in tests/kubernetes."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from services.pipeline.__main__ import pipeline
from services.pipeline.commands.executor import executor_line

BY_THE_DRIVER = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.2.3:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "job-exec-1",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_CLASSPATH": ":/opt/spark/jars/*",
    "SPARK_JAVA_OPT_0": "-Xss4m",
    "SPARK_JAVA_OPT_10": "-Dlast=1",
    "SPARK_JAVA_OPT_2": "-Dsecond=1",
}


def test_the_commands_of_driver_and_executors_exist() -> None:
    assert isinstance(pipeline, click.Group)
    assert {"serve", "executor"} <= set(pipeline.commands)


def test_an_executor_is_started_as_sparks_own_entrypoint_does() -> None:
    line = executor_line(BY_THE_DRIVER, Path("/opt/pyspark"))
    assert line[:8] == [
        "java",
        "-Xss4m",
        "-Dsecond=1",
        "-Dlast=1",
        "-Xms1024m",
        "-Xmx1024m",
        "-cp",
        ":/opt/spark/jars/*:/opt/pyspark/jars/*",
    ]
    assert line[8] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    assert dict(zip(line[9::2], line[10::2], strict=True))["--driver-url"] == BY_THE_DRIVER["SPARK_DRIVER_URL"]
    assert executor_line({**BY_THE_DRIVER, "JAVA_HOME": "/opt/java"}, Path("/p"))[0] == "/opt/java/bin/java"


def test_an_executor_that_nobody_ordered_says_so() -> None:
    with pytest.raises(click.ClickException, match="not started by Spark's driver: SPARK_DRIVER_URL not set"):
        executor_line({name: value for name, value in BY_THE_DRIVER.items() if name != "SPARK_DRIVER_URL"}, Path("/p"))
