"""How plainly the project is written: relative-pronoun phrases per 1,000 words, and functions that
are not named by a verb.

The design documents of restic and jj have 0.3 phrases per 1,000 words. Each ceiling may only fall.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CEILINGS = {
    "README.md": 2.0,
    "CONTRIBUTING.md": 3.0,
    "docs/architecture.md": 3.0,
    "docs/concurrency.md": 3.0,
    "docs/durability.md": 2.0,
    "docs/format": 3.0,
    "docs/glossary.md": 3.0,
    "docs/guide": 2.0,
    "docs/reference": 2.0,
    "docs/semantics.md": 2.0,
    "docs/threats.md": 3.0,
    "python": 3.0,
    "rust": 2.0,
}
ODD_NAMES = 88

PHRASES = re.compile(
    r"\b(?:who(?:ever|soever)|whatever"
    r"|who (?:is|has|was|does|had|wants|may|can|asks|reads|writes|holds|needs|waits|mounts|commits|calls|comes|goes|looks)"
    r"|(?:those|all|one|ones|anybody|somebody|nobody|everybody) (?:who|that|of which)|of (?:which|whom|whose)"
    r"|nobody|somebody|anybody"
    r"|(?:is|are|was|were) told(?: of)?|(?:hears?|heard) (?:of|where|that|nothing)|let(?:s|ting)? go(?: of)?"
    r"|what (?:is|was|are|were|has|had|nobody|nothing|no|somebody|it|they|lies|goes|comes|stays|stands|others?|can|cannot"
    r"|may|must|needs?)\b|is (?:none|no) (?:any )?more|not any more|for ever|there (?:is|are) none|none of (?:its|their))",
    re.IGNORECASE,
)
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
PARTICIPLE = re.compile(
    r"^_*(?!(?:need|feed|seed|speed|embed|shed|bleed|breed|exceed|proceed|succeed)(?:_|$))"
    r"(?:[a-z]+ed|told|kept|made|given|said|left|heard|held|sent|taken|known|shown|seen|found|read_of|written|gone|lost"
    r"|put_back|cut|begun|chosen|thrown|done)(?:_|$)"
)
PREPOSITION = re.compile(
    r"^_*(?:at|on|in|by|beside|within|behind|before|after|under|above|between|against|about|for|into|out|up|off)(?:_|$)"
)
VERBS = {"on_commit", "for_each", "in_thread", "put", "cut", "seed", "feed", "need", "shed", "embed", "speed"}


def _files() -> Iterator[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    paths = [ROOT / name for name in listed.splitlines()] or [path for path in ROOT.rglob("*") if path.is_file()]
    return (path for path in paths if path.exists())


def _group(path: Path) -> str | None:
    name = path.relative_to(ROOT).as_posix()
    if path.suffix not in {".md", ".py", ".rs"}:
        return None
    if name.endswith(".py"):
        return "python" if name.startswith(("cowfs/", "benchmarks/", "docs/")) else None
    if name.endswith(".rs"):
        return "rust" if name.startswith("native/") and "/tests/" not in name and "/target/" not in name else None
    return next((group for group in CEILINGS if name == group or name.startswith(f"{group}/")), None)


def _text(path: Path) -> str:
    source = path.read_text()
    if path.suffix == ".md":
        return re.sub(r"```.*?```", " ", source, flags=re.DOTALL)
    if path.suffix == ".rs":
        return "\n".join(found.group(1) for found in re.finditer(r"//[/!]?\s?(.*)", source))
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    texts = [value for value in constants if isinstance(value, str) and " " in value.strip()]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join([*texts, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def _rate(group: str) -> float:
    phrases = words = 0
    for path in _files():
        if _group(path) == group:
            text = re.sub(r"`[^`]*`", " ", _text(path))
            phrases += len(PHRASES.findall(text))
            words += len(WORD.findall(text))
    assert words > 0, f"nothing is found of {group}"
    return 1000 * phrases / words


@pytest.mark.parametrize("group", CEILINGS)
def test_prose_is_plain(group: str) -> None:
    assert _rate(group) <= CEILINGS[group]


def test_functions_are_named_by_verbs() -> None:
    odd = defaultdict(list)
    for path in _files():
        if path.suffix == ".py" and path.is_relative_to(ROOT / "cowfs"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _is_odd(node):
                    odd[path.relative_to(ROOT).as_posix()].append(node.name)
    assert sum(map(len, odd.values())) <= ODD_NAMES, dict(odd)


def _is_odd(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    is_property = any(isinstance(each, ast.Name) and "property" in each.id for each in node.decorator_list)
    is_handler = node.name.startswith("on_")  # textual's name for what handles an event
    is_verb = is_property or is_handler or node.name in VERBS
    return not is_verb and bool(PARTICIPLE.match(node.name) or PREPOSITION.match(node.name))
