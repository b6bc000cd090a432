"""Asks the package registry whether a package of locks/ has a known weakness: the second part of `make audit`.

pip-audit asks about one package after the other. Some registries have no advisories: a mirror, for example. Without
advisories, pip-audit skips each package, and says that it found nothing. So the first question is about the smallest
lock alone. Packages that nobody could check are no success: the exit code says so, unless MAY_BE_UNCHECKED is given.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCKS = Path(__file__).parents[1] / "locks"
SMALLEST = "uv.txt"
COMMAND = (sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off", "--disable-pip")
SOURCE_S = 15
"""Time of one answer of the registry."""
AUDIT_S = 900
WEAK, UNCHECKED = 1, 3
"""Exit codes."""
MAY_BE_UNCHECKED = "--may-be-unchecked"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result for some locks."""

    checked: frozenset[str] = frozenset()
    unchecked: frozenset[str] = frozenset()
    weaknesses: tuple[str, ...] = ()
    """One line for each."""
    trouble: str = ""
    """The last line of a program that gave no result."""


def asked(locks: Sequence[Path], command: Sequence[str] = COMMAND) -> Answer:
    """The answer about all packages of the locks."""
    named = [word for lock in locks for word in ("--requirement", str(lock))]
    try:
        run = subprocess.run(
            [*command, "--timeout", str(SOURCE_S), *named], capture_output=True, text=True, timeout=AUDIT_S, check=False
        )
        found: list[dict[str, Any]] = json.loads(run.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return Answer(trouble=f"no answer within {AUDIT_S} s")
    except (ValueError, KeyError, TypeError):
        lines = run.stderr.strip().splitlines()
        return Answer(trouble=lines[-1] if lines else f"exit code {run.returncode}")
    return Answer(
        frozenset(each["name"] for each in found if "skip_reason" not in each),
        frozenset(each["name"] for each in found if "skip_reason" in each),
        tuple(sorted({line for each in found for line in _weaknesses(each)})),
    )


def _weaknesses(package: dict[str, Any]) -> list[str]:
    return [
        f"{package['name']} {package['version']}: {', '.join([each['id'], *each.get('aliases', [])])}; "
        f"{'fixed in ' + ', '.join(each['fix_versions']) if each.get('fix_versions') else 'no fixed version yet'}"
        for each in package.get("vulns", [])
    ]


def audit(folder: Path = LOCKS, command: Sequence[str] = COMMAND) -> int:
    """Say what is known about the packages of all locks; WEAK, UNCHECKED, or 0 if all is well."""
    first = asked([folder / SMALLEST], command)
    if not first.checked:
        reason = first.trouble or f"the registry has no advisories about {', '.join(sorted(first.unchecked))}"
        print(f"advisories: NOT CHECKED: the advisory source was not reachable ({reason})")
        return UNCHECKED
    answer = asked(sorted(folder.glob("*.txt")), command)
    if not answer.checked:
        print(f"advisories: NOT CHECKED: the advisory source went away ({answer.trouble})")
        return UNCHECKED
    for line in answer.weaknesses:
        print(f"advisories: {line}")
    if answer.unchecked:
        print(
            f"advisories: not checked, because the registry does not know them: {', '.join(sorted(answer.unchecked))}"
        )
    print(f"advisories: {len(answer.checked)} packages checked, {len(answer.weaknesses)} known weaknesses")
    return WEAK if answer.weaknesses else 0


def exit_code(found: int, arguments: Sequence[str]) -> int:
    """The audit's own, or 0 for packages that may be unchecked."""
    return 0 if found == UNCHECKED and MAY_BE_UNCHECKED in arguments else found


if __name__ == "__main__":
    sys.exit(exit_code(audit(), sys.argv[1:]))
