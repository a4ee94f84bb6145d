"""What a malicious store may answer. Each lie is made of what lies there at that moment, by the
order in which it came: the ids in keys are not the same in each run of a seed.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cowfs.base.ids import StoreId, WriteId
from cowfs.format import fields, keys
from cowfs.format.key_slots import Secret, new_slot
from cowfs.format.records import Cipher, ProbeResult, StoreRecord
from cowfs.format.sealed import check_value
from cowfs.format.store_record import AES_256_GCM
from cowfs.store.contract import ObjectInfo
from tests.hostile.malicious_store import Lie, Objects

_KINDS = (
    r"volumes/[^/]+/head/.*",
    r"volumes/[^/]+/tags/.*",
    r"volumes/[^/]+/(meta|pruned|lease|heartbeat)/.*",
    r"keys/.*",
    r"packs/.*",
    r"versions/.*",
    r"pins/.*",
    r"gc/.*",
)
_SEQUENCES = (r"volumes/[^/]+/head/", r"volumes/[^/]+/tags/[^/]+/", r"volumes/[^/]+/pruned/", r"keys/")


def of_kind(objects: Objects, kind: str) -> list[str]:
    return [key for key in objects.now if re.fullmatch(kind, key)]


def swap(objects: Objects, choice: random.Random) -> Lie:
    """Two objects of a kind, each in the place of the other, or one in that of both."""
    found = [kind for kind in _KINDS if len(of_kind(objects, kind)) > 1]
    if not found:
        return Lie("swap")
    one, two = choice.sample(of_kind(objects, choice.choice(found)), 2)
    answers = {one: objects.now[two][0]}
    if choice.random() < 0.6:
        answers[two] = objects.now[one][0]
    return Lie(f"swap {one} {two}", dict(answers))


def another(objects: Objects, choice: random.Random) -> Lie:
    one, two = choice.choices(list(objects.now), k=2)
    return Lie(f"{one} answers {two}", {one: objects.now[two][0]})


def spoil(objects: Objects, choice: random.Random) -> Lie:
    """A bit flipped, or cut short, or longer."""
    key = choice.choice(of_kind(objects, choice.choice([kind for kind in _KINDS if of_kind(objects, kind)])))
    data = bytearray(objects.now[key][0])
    match choice.randrange(4):
        case 0:
            return Lie(f"cut {key}", {key: bytes(data[: choice.randrange(len(data))])})
        case 1:
            return Lie(f"lengthen {key}", {key: bytes(data + choice.randbytes(choice.randrange(1, 50)))})
        case _:
            data[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
            return Lie(f"flip {key}", {key: bytes(data)})


def hide_newest(objects: Objects, choice: random.Random) -> Lie:
    """Of heads, tags, pruned heads or slots the newest one or more, as if they had never been."""
    sequences = sorted({match[0] for key in objects.now for kind in _SEQUENCES if (match := re.match(kind, key))})
    if not sequences:
        return Lie("hide nothing")
    sequence = choice.choice(sequences)
    newest = sorted(key for key in objects.now if key.startswith(sequence))
    hidden = newest[: choice.choice((1, 1, 2, 3, len(newest)))]
    return Lie(f"hide {hidden}", dict.fromkeys(hidden), is_listed=choice.random() < 0.8)


def hide(objects: Objects, choice: random.Random) -> Lie:
    hidden = choice.sample(list(objects.now), min(len(objects.now), choice.choice((1, 1, 3))))
    return Lie(f"hide {hidden}", dict.fromkeys(hidden), is_listed=choice.random() < 0.5)


def hide_volume(objects: Objects, choice: random.Random) -> Lie:
    names = sorted({name for key in objects.now if (name := keys.parse_volume(key)) is not None})
    if not names:
        return Lie("hide no volume")
    name = choice.choice(names)
    return Lie(f"hide volume {name}", {key: None for key in objects.now if key.startswith(keys.volume(name))})


def bring_back(objects: Objects, choice: random.Random) -> Lie:
    """What was deleted or replaced, for one sequence instead of what is there now."""
    gone = [key for key, ever in objects.ever.items() if key not in objects.now or ever[-1] != ever[0]]
    if not gone:
        return hide_newest(objects, choice)
    key = choice.choice([key for key in gone if key.startswith(keys.KEYS)] or gone)
    answers: dict[str, bytes | None] = {key: objects.ever[key][0]}
    if key.startswith(keys.KEYS):
        answers |= dict.fromkeys(other for other in objects.now if other.startswith(keys.KEYS))
        answers[key] = objects.ever[key][0]
    return Lie(f"bring back {key}", answers)


def put_back(objects: Objects, choice: random.Random, earlier: list[dict[str, bytes]]) -> Lie:
    """The whole store as it was."""
    before = choice.choice(earlier)
    answers: dict[str, bytes | None] = {key: None for key in objects.now if key not in before}
    return Lie("put back", answers | {key: data for key, data in before.items() if key != keys.STORE})


def relist(objects: Objects, choice: random.Random) -> Lie:
    seed, how = choice.random(), choice.randrange(5)

    def relists(found: list[ObjectInfo]) -> list[ObjectInfo]:
        order, changed = random.Random(seed), list(found)
        match how:
            case 0:
                order.shuffle(changed)
            case 1:
                changed.reverse()
            case 2:
                changed = [each for each in changed if order.random() < 0.7]
            case 3:
                changed = [ObjectInfo(each.key, order.randrange(1 << 20), order.randrange(1 << 62)) for each in changed]
            case _:
                changed += changed
        return changed

    return Lie(f"relist {how}", relists=relists)


def unbelievable_number(objects: Objects, choice: random.Random) -> Lie:
    """A record under a higher number, of heads, tags or slots."""
    key = choice.choice(of_kind(objects, "|".join(_KINDS[:4])))
    folder, _, number = key.rpartition("/")
    higher = int(number, 16) - choice.choice((1, 2, 3, 1000))
    return Lie(f"{key} as a later one", {f"{folder}/{higher:016x}": objects.now[key][0]})


def edit_store(objects: Objects, choice: random.Random) -> Lie:
    """cowfs.json says something else of its probe, its id, its check value or its time."""
    record = json.loads(objects.now[keys.STORE][0])
    match choice.randrange(4):
        case 0:
            record["probe"]["put_if_absent"] = not record["probe"]["put_if_absent"]
        case 1:
            record["store_id"] = choice.randbytes(16).hex()
        case 2:
            record["cipher"]["check"] = choice.randbytes(16).hex()
        case _:
            record["created_ns"] += 1
    return Lie("edit cowfs.json", {keys.STORE: sealed(record)})


def edit_slots(objects: Objects, choice: random.Random, secrets: list[Secret]) -> Lie:
    """The newest record of slots, edited by who does not have the store's key, but guesses at
    secrets."""
    key = min(of_kind(objects, _KINDS[3]))
    record = json.loads(objects.now[key][0])
    slots: list[dict[str, Any]] = record["slots"]
    how = choice.choice(
        ("label", "labels", "cheap", "cheap", "cheap", "long", "ours", "many", "unsigned", "fewer", "dear")
    )
    match how:
        case "label":
            choice.choice(slots)["label"] = "somebody else"
        case "labels":
            labels = [slot["label"] for slot in slots]
            for slot, label in zip(slots, labels[1:] + labels[:1], strict=True):
                slot["label"] = label
        case "cheap":
            slots[:0] = [_cheap(choice, choice.choice(secrets), index) for index in range(choice.choice((1, 1, 3)))]
        case "long":
            slots.insert(
                0, {**_ours(choice, choice.choice(secrets)), "id": "0000aaaa", "wrapped": choice.randbytes(4096).hex()}
            )
        case "ours":  # of usual costs, which opens to another key
            slots.insert(0, _ours(choice, choice.choice(secrets)))
        case "many":
            slots[:0] = [{**_ours(choice, secrets[0]), "id": f"{n:08x}"} for n in range(70)]
        case "unsigned":
            record.pop("mac", None)
            record["format"] = 1
        case "fewer" if len(slots) > 1:
            slots.pop(choice.randrange(len(slots)))
        case "dear":
            slots.insert(0, {**_cheap(choice, secrets[0], 9), "memory_kib": 1 << 20, "passes": 16})
        case _:
            slots.append(dict(slots[0], id="12345678"))
    return Lie(f"slots: {how}", {key: sealed(record)})


def sealed(record: dict[str, Any]) -> bytes:
    """With a right check, as anybody can make it."""
    body = {name: value for name, value in record.items() if name not in ("check", "record", "format")}
    return fields.seal(record["record"], record["format"], body)


def _ours(choice: random.Random, secret: Secret) -> dict[str, Any]:
    slot = new_slot(choice.randbytes(32), secret)
    return {**slot.body, "wrapped": slot.wrapped.hex()}


def _cheap(choice: random.Random, secret: Secret, index: int) -> dict[str, Any]:
    """For a passphrase that is guessed, at almost no cost."""
    made: dict[str, Any] = {
        "id": f"{index:08x}", "kind": "passphrase", "label": "", "created_ns": 1, "salt": choice.randbytes(16).hex(),
        "passes": 1, "lanes": 1, "memory_kib": 8, "format": 2,
        "wrapped": choice.randbytes(80).hex(),
    }  # fmt: skip
    return made


SIMPLE: tuple[Callable[[Objects, random.Random], Lie], ...] = (
    swap, swap, another, spoil, spoil, hide_newest, hide_newest, hide, hide_volume, bring_back, relist, unbelievable_number, edit_store,
)  # fmt: skip


def become_plain(objects: Objects, choice: random.Random) -> Lie:
    """cowfs.json says that nothing is encrypted: of the same store or another one, with what lies
    there or with nothing."""
    record = json.loads(objects.now[keys.STORE][0])
    record["cipher"] = None
    if choice.random() < 0.3:
        record["store_id"] = choice.randbytes(16).hex()
    answers: dict[str, bytes | None] = dict.fromkeys(objects.now) if choice.random() < 0.6 else {}
    for key in answers if choice.random() < 0.7 else ():
        if re.fullmatch(_KINDS[0], key) and key.endswith("fffffffffffffffe"):
            answers[key] = fields.seal(
                "head", 1, {"created_ns": 1, "epoch": 0, "kind": "create", "write_id": "00" * 16}
            )
    return Lie("become plain", answers | {keys.STORE: sealed(record)})


def become_another(objects: Objects, choice: random.Random) -> Lie:
    """cowfs.json is that of another encrypted store, which the same secret may open."""
    record = json.loads(objects.now[keys.STORE][0])
    store_key = choice.randbytes(32)
    made = StoreRecord(StoreId(choice.randbytes(16)), 1, WriteId(bytes(16)), ProbeResult(**record["probe"]))
    unchecked = replace(made, cipher=Cipher(AES_256_GCM, b""))
    made = replace(made, cipher=Cipher(AES_256_GCM, check_value(store_key, unchecked)))
    answers: dict[str, bytes | None] = {keys.STORE: made.encode()}
    if choice.random() < 0.5:
        answers |= dict.fromkeys(key for key in objects.now if key != keys.STORE)
    return Lie("become another", answers)
