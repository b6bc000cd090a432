"""Checks the language rule of CONTRIBUTING over docstrings, comments, messages, pages and contracts.

A room is a folder of product code, or the pages. `plain_english.toml` holds how many findings each room may have. A
room with more findings fails the check; `--write` keeps the lower number of a room with fewer. The goal is 0.

    python -m tests.plain_english             check all rooms
    python -m tests.plain_english ROOM...     show each finding of these rooms
    python -m tests.plain_english --write     write today's numbers, where they are lower
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
LIMITS = HERE / "plain_english.toml"
MOST_WORDS = 35
"""Of one sentence. CONTRIBUTING asks for 25; a longer sentence may still be the plainest."""
PAGES = "pages"
"""The room of all Markdown outside the rooms of code."""
ROOMS = (
    "judge",
    "local",
    "mesh",
    "meshctl",
    "proto",
    "services/control",
    "services/gateway",
    "services/pipeline",
    "services/router",
    "services/sidecar",
)
OF_OTHERS = "proto/io/"
"""Files that stay as their authors write them."""
CODE = (".py", ".proto")

BARE_OPENING = re.compile(
    r"(What|Who|Whoever|Whatever|Whichever|Where|Wherever|Of|By what|By which|By whom|To whom) (?!if\b|about\b)[a-z]"
)
"""A sentence that begins so makes its reader wait for the subject."""
PRIVATE_WORDS: Mapping[str, str] = {
    r"go(es)? astray|went astray|gone astray": "fails",
    r"\btold\b": "reported, sent, shown or named",
    r"\b(lives?|lived) (on|at|in|there|elsewhere)\b": "is on",
    r"\bway out\b": "remedy",
    r"\blook(s|ed)? at\b": "checks, reads or inspects",
    r"\bthere is not\b": "does not exist",
    r"\bkeeps? the books\b": "records",
    r"\btakes? up\b": "continues with",
    r"\bpassed over\b": "skipped",
    r"\bin nobody's way\b": "without blocking",
    r"\bwhose turn\b": "which is next",
    r"\bit is let in\b": "it is admitted",
}
"""What only this house says, and what Kafka, Envoy, Spark or plain English say in its place."""

_CODE_SPAN = re.compile(r"`+[^`]*`+")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_FENCE = re.compile(r"^\s*(```|~~~)")
_SENTENCE_END = re.compile(r"(?<=[.!?;])[)\"']*\s+(?=[A-Z\"'(`]|$)|:\s*$")
_LIST_ITEM = re.compile(r"^\s*([-*+]|\d+[.)])\s+")
_COMMANDS = re.compile(r"\s*(\x08|Examples?:)")
"""The first line of a block of commands in a docstring: click's mark for text that it does not wrap, or the heading."""
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*|\d[\d.,]*")
_DIRECTIVES = ("noqa", "type:", "pragma", "!", "mypy:", "ruff:", "cython:", "distutils:", "fmt:")
_LOGGERS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})


class Fault(Enum):
    LONG = "too long"
    OPENING = "opens with a bare clause"
    PRIVATE = "private word"


@dataclass(frozen=True, slots=True)
class Passage:
    """Text of one docstring, comment block, message or paragraph."""

    path: Path
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    passage: Passage
    fault: Fault
    sentence: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.passage.path.relative_to(ROOT)}:{self.passage.line}"
        return f"{where}: {self.fault.value} ({self.remedy}): {self.sentence[:110]}"


def sentences(text: str) -> list[str]:
    """The sentences of a passage, with code spans and link targets taken out."""
    plain = _LINK.sub(r"\1", _CODE_SPAN.sub("CODE", text))
    return [part.strip() for part in _SENTENCE_END.split(" ".join(plain.split())) if part and part.strip()]


def findings(passage: Passage) -> Iterator[Finding]:
    for sentence in sentences(passage.text):
        words = len(_WORD.findall(sentence))
        if words > MOST_WORDS:
            yield Finding(passage, Fault.LONG, sentence, f"{words} words, at most {MOST_WORDS}")
        if BARE_OPENING.match(sentence) and not sentence.endswith("?"):
            yield Finding(passage, Fault.OPENING, sentence, "name the actor with a noun first")
        for pattern, plain in PRIVATE_WORDS.items():
            if found := re.search(pattern, sentence, re.IGNORECASE):
                yield Finding(passage, Fault.PRIVATE, sentence, f"{found.group(0)!r}; say: {plain}")


