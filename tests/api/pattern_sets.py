"""Random patterns and trees of names, with all that is awkward in both: one seed, one world."""

from __future__ import annotations

import random

# fmt: off
ATOMS = [
    "a", "b", "c", "x.py", "keep", "tmp", "*", "**", "?", "[ab]", "[!a]", "[^b]", "[[:digit:]]", "[[:alpha:]]*",
    "[z-a]", "[a-c]", "\\a", "\\*", "\\", "*.py", "a*", "*b", "**b", "a**", "***", "[", "]", "[]a]", "[a",
    "[\\]]", "#", "!", "$", "{a,b}", ".", "é", "[[:foo:]]", "[a-", "[]-a]", "[!]a]", "[--0]", "\\!", "\\#", "1",
    "-", " ", "\t", "a\\ ",
]
# fmt: on
SEPARATORS = ("", "", "", "/", "/", "/**/", "/")
NAMES = [
    *(
        b"a",
        b"b",
        b"c",
        b"ab",
        b"x.py",
        b"c.py",
        b"keep",
        b"tmp",
        b"aab",
        b"a1b",
        b"axb",
        b"*",
        b"[",
        b"a b",
        b"a ",
        b"a\t",
    ),
    *(b"\xc3\xa9", b"\xff", b"a\n", b"x.tmp\n", b"!", b"#", b"]", b"a]", b"[a", b"1", b"-", b"$x", b"\\", b".a"),
]


def ignore_pattern(rnd: random.Random) -> bytes:
    text = "".join(rnd.choice(ATOMS) + rnd.choice(SEPARATORS) for _ in range(rnd.choice([1, 1, 2, 2, 3, 4])))
    if rnd.random() < 0.25:
        text = "/" + text
    if rnd.random() < 0.3:
        text = "!" + text
    endings = [(0.2, "/"), (0.1, "/**"), (0.1, " " * rnd.randint(1, 2)), (0.05, "\t")]
    return (text + "".join(ending for share, ending in endings if rnd.random() < share)).encode()


def name_pattern(rnd: random.Random) -> bytes:
    text = "".join(rnd.choice(ATOMS) for _ in range(rnd.choice([1, 1, 2, 2, 3])))
    return text.replace("/", "").encode()


def tree(rnd: random.Random) -> dict[bytes, bool]:
    """Paths, each behind the directory that it is in, and whether it is a directory."""
    found: dict[bytes, bool] = {}

    def fill(above: bytes, depth: int) -> None:
        for name in rnd.sample(NAMES, rnd.randint(1, 5)):
            found[above + name] = is_directory = depth < 3 and rnd.random() < 0.5
            if is_directory:
                fill(above + name + b"/", depth + 1)

    fill(b"", 0)
    return found
