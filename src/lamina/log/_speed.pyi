from collections.abc import Sequence

from lamina.log.frame import Scan

CRC_INSTRUCTION: bool

def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int: ...
def crc32c_by_table(data: bytes | bytearray | memoryview, crc: int = 0) -> int: ...
def encode_into(
    buffer: bytearray,
    at: int,
    first_ns: int,
    payloads: Sequence[bytes],
    max_payload: int = ...,
    reserved: tuple[bytes, bytes] = ...,
) -> tuple[int, list[tuple[int, int]]]: ...
def encode_into_by_table(
    buffer: bytearray,
    at: int,
    first_ns: int,
    payloads: Sequence[bytes],
    max_payload: int = ...,
    reserved: tuple[bytes, bytes] = ...,
) -> tuple[int, list[tuple[int, int]]]: ...
def encode_many(
    first_ns: int,
    payloads: Sequence[bytes],
    max_payload: int = ...,
    reserved: tuple[bytes, bytes] = ...,
) -> bytes: ...
def scan(data: bytes | bytearray | memoryview, start: int, end: int, max_payload: int = ...) -> Scan: ...
