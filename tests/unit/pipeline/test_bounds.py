"""Bounds that keep the pipeline from taking a machine, a database or a folder for itself."""

from __future__ import annotations

import os
import subprocess
import sys
from unittest.mock import Mock

import pytest

from services.pipeline.settings import PipelineSettings

pytest.importorskip("pyspark")


@pytest.mark.parametrize("folder", ["/data/fruit", "file:/data/fruit", "data"])
def test_a_folder_of_this_machine_is_refused_where_executors_run_elsewhere(folder: str) -> None:
    with pytest.raises(ValueError, match="each executor would write to a folder of its own machine"):
        PipelineSettings(master="spark://host:7077").check_folder(folder)
    PipelineSettings(master="spark://host:7077", shared_folders=True).check_folder(folder)
    PipelineSettings().check_folder(folder)
    PipelineSettings(master="yarn").check_folder("s3a://bucket/fruit")


def test_local_cluster_has_executors_of_its_own() -> None:
    from services.pipeline.settings import is_local

    assert is_local("local[*,2]")
    assert is_local("local")
    assert not is_local("local-cluster[2,1,1024]")


def test_a_batch_of_audit_has_no_more_than_the_rate_allows() -> None:
    from services.pipeline.commands.audit import rows_of_a_batch

    assert rows_of_a_batch(PipelineSettings(audit_rate=500, trigger_interval_s=4.0)) == 2_000
    assert rows_of_a_batch(PipelineSettings(audit_rate=500_000, trigger_interval_s=4.0)) == 200_000


def test_a_driver_and_what_it_starts_leave_the_processors_to_others() -> None:
    program = (
        "import sys; from services.pipeline import driver as driving; "
        "sys.argv[1:] = ['--nice', '7', 'prepare', '--help'];"
        "import atexit, os; atexit.register(lambda: print(os.nice(0), file=sys.stderr)); driving.main()"
    )
    command, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True) as driver:
        assert driver.stderr is not None
        nicer = int(driver.stderr.read().split()[-1]) - os.nice(0)  # while its stdin is open: otherwise it ends at once
        assert nicer == 7


def test_a_delete_that_the_store_refuses_is_an_error_and_one_of_nothing_is_not() -> None:
    from services.pipeline.storage.hadoop import HadoopFolder

    session = Mock()
    files = session._jvm.org.apache.hadoop.fs.Path.return_value.getFileSystem.return_value
    folder = HadoopFolder(session, "s3a://bucket/fruit")
    files.delete.return_value, files.exists.return_value = False, False
    folder.delete("day=2026-11-21")
    files.exists.return_value = True
    with pytest.raises(OSError, match="s3a://bucket/fruit/day=2026-11-21 could not be deleted"):
        folder.delete("day=2026-11-21")
