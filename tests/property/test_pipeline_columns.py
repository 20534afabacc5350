"""The compiled decoder of batches and its Python twin give the same columns, and refuse the same records."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import pipeline
from lamina.engines.store import codec as store_codec
from lamina.engines.topics import codec as topic_codec
from lamina.engines.topics import entries
from lamina.engines.topics.ids import EntryId
from lamina.pipeline import columns as chosen
from pure import load_pure

pytestmark = pytest.mark.skipif(not pipeline.IS_COMPILED, reason="nothing was compiled here")

pure = load_pure(pipeline, "columns")
NUMBERS = st.integers(0, (1 << 64) - 1) | st.integers(0, 300)
IDS = st.builds(lambda ms, sequence: EntryId(ms << 64 | sequence), NUMBERS, NUMBERS)
FIELDS = st.lists(st.tuples(st.binary(max_size=300) | st.text().map(str.encode), st.binary(max_size=300)), max_size=20)
ENTRY = st.builds(lambda entry, pairs: entries.encode(entry, [each for pair in pairs for each in pair]), IDS, FIELDS)
OTHER = st.one_of(
    st.builds(lambda ids: topic_codec.encode_deleted(ids), st.lists(IDS, min_size=1, max_size=4)),
    st.builds(lambda upto, count: topic_codec.encode_trimmed(upto, count), IDS, NUMBERS),
    st.builds(topic_codec.encode_set, IDS, NUMBERS, IDS),
)
KEY = st.binary(max_size=40)
STORED = st.one_of(
    st.builds(store_codec.begin, st.integers(1, 1 << 62)),
    st.builds(store_codec.end, st.integers(1, 1 << 62), st.integers(0, 9)),
    st.builds(store_codec.put, NUMBERS, KEY, KEY, NUMBERS, NUMBERS),
    st.builds(store_codec.remove, NUMBERS, KEY, NUMBERS, NUMBERS),
    st.builds(store_codec.about_storage, st.sampled_from([5, 6, 7]), NUMBERS, NUMBERS, NUMBERS),
    st.just(b"\x92\x00\xcf" + bytes(8)),
)


def laid_out(payloads: list[bytes]) -> tuple[bytes, array[int], array[int]]:
    """A buffer with something between the payloads, and where they are."""
    data, offsets, lengths = bytearray(b"??"), array("q"), array("q")
    for payload in payloads:
        offsets.append(len(data))
        lengths.append(len(payload))
        data += payload + b"####"
    return bytes(data), offsets, lengths


def outcome(module: ModuleType, name: str, *arguments: Any) -> object:
    try:
        return tuple(getattr(module, name)(*arguments))
    except ValueError as error:
        return error.args[-1] if len(error.args) > 1 else "no number"


def same(name: str, *arguments: Any) -> object:
    ours, reference = outcome(chosen, name, *arguments), outcome(pure, name, *arguments)
    assert ours == reference
    return ours


@given(st.lists(ENTRY | OTHER, max_size=20))
def test_topics(payloads: list[bytes]) -> None:
    found = same("topic", *laid_out(payloads))
    assert isinstance(found, tuple) and len(found[0]) == len(payloads)


@given(st.lists(ENTRY | OTHER, min_size=1, max_size=5), st.data())
def test_spoilt_topics(payloads: list[bytes], data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(payloads) - 1))
    spoilt = bytearray(payloads[which])
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    payloads[which] = bytes(spoilt[: data.draw(st.integers(0, len(spoilt)))])
    same("topic", *laid_out(payloads))


@given(st.lists(STORED | st.binary(max_size=40), max_size=20), st.integers(-1, 5))
def test_entries(payloads: list[bytes], epoch: int) -> None:
    same("entries", *laid_out(payloads), epoch)


@given(st.lists(st.binary(max_size=500), max_size=20), st.integers(0, 1 << 40))
def test_payloads_and_positions(payloads: list[bytes], base: int) -> None:
    data, offsets, lengths = laid_out(payloads)
    found = same("gather", data, offsets, lengths)
    assert isinstance(found, tuple) and found[1] == b"".join(payloads)
    assert chosen.positions(base, offsets, lengths) == pure.positions(base, offsets, lengths)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=20))
def test_times(times: list[int]) -> None:
    assert chosen.micros(array("q", times)) == pure.micros(array("q", times))


@given(
    st.lists(st.sampled_from([b"w" * 3 + bytes(8), b"gg" + bytes(8), b"www", b"x" * 11, b"x" * 10, b""]), max_size=12)
)
def test_marks_are_left_out(payloads: list[bytes]) -> None:
    data, offsets, lengths = laid_out(payloads)
    times = array("q", range(len(payloads)))
    found = same("without_marks", data, times, offsets, lengths, b"www", b"gg")
    assert isinstance(found, tuple)
    assert list(found[0]) == [
        at for at, each in enumerate(payloads) if each not in (b"www" + bytes(8), b"gg" + bytes(8))
    ]
