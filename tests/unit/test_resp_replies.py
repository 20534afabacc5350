"""Reply values as bytes, in both versions, and that readers of the protocol get the values back.

The table was compared with the answers of a real Redis 7.0, to DEBUG PROTOCOL and ZSCORE among others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.server.resp import replies
from lamina.server.resp.replies import NULL_ARRAY, Error, Map, Push, Set, Simple, Value, Verbatim, encode

TABLE: list[tuple[Value, bytes, bytes]] = [  # of a value: version 2, version 3
    (b"Hello World", b"$11\r\nHello World\r\n", b"$11\r\nHello World\r\n"),
    (b"", b"$0\r\n\r\n", b"$0\r\n\r\n"),
    (b"a\r\n\0\xff", b"$5\r\na\r\n\0\xff\r\n", b"$5\r\na\r\n\0\xff\r\n"),
    (12345, b":12345\r\n", b":12345\r\n"),
    (-9223372036854775808, b":-9223372036854775808\r\n", b":-9223372036854775808\r\n"),
    (None, b"$-1\r\n", b"_\r\n"),
    (NULL_ARRAY, b"*-1\r\n", b"_\r\n"),
    ([0, 1, 2], b"*3\r\n:0\r\n:1\r\n:2\r\n", b"*3\r\n:0\r\n:1\r\n:2\r\n"),
    ((), b"*0\r\n", b"*0\r\n"),
    ([None, [b"a", NULL_ARRAY]], b"*2\r\n$-1\r\n*2\r\n$1\r\na\r\n*-1\r\n", b"*2\r\n_\r\n*2\r\n$1\r\na\r\n_\r\n"),
    (True, b":1\r\n", b"#t\r\n"),
    (False, b":0\r\n", b"#f\r\n"),
    (3.141, b"$5\r\n3.141\r\n", b",3.141\r\n"),
    (0.1, b"$19\r\n0.10000000000000001\r\n", b",0.10000000000000001\r\n"),
    (3.0, b"$1\r\n3\r\n", b",3\r\n"),
    (-2.5e-10, b"$23\r\n-2.5000000000000002e-10\r\n", b",-2.5000000000000002e-10\r\n"),
    (1e300, b"$23\r\n1.0000000000000001e+300\r\n", b",1.0000000000000001e+300\r\n"),
    (math.inf, b"$3\r\ninf\r\n", b",inf\r\n"),
    (-math.inf, b"$4\r\n-inf\r\n", b",-inf\r\n"),
    (Simple(b"OK"), b"+OK\r\n", b"+OK\r\n"),
    (Error(b"ERR no"), b"-ERR no\r\n", b"-ERR no\r\n"),
    (
        Map([(0, False), (1, True), (2, False)]),
        b"*6\r\n:0\r\n:0\r\n:1\r\n:1\r\n:2\r\n:0\r\n",
        b"%3\r\n:0\r\n#f\r\n:1\r\n#t\r\n:2\r\n#f\r\n",
    ),
    (Map([]), b"*0\r\n", b"%0\r\n"),
    (
        Map([(b"s", 1), (b"s", 2)]),
        b"*4\r\n$1\r\ns\r\n:1\r\n$1\r\ns\r\n:2\r\n",
        b"%2\r\n$1\r\ns\r\n:1\r\n$1\r\ns\r\n:2\r\n",
    ),
    (Set([0, 1, 2]), b"*3\r\n:0\r\n:1\r\n:2\r\n", b"~3\r\n:0\r\n:1\r\n:2\r\n"),
    (
        Push([b"server-cpu-usage", 42]),
        b"*2\r\n$16\r\nserver-cpu-usage\r\n:42\r\n",
        b">2\r\n$16\r\nserver-cpu-usage\r\n:42\r\n",
    ),
    (
        Verbatim(b"This is a verbatim\nstring"),
        b"$25\r\nThis is a verbatim\nstring\r\n",
        b"=29\r\ntxt:This is a verbatim\nstring\r\n",
    ),
    (Verbatim(b"# T", b"mkd"), b"$3\r\n# T\r\n", b"=7\r\nmkd:# T\r\n"),
]


@pytest.mark.parametrize(("value", "version_2", "version_3"), TABLE, ids=lambda each: repr(each)[:40])
def test_a_value_has_these_bytes(value: Value, version_2: bytes, version_3: bytes) -> None:
    assert encode(value, 2) == version_2
    assert encode(value, 3) == version_3


@pytest.mark.parametrize("version", [2, 3])
def test_the_short_ways_give_the_same_bytes(version: int) -> None:
    assert replies.bulk(b"a\r\nb") == encode(b"a\r\nb", version)
    assert replies.integer(-7) == encode(-7, version)
    assert replies.simple(b"OK") == encode(Simple(b"OK"), version) == replies.OK
    assert replies.error(b"ERR no") == encode(Error(b"ERR no"), version)
    assert replies.null(version) == encode(None, version)
    assert replies.null_array(version) == encode(NULL_ARRAY, version)
    assert replies.array([replies.OK, replies.integer(1)]) == encode([Simple(b"OK"), 1], version)
    assert replies.array([]) == encode([], version) == replies.EMPTY_ARRAY


def test_a_line_end_cannot_start_another_answer() -> None:
    assert replies.error(b"ERR unknown command 'a\r\n+OK\n'") == b"-ERR unknown command 'a  +OK '\r\n"
    assert encode([Simple(b"a\r\n:1")], 3) == b"*1\r\n+a  :1\r\n"


@pytest.mark.parametrize("value", ["text", {b"a": 1}, bytearray(b"a"), object(), [b"a", "text"]])
def test_what_is_no_value_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="no reply value"):
        encode(value, 3)


# -- readers get the values back -----------------------------------------------------------------------------------


class Refused(Exception):
    """How our reader shows an error."""


def read(data: bytes) -> object:
    """The one answer that ``data`` is: a reader as small as the protocol allows."""
    stream = BytesIO(data)
    value = _read(stream)
    assert stream.read() == b""
    return value


def _read(stream: BytesIO) -> Any:
    line = stream.readline()
    assert line.endswith(b"\r\n")
    kind, rest = line[:1], line[1:-2]
    if kind in b"$=*" and rest == b"-1":
        return None
    if kind in b"$=":
        data = stream.read(int(rest))
        assert stream.read(2) == b"\r\n"
        return data if kind == b"$" else data[4:]
    if kind in b"*~>":
        return [_read(stream) for _ in range(int(rest))]
    if kind == b"%":
        return {_read(stream): _read(stream) for _ in range(int(rest))}
    simple: dict[bytes, Callable[[bytes], object]] = {
        b"+": bytes,
        b"-": lambda text: Refused(text.decode()),
        b":": int,
        b",": float,
        b"#": b"t".__eq__,
        b"_": lambda _: None,
    }
    return simple[kind](rest)


def read_with_hiredis(data: bytes) -> object:
    hiredis = pytest.importorskip("hiredis")
    reader = hiredis.Reader(replyError=Refused)
    reader.feed(data)
    value = reader.gets()
    assert value is not False or data == b"#f\r\n"
    assert not reader.has_data()
    return value


def comparable(found: Any) -> Any:
    """What a reader gave, with errors in a form that can be compared."""
    if isinstance(found, Refused):
        return ("refused", str(found))
    if isinstance(found, list):
        return [comparable(each) for each in found]
    if isinstance(found, dict):
        return {key: comparable(each) for key, each in found.items()}
    return found


def expected(value: Any, version: int) -> Any:
    """What a reader of ``version`` makes of ``value``."""
    if isinstance(value, list):
        return [expected(each, version) for each in value]
    if isinstance(value, Map):
        pairs = [(key, expected(each, version)) for key, each in value.pairs]
        return dict(pairs) if version == 3 else [each for pair in pairs for each in pair]
    if isinstance(value, Set | Push):
        return [expected(each, version) for each in value.items]
    if isinstance(value, Error):
        return ("refused", value.text.decode())
    if isinstance(value, Simple | Verbatim):
        return value.text
    if isinstance(value, float) and version == 2:
        return b"%.17g" % value
    return None if value is NULL_ARRAY else value


LINE = st.text("abc XYZ.:-", max_size=9).map(str.encode)
INT64 = st.integers(-(2**63), 2**63 - 1)
SINGLE = st.one_of(
    st.binary(max_size=30),
    INT64,
    st.booleans(),
    st.floats(allow_nan=False),
    st.sampled_from([None, NULL_ARRAY]),
    LINE.map(Simple),
    LINE.map(lambda text: Error(b"ERR " + text)),
    LINE.map(Verbatim),
    st.lists(st.binary(max_size=5), max_size=4, unique=True).map(Set),
)


def holders(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.dictionaries(st.binary(max_size=5), inner, max_size=4)
    return st.lists(inner, max_size=5) | pairs.map(lambda each: Map(list(each.items())))


@pytest.mark.parametrize("reader", [read, read_with_hiredis])
@pytest.mark.parametrize("version", [2, 3])
@settings(max_examples=150, deadline=None)
@given(value=st.recursive(SINGLE, holders, max_leaves=12))
def test_a_reader_gets_the_value_back(reader: Callable[[bytes], object], version: int, value: Any) -> None:
    assert comparable(reader(encode(value, version))) == expected(value, version)


@pytest.mark.parametrize("reader", [read, read_with_hiredis])
@pytest.mark.parametrize("version", [2, 3])
def test_a_reader_gets_a_push_and_a_number_that_is_none(reader: Callable[[bytes], object], version: int) -> None:
    push = Push([b"message", b"topic", [1, None]])
    assert comparable(reader(encode(push, version))) == expected(push, version)
    found = reader(encode(math.nan, version))
    assert found == b"nan" if version == 2 else isinstance(found, float) and math.isnan(found)
