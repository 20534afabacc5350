"""Ids of queues: the compiled twin and the Python one agree, on any bytes."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lamina.engines import queues as package
from lamina.engines.queues import ids
from pure import load_pure

pure = load_pure(package, "ids")
both = pytest.mark.skipif(not package.IS_COMPILED, reason="the compiled twins are not built here")


@given(st.binary(min_size=24, max_size=24))
def test_an_id_comes_back_from_its_text(id: bytes) -> None:
    text = ids.wire(id)
    assert len(text) == 32 and ids.show(id) == text.decode()
    assert ids.parse(text) == id


@both
@given(st.binary(min_size=24, max_size=24))
def test_both_twins_show_the_same(id: bytes) -> None:
    assert ids.wire(id) == pure.wire(id)
    assert ids.handle(id) == pure.handle(id)


LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@both
@given(st.binary(max_size=40) | st.lists(st.sampled_from(LETTERS), min_size=30, max_size=34).map(bytes))
@example(b"+" * 32)
@example(b"/" * 32)
@example(b"=" * 32)
@example(b"A" * 31 + b"=")
@example(b"A" * 31 + b"\x80")
def test_both_twins_read_the_same(text: bytes) -> None:
    assert ids.parse(text) == pure.parse(text)


def test_the_twins_are_two() -> None:
    assert ids.parse is not pure.parse
