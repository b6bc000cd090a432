"""Compiled walks are made where there is a compiler, and run as long as they are those of the sources."""

import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import hatch_build
from services.gateway.wire.scanner import copies, running
from tests.unit.gateway.wire.both_walks import is_compiled

ROOT = Path(hatch_build.__file__).parent
COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]
has_compiler = pytest.mark.skipif(
    shutil.which(COMPILER) is None or not Path(sysconfig.get_path("include"), "Python.h").is_file(),
    reason=f"no {COMPILER}, or no headers of Python",
)


@has_compiler
def test_where_a_compiler_is_the_compiled_walks_run() -> None:
    assert running.WHY_NOT_COMPILED is None, f"{running.WHY_NOT_COMPILED}: run `make stubs`"
    assert running.scan_produce.__module__.endswith(f".{copies.name_of_copy()}.produce")


@is_compiled
def test_sources_that_changed_since_run_themselves(tmp_path: Path) -> None:
    """Not the copy that was compiled before."""
    wire = tmp_path / "services/gateway/wire"
    shutil.copytree(ROOT / "services/gateway/wire", wire, ignore=shutil.ignore_patterns("__pycache__"))
    for package in (wire.parent, wire.parent.parent):
        (package / "__init__.py").touch()
    assert _says(tmp_path) == "None"
    for source in ("readers.py", "readers.pxd"):
        changed = wire / "scanner/walks" / source
        before = changed.read_text()
        changed.write_text(before + "\n# changed\n")
        assert _says(tmp_path) == "there are copies of other sources alone"
        changed.write_text(before)


def _says(folder: Path) -> str:
    script = "from services.gateway.wire.scanner.running import WHY_NOT_COMPILED as why; print(why)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """With one small walk."""
    scanner = tmp_path / "services/gateway/wire/scanner"
    (scanner / "walks").mkdir(parents=True)
    text = (ROOT / hatch_build.COPIES_OF_WALKS).read_text()
    (scanner / "copies.py").write_text(text + '\nMODULES = ("small",)\n')
    (scanner / "walks/__init__.py").touch()
    (scanner / "walks/small.py").write_text("def twice(number):\n    return 2 * number\n")
    (scanner / "walks/small.pxd").write_text("cpdef Py_ssize_t twice(Py_ssize_t number) except -1\n")
    return tmp_path


@has_compiler
def test_a_copy_is_made_once_and_again_when_its_sources_change(project: Path) -> None:
    first = hatch_build.compile_walks(project)
    assert first is not None
    (library,) = first.glob("small.*")
    spec = importlib.util.spec_from_file_location("small", library)
    assert spec is not None and spec.loader is not None
    small = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(small)
    assert small.twice(21) == 42
    with pytest.raises(TypeError):
        small.twice("as Python it would be")

    made_at = library.stat().st_mtime_ns
    assert hatch_build.compile_walks(project) == first
    assert library.stat().st_mtime_ns == made_at

    source = project / "services/gateway/wire/scanner/walks/small.py"
    source.write_text(source.read_text().replace("2 *", "3 *"))
    second = hatch_build.compile_walks(project)
    assert second is not None and second != first
    assert list(second.parent.iterdir()) == [second]


def test_without_a_compiler_one_line_says_so_and_the_build_goes_on(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", str(project / "no-compiler"))
    assert hatch_build.compile_walks(project) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert "not compiled, and run as Python" in line
    assert not (project / "services/gateway/wire/scanner/compiled").exists()
