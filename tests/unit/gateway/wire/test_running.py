"""Compiled walks are made where there is a compiler, and run as long as they are those of the sources."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import hatch_build
from services.gateway import WHY_NOT_COMPILED, copies
from services.gateway.downstream import forwarding
from tests.unit.gateway.wire.both_walks import is_compiled

ROOT = Path(hatch_build.__file__).parent
COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]
has_compiler = pytest.mark.skipif(
    shutil.which(COMPILER) is None or not Path(sysconfig.get_path("include"), "Python.h").is_file(),
    reason=f"no {COMPILER}, or no headers of Python",
)


@has_compiler
def test_where_a_compiler_is_the_compiled_walks_run() -> None:
    assert WHY_NOT_COMPILED is None, f"{WHY_NOT_COMPILED}: run `make stubs`"
    assert Path(str(forwarding.__file__)).parent.name == copies.name_of_copy()


@is_compiled
def test_sources_that_changed_since_run_themselves(tmp_path: Path) -> None:
    """Not the copy that was compiled before."""
    shutil.copytree(ROOT / "services", tmp_path / "services", ignore=_all_but_the_gateway)
    assert _says(tmp_path) == "None"
    for source in ("wire/scanner/walks/readers.py", "downstream/forwarding.pxd"):
        changed = tmp_path / "services/gateway" / source
        before = changed.read_text()
        changed.write_text(before + "\n# changed\n")
        assert _says(tmp_path) == "there are copies of other sources alone"
        changed.write_text(before)


@is_compiled
@pytest.mark.parametrize("stitched", [False, True])
@pytest.mark.parametrize("name", ["test_forwarding_always", "test_fetch_forwarding_always"])
def test_as_python_requests_are_forwarded_the_same_way(name: str, stitched: bool, tmp_path: Path) -> None:
    """As when they are compiled, which other tests show."""
    tests = f"tests/unit/gateway/downstream/{name}.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.unit.gateway.as_python", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'python'}", f"{tests}::test_all_is_heard_as_by_plans[{stitched}-0]"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def _all_but_the_gateway(folder: str, names: list[str]) -> list[str]:
    kept = ("gateway", "__init__.py") if folder == str(ROOT / "services") else names
    return [name for name in names if name == "__pycache__" or name not in kept]


def _says(folder: Path) -> str:
    script = "from services.gateway import WHY_NOT_COMPILED as why; print(why)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """With one small module."""
    gateway = tmp_path / "services/gateway"
    walks = gateway / "wire/scanner/walks"
    walks.mkdir(parents=True)
    text = (ROOT / hatch_build.COPIES).read_text()
    (gateway / "copies.py").write_text(text + '\nMODULES = ("small",)\n')
    (gateway / "small.py").write_text("def twice(number):\n    return 2 * number\n")
    (gateway / "small.pxd").write_text("cpdef Py_ssize_t twice(Py_ssize_t number) except -1\n")
    for name in ("clock", "wire/scanner/walks/octets"):
        for ending in (".py", ".pxd"):
            (gateway / name).with_suffix(ending).touch()
    return tmp_path


@has_compiler
def test_a_copy_is_made_once_and_again_when_its_sources_change(project: Path) -> None:
    first = hatch_build.compile_modules(project)
    assert first is not None
    (library,) = first.glob("*.small.*")
    spec = importlib.util.spec_from_file_location("small", library)
    assert spec is not None and spec.loader is not None
    small = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(small)
    assert small.twice(21) == 42
    with pytest.raises(TypeError):
        small.twice("as Python it would be")

    made_at = library.stat().st_mtime_ns
    assert hatch_build.compile_modules(project) == first
    assert library.stat().st_mtime_ns == made_at

    source = project / "services/gateway/small.py"
    source.write_text(source.read_text().replace("2 *", "3 *"))
    second = hatch_build.compile_modules(project)
    assert second is not None and second != first
    assert list(second.parent.iterdir()) == [second]


def test_without_a_compiler_one_line_says_so_and_the_build_goes_on(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", str(project / "no-compiler"))
    assert hatch_build.compile_modules(project) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert "not compiled, and run as Python" in line
    assert not (project / "services/gateway/compiled").exists()
