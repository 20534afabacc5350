"""What a generation is: a manifest in JSON, one file a line, whose last line is the digest of all lines before it.

Its name is the moment that it is of, so that generations sort by name. docs/formats/backup.md has a worked example.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final

from lamina.engines.queues import ids
from lamina.engines.queues.opening import JOURNALS
from lamina.errors import Corruption, WrongFormat
from lamina.log.naming import parse_file_time, show_file_time

TITLE: Final = "lamina backup"
VERSION: Final = 1
SUFFIX: Final = ".json"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_LAST_LINE: Final = re.compile(rb'"sha256": "([0-9a-f]{64})"}\n')
_LONGEST: Final = 4096
_HINT: Final = 'run "lamina backup verify"; the other generations are not touched by this'


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes, by what they are."""

    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class BackedFile:
    """One file of a generation: contents, one behind the other. A file that grew shares its beginning."""

    path: str
    """From the data folder on."""
    contents: tuple[Content, ...]
    identity: tuple[int, int] = (0, 0)
    """Of the file that it was copied from: device and inode."""

    @property
    def bytes(self) -> int:
        return sum(content.bytes for content in self.contents)

    @property
    def shown(self) -> str:
        """Its path, as it may be told."""
        return shown(self.path)


def shown(path: str) -> str:
    """A path of the data folder as it may be told: the folder of a queue is half of a capability, its handle is not."""
    above, journals, rest = path.partition(f"/{JOURNALS}/")
    folder, _, name = rest.rpartition("/")
    rid = ids.parse(folder.replace("/", "").encode("utf-8", "replace"))
    return path if rid is None else f"{above}{journals}{ids.handle(rid)}/{name}"


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file that was damaged in the data folder when it was backed up. It is in the generation as it was."""

    path: str
    byte: int
    reason: str


@dataclass(frozen=True, slots=True)
class Generation:
    """All files of a data folder as of one moment."""

    moment_ns: int
    """What was written up to then is in it, and nothing that was written later."""
    began_ns: int
    made_ns: int
    data: str
    """The data folder, as it was named."""
    logs: tuple[tuple[str, str], ...]
    """Path and kind of each log."""
    files: tuple[BackedFile, ...]
    notes: tuple[str, ...] = ()
    """What is not in it."""
    damage: tuple[Damaged, ...] = ()
    """What it cannot be better than."""
    reread: tuple[int, int] = (0, 1)
    """Old contents are re-read in shares (reread.py): which is next, of how many."""
    rotten: tuple[str, ...] = ()
    """Digests of old contents that were, and that nobody could heal: the next backup looks at them again."""

    @property
    def name(self) -> str:
        return show_file_time(self.moment_ns)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def contents(self) -> dict[str, Content]:
        """Each once, by digest."""
        return {content.sha256: content for file in self.files for content in file.contents}


def encode(generation: Generation) -> bytes:
    facts = {
        TITLE: VERSION,
        "moment_ns": generation.moment_ns,
        "began_ns": generation.began_ns,
        "made_ns": generation.made_ns,
        "data": generation.data,
        "logs": dict(generation.logs),
        "notes": list(generation.notes),
        "damage": [[each.path, each.byte, each.reason] for each in generation.damage],
        "reread": list(generation.reread),
        "rotten": list(generation.rotten),
    }
    lines = [f"{json.dumps(name)}: {json.dumps(value)},\n" for name, value in facts.items()]
    files = ",\n".join(json.dumps(_plain(file)) for file in generation.files)
    text = f'{{{"".join(lines)}"files": [\n{files}\n],\n'.encode()
    return text + b'"sha256": "%s"}\n' % hashlib.sha256(text).hexdigest().encode()


def _plain(file: BackedFile) -> dict[str, object]:
    contents = [[content.sha256, content.bytes] for content in file.contents]
    return {"path": file.path, "contents": contents, "identity": list(file.identity)}


def decode(name: str, text: bytes) -> Generation:
    """Raises: Corruption if it is not what was written; WrongFormat for a later version."""
    at = text.rfind(b"\n", 0, len(text) - 1) + 1
    last = _LAST_LINE.fullmatch(text[at:])
    if last is None or hashlib.sha256(text[:at]).hexdigest().encode() != last[1]:
        raise Corruption(name, at, "the digest does not match the lines before it", hint=_HINT)
    try:
        found = json.loads(text)
        if found[TITLE] > VERSION:
            raise WrongFormat(name, f"version {found[TITLE]} of a backup, this program reads version {VERSION}")
        return _generation(found)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Corruption(name, 0, f"this is no manifest of a backup: {error}", hint=_HINT) from error


def _generation(found: dict[str, Any]) -> Generation:
    files = tuple(_file(each) for each in found["files"])
    if len({file.path for file in files}) != len(files):
        raise ValueError("a file is there twice")
    return Generation(
        moment_ns=_number(found["moment_ns"]),
        began_ns=_number(found["began_ns"]),
        made_ns=_number(found["made_ns"]),
        data=str(found["data"]),
        logs=tuple((_path(path), str(kind)) for path, kind in found["logs"].items()),
        files=files,
        notes=tuple(str(note) for note in found["notes"]),
        damage=tuple(_damaged(*each) for each in found.get("damage", ())),  # not in those of former versions
        reread=_reread(*found.get("reread", (0, 1))),
        rotten=tuple(_digest(each) for each in found.get("rotten", ())),
    )


def _damaged(path: object, byte: object, reason: object) -> Damaged:
    return Damaged(_path(path), _number(byte), str(reason))


def _reread(share: object, shares: object) -> tuple[int, int]:
    if _number(share) >= _number(shares):
        raise ValueError("there is no such share")
    return _number(share), _number(shares)


def _file(found: dict[str, Any]) -> BackedFile:
    contents = tuple(Content(_digest(sha256), _number(size)) for sha256, size in found["contents"])
    device, inode = found["identity"]
    return BackedFile(_path(found["path"]), contents, (_number(device), _number(inode)))


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise ValueError(f"{value!r} is no number that can be")
    return value


def _digest(value: object) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError("what should be a digest is none")
    return value


def _path(value: object) -> str:
    """Never one that leads out of the folder."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or "\0" in value:
        raise ValueError("what should be a path is none")
    if any(part in ("", ".", "..") for part in value.split("/")):
        raise ValueError(f"{value!r} leads elsewhere")
    return value


def moment_of(name: str) -> int | None:
    """The moment that the name of a manifest says, None if it is none."""
    text = name.removesuffix(SUFFIX)
    try:
        moment = parse_file_time(text)
        return moment if name == show_file_time(moment) + SUFFIX else None
    except (ValueError, IndexError):
        return None
