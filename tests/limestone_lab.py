"""Folders of limestone made up in memory: its bytes, little endian, without any help of the code under test."""

from __future__ import annotations

import struct

from lamina.engines.store.limestone import LimestoneFolder, read_folder
from lamina.testing import MemoryFiles

FOLDER = "d"
HEADER, FOOTER = "COMPACTION_CATALOG_HEADER", "COMPACTION_CATALOG_FOOTER"
ACTIVE = "pwal_0000"
ROTATED = "pwal_0000.01794725204181.0"
COMPACTED = "pwal_0000.compacted"
PREVIOUS = "pwal_0000.compacted.prev"


def begin(epoch: int) -> bytes:
    return b"\x02" + struct.pack("<Q", epoch)


def void(epoch: int) -> bytes:
    return b"\x06" + struct.pack("<Q", epoch)


def end(epoch: int) -> bytes:
    return b"\x03" + struct.pack("<Q", epoch) + b"\x01"


def durable(*epochs: int) -> bytes:
    return b"".join(b"\x04" + struct.pack("<Q", epoch) for epoch in epochs)


def put(key: bytes, value: bytes, major: int, minor: int = 0, *, storage: int = 1) -> bytes:
    head = b"\x01" + struct.pack("<IIQ", len(key), len(value), storage)
    return head + key + struct.pack("<QQ", major, minor) + value


def put_with_blobs(key: bytes, value: bytes, major: int, blobs: list[int], *, storage: int = 1) -> bytes:
    plain = put(key, value, major, storage=storage)
    return b"\x0a" + plain[1:] + struct.pack("<I", len(blobs)) + b"".join(struct.pack("<Q", blob) for blob in blobs)


def remove(key: bytes, major: int, minor: int = 0, *, storage: int = 1) -> bytes:
    return b"\x05" + struct.pack("<IQ", len(key), storage) + key + struct.pack("<QQ", major, minor)


def about(kind: int, storage: int, major: int, minor: int = 0) -> bytes:
    """7 clear, 8 add, 9 remove storage."""
    return bytes([kind]) + struct.pack("<QQQ", storage, major, minor)


def session(epoch: int, *entries: bytes) -> bytes:
    return begin(epoch) + b"".join(entries) + end(epoch)


def compacted(*pairs: tuple[bytes, bytes]) -> bytes:
    return begin(0) + b"".join(put(key, value, 0) for key, value in pairs)


def manifest(version: object = 7, layout: str = "1.1") -> bytes:
    return f'{{"format_version":"{layout}","instance_uuid":"u","persistent_format_version":{version}}}'.encode()


def catalog(max_epoch: int = 0, *, detached: tuple[str, ...] = (), is_compacted: bool = False) -> bytes:
    lines = [HEADER]
    lines += [f"COMPACTED_FILE {COMPACTED} 1"] if is_compacted else []
    lines += [f"DETACHED_PWAL {name}" for name in detached]
    lines += [f"MAX_EPOCH_ID {max_epoch}", "MAX_BLOB_ID 0", FOOTER, ""]
    return "\n".join(lines).encode()


def disk(contents: dict[str, bytes] | None = None, *, epoch: int | bytes = 0, version: int = 7) -> MemoryFiles:
    """A folder with ``contents``; manifest, empty catalog and epoch file as usual unless they are in it."""
    epochs = epoch if isinstance(epoch, bytes) else durable(epoch)
    usual = {"limestone-manifest.json": manifest(version), "epoch": epochs}
    if "compaction_catalog.back" not in (contents or {}):
        usual["compaction_catalog"] = catalog()
    return MemoryFiles({f"{FOLDER}/{name}": data for name, data in {**usual, **(contents or {})}.items()})


def read(contents: dict[str, bytes] | None = None, *, epoch: int | bytes = 0, version: int = 7) -> LimestoneFolder:
    """Read such a folder; nothing of it may change."""
    files = disk(contents, epoch=epoch, version=version)
    before = {path: bytes(content.data) for path, content in files.names.items()}
    try:
        return read_folder(files, FOLDER)
    finally:
        assert {path: bytes(content.data) for path, content in files.names.items()} == before


def pairs(found: LimestoneFolder) -> dict[bytes, bytes]:
    return {key: value for _, key, value in found.entries}
