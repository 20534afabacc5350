"""What tasks hand to the driver: files of entries, synced, that nobody counts until the driver says so.

    <place>/_tmp/publish-<of>-<ms>-<random>/part-00003-…      the entries of one attempt at one task
    <place>/_tmp/publish-<of>-<ms>-<random>/manifest          which parts count, in order

A part is a file of frames (log/frame.py), so damage is noticed; a record is the topic and an entry as a topic has it.
``of`` tells whose it is (``staged_name``), so that what dead attempts left can be told from what somebody is writing.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from lamina.engines.topics import entries as codec
from lamina.engines.topics.codec import BadRecord
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import show_name
from lamina.errors import BadTopic, Corruption, DiskError, RecordTooLarge, from_os
from lamina.log import kernel, rewrite
from lamina.log.files import File, Files, join, write_all
from lamina.log.formats import PLAIN
from lamina.log.frame import MAX_PAYLOAD, REASONS, Stop
from lamina.log.naming import TIMED
from lamina.log.scan import FileScan
from lamina.log.segment import check_header, open_for_reading
from lamina.pipeline.sinking.sink_columns import Entry
from lamina.pipeline.staging import part_name
from lamina.units import MIB

PREFIX: Final = "publish-"
_MANIFEST: Final = "manifest"
_TOPIC: Final = struct.Struct(">H")
_FLUSH: Final = MIB
_LARGEST: Final = MAX_PAYLOAD - 1024  # what is put around and beside the fields has to fit, too


@dataclass(frozen=True, slots=True)
class Part:
    """One whole part."""

    name: str
    entries: int
    size: int
    chosen: dict[str, tuple[str, str]]
    """Where ids were chosen: the first and the last of each topic."""


def staged_name(of: str, made_ms: int, token: str) -> str:
    """The folder of one attempt; ``of``: whose it is, so that the same who comes again can sweep."""
    return f"{PREFIX}{mark_of(of)}-{made_ms}-{token}"


def mark_of(of: str) -> str:
    return hashlib.sha256(of.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def made_ms(staged: str) -> int:
    """When the driver named the folder; 0: it is none of these."""
    pieces = staged.split("-")
    return int(pieces[2]) if len(pieces) == 4 and pieces[2].isdigit() else 0


def new_token() -> str:
    return secrets.token_hex(8)


class PartWriter:
    """Writes the part of one attempt at one task. The file is made at the first entry."""

    def __init__(self, files: Files, folder: str, task: int) -> None:
        self._files, self._folder, self._name = files, folder, part_name(task)
        self._file: File | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = self._entries = self._size = 0
        self._chosen: dict[bytes, tuple[EntryId, EntryId]] = {}

    def add(self, entry: Entry) -> None:
        """Raises: RecordTooLarge; BadTopic for a chosen id that does not grow; DiskFull, DiskError."""
        topic, id, flat = entry
        record = codec.encode(id, flat)
        if len(record) > _LARGEST:
            raise RecordTooLarge(self._entries, len(record), _LARGEST)
        if id:
            self._choose(topic, id)
        self._waiting.append(_TOPIC.pack(len(topic)) + topic + record)
        self._waiting_bytes += len(record)
        self._entries += 1
        if self._waiting_bytes >= _FLUSH:
            self._flush()

    def _choose(self, topic: bytes, id: EntryId) -> None:
        first, last = self._chosen.get(topic, (id, EntryId(0)))
        if id <= last:
            raise BadTopic(does_not_grow(topic, id, last), hint='sort the rows: df.orderBy("id"), as ids compare')
        self._chosen[topic] = (first, id)

    def _flush(self) -> None:
        path = join(self._folder, self._name)
        try:
            if self._file is None:
                self._files.make_folder(self._folder)
                self._file = self._files.create(path)
                write_all(self._file, [PLAIN.header])
                self._size = len(PLAIN.header)
            data = kernel.encode_many(self._entries, self._waiting)
            write_all(self._file, [data])
        except OSError as error:
            raise from_os(error, "write the file", path) from error
        self._size += len(data)
        self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> Part | None:
        """None: there was nothing. Durability: when it returns, the part survives a power cut."""
        if self._waiting:
            self._flush()
        if self._file is None:
            return None
        try:
            self._file.sync()
            self._file.close()
            self._files.sync_folder(self._folder)
        except OSError as error:
            raise from_os(error, "sync the file", self._file.path) from error
        chosen = {show_name(topic): (_show(first), _show(last)) for topic, (first, last) in self._chosen.items()}
        return Part(self._name, self._entries, self._size, chosen)


def does_not_grow(topic: bytes, id: EntryId, last: EntryId) -> str:
    return f"the id {_show(id)} for the topic {show_name(topic)} is not behind {_show(last)}"


def _show(id: EntryId) -> str:
    return codec.show(id).decode()


def check_whole(files: Files, folder: str, parts: Sequence[Part]) -> None:
    """All parts are there as their tasks left them. Raises: DiskError."""
    for part in parts:
        try:
            file = files.open(join(folder, part.name))
        except OSError as error:
            raise from_os(error, "open the staged file", join(folder, part.name)) from error
        try:
            size = file.size()
        finally:
            file.close()
        if size != part.size:
            reason = f"{join(folder, part.name)} has {size} bytes and not {part.size}"
            raise DiskError(reason, hint="is it on storage that driver and executors share?")


def write_manifest(files: Files, folder: str, parts: Sequence[Part]) -> None:
    """Durability: when it returns, it is synced. Raises: DiskFull, DiskError."""
    write_json(files, folder, _MANIFEST, [asdict(part) for part in parts])


def read_manifest(files: Files, folder: str) -> list[Part]:
    """Raises: Corruption, DiskError."""
    try:
        return [Part(**facts) for facts in read_json(files, folder, _MANIFEST)]
    except FileNotFoundError as error:
        raise from_os(error, "open the staged file", join(folder, _MANIFEST)) from error


def read_entries(files: Files, folder: str, parts: Sequence[Part], first: int = 0) -> Iterator[Entry]:
    """The entries of all parts in order, from the number ``first`` on. Memory does not grow with them.

    Raises: Corruption; DiskError.
    """
    for part in parts:
        if first >= part.entries:
            first -= part.entries
            continue
        for number, entry in enumerate(_part_entries(files, folder, part)):
            if number >= first:
                yield entry
        first = 0


def _part_entries(files: Files, folder: str, part: Part) -> Iterator[Entry]:
    try:
        file = open_for_reading(files, folder, part.name)
    except FileNotFoundError as error:
        raise from_os(error, "open the staged file", join(folder, part.name)) from error
    try:
        check_header(file, part.name, PLAIN)
        count, scan = 0, FileScan(file)
        for batch in scan:
            for at in range(len(batch.times)):
                payload = batch.payload(at)
                (size,) = _TOPIC.unpack_from(payload)
                id, flat = codec.decode(payload[_TOPIC.size + size :])
                count += 1
                yield payload[_TOPIC.size : _TOPIC.size + size], id, flat
        if scan.why is not Stop.END or count != part.entries:
            raise Corruption(part.name, scan.stop, REASONS.get(scan.why, "entries are missing"))
    except (BadRecord, struct.error) as error:
        raise Corruption(part.name, 0, f"an entry cannot be read: {error}") from error
    finally:
        file.close()


# -- small files -------------------------------------------------------------------------------------------------------


def write_json(files: Files, folder: str, name: str, value: object) -> None:
    """Make ``name`` a file of one record, the value as JSON. Durability: when it returns, it is synced.

    Raises: DiskFull, DiskError; then the old one is there still.
    """
    record = kernel.encode_many(0, [json.dumps(value).encode()])
    rewrite.replace(files, folder, name, [PLAIN.header, record], TIMED)


def read_json(files: Files, folder: str, name: str) -> Any:
    """The opposite. Raises: FileNotFoundError; Corruption, WrongFormat, DiskError."""
    file = open_for_reading(files, folder, name)
    try:
        check_header(file, join(folder, name), PLAIN)
        scan = FileScan(file)
        payloads = [batch.payload(at) for batch in scan for at in range(len(batch.times))]
    finally:
        file.close()
    if scan.why is not Stop.END or len(payloads) != 1:
        raise Corruption(join(folder, name), scan.stop, REASONS.get(scan.why, "one record has to be there"))
    return json.loads(payloads[0])