def of_python(path: Path, source: str) -> Iterator[Passage]:
    """Docstrings, also those of attributes; blocks of comments; messages of logs and of errors."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                for paragraph in _paragraphs(text):
                    yield Passage(path, node.lineno, paragraph)
            case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]) if name in _LOGGERS:
                yield from _message(path, first)
            case ast.Raise(exc=ast.Call(args=arguments)):
                for argument in arguments:
                    yield from _message(path, argument)
    yield from _comments(path, source)


def _message(path: Path, node: ast.expr) -> Iterator[Passage]:
    match node:
        case ast.Constant(value=str(text)) if " " in text:
            yield Passage(path, node.lineno, text)
        case ast.JoinedStr(values=parts):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "CODE" for part in parts)
            yield Passage(path, node.lineno, text)


def _comments(path: Path, source: str) -> Iterator[Passage]:
    block: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("#").strip()
        if not text or text.startswith(_DIRECTIVES):
            continue
        line = token.start[0]
        if block and line != last + 1:
            yield Passage(path, first, " ".join(block))
            block = []
        if not block:
            first = line
        block.append(text)
        last = line
    if block:
        yield Passage(path, first, " ".join(block))


def of_proto(path: Path, source: str) -> Iterator[Passage]:
    block: list[str] = []
    first = 0
    for number, line in enumerate(source.splitlines(), 1):
        code, mark, comment = line.partition("//")
        if mark and '"' not in code:
            if not block or code.strip():
                yield from _joined(path, first, block)
                block, first = [], number
            block.append(comment.strip())
        else:
            yield from _joined(path, first, block)
            block = []
    yield from _joined(path, first, block)


def of_markdown(path: Path, source: str) -> Iterator[Passage]:
    """Paragraphs, items of lists and cells of tables; no code."""
    block: list[str] = []
    first, fenced = 1, False
    for number, written in enumerate(source.splitlines(), 1):
        is_fence = bool(_FENCE.match(written))
        fenced ^= is_fence
        line = "" if is_fence else written
        if fenced and not is_fence:
            continue
        is_item, is_row = bool(_LIST_ITEM.match(line)), line.lstrip().startswith("|")
        if is_item or is_row or not line.strip() or line.startswith(("#", "<!--")):
            yield from _joined(path, first, block)
            block, first = [], number
        if is_row:
            for cell in line.strip().strip("|").split(" | "):
                yield Passage(path, number, cell.strip())
        elif line.strip() and not line.startswith(("#", "<!--")):
            block.append(_LIST_ITEM.sub("", line))
    yield from _joined(path, first, block)


def _joined(path: Path, line: int, block: list[str]) -> Iterator[Passage]:
    if block:
        yield Passage(path, line, " ".join(block))


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs and items of lists, without the blocks of commands that click prints as they are."""
    block: list[str] = []
    is_commands = False
    for line in text.splitlines():
        if not line.strip():
            is_commands = False
        elif not block and _COMMANDS.match(line):
            is_commands = True
        if is_commands:
            continue
        if not line.strip() or _LIST_ITEM.match(line):
            if block:
                yield " ".join(block)
            block = []
        if line.strip():
            block.append(_LIST_ITEM.sub("", line).strip())
    if block:
        yield " ".join(block)


def room_of(path: Path) -> str | None:
    """The room that a file of the repository belongs to; None where the rule does not apply."""
    name = path.relative_to(ROOT).as_posix()
    if name.startswith(OF_OTHERS):
        return None
    for room in ROOMS:
        if name.startswith(f"{room}/"):
            return room if path.suffix in (*CODE, ".md") else None
    return PAGES if path.suffix == ".md" and not name.startswith("tests/") else None


def files() -> list[Path]:
    """All files that git knows, or would add."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def all_findings() -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {room: [] for room in (*ROOMS, PAGES)}
    readers = {".py": of_python, ".proto": of_proto, ".md": of_markdown}
    for path in files():
        room = room_of(path)
        if room is not None:
            for passage in readers[path.suffix](path, path.read_text(encoding="utf-8")):
                found[room].extend(findings(passage))
    return found


def main(arguments: list[str]) -> int:
    found = all_findings()
    allowed: dict[str, int] = tomllib.loads(LIMITS.read_text())["findings"] if LIMITS.exists() else {}
    counts = {room: len(listed) for room, listed in found.items()}
    if arguments == ["--write"]:
        lower = {room: min(count, allowed.get(room, count)) for room, count in counts.items()}
        head = "# Findings of `python -m tests.plain_english` that each room may still have. The numbers only fall.\n"
        LIMITS.write_text(head + "[findings]\n" + "".join(f'"{room}" = {n}\n' for room, n in lower.items()))
        return 0
    for room in arguments:
        for finding in found[room]:
            print(finding)
        print(f"{room}: {dict(Counter(f.fault.value for f in found[room]))}")
    if arguments:
        return 0
    more = [room for room, count in counts.items() if count > allowed.get(room, 0)]
    fewer = [room for room, count in counts.items() if count < allowed.get(room, 0)]
    for room in more:
        print(f"{room}: {counts[room]} sentences break the language rule, {allowed.get(room, 0)} may.")
        print(f"  `python -m tests.plain_english {room}` shows them; CONTRIBUTING has the rule.")
    for room in fewer:
        print(f"{room}: only {counts[room]} findings are left of {allowed[room]}.")
    if fewer:
        print("  `python -m tests.plain_english --write` keeps the lower numbers.")
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
