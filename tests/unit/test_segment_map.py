"""The segment map: to scale, whole, readable without colour, and never markup from a name."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import msgspec
import pytest

from lamina.server.http.console import segment_map as maps
from lamina.server.http.console.segment_map import NARROW, WIDE, Size
from lamina.server.http.ops.logs_model import Damage, Holder, LogRow, Segment, Totals

MINUTE_NS = 60 * 10**9
START_NS = 1_794_725_200 * 10**9


def segment(
    number: int, size: int, *, state: str = "sealed", live: int | None = None, dead: int = 0, pinned: int = 0
) -> Segment:
    return Segment(
        file=f"{number:09d}.log",
        state=state,
        bytes=size,
        first_ns=START_NS + number * MINUTE_NS,
        last_ns=START_NS + (number + 1) * MINUTE_NS,
        live_bytes=live,
        dead_bytes=None if live is None else dead,
        pinned_bytes=None if live is None else pinned,
        pinned_by=["spark"] if pinned else [],
    )


def some(count: int = 6) -> list[Segment]:
    """The newest first: one that grows, one that is not known, others."""
    sealed = [segment(number, 1000, live=600, dead=300, pinned=100) for number in range(count - 2, 0, -1)]
    return [segment(count, 250, state="active"), segment(count - 1, 1000), *sealed]


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314 - our own


def rects(root: ElementTree.Element) -> list[ElementTree.Element]:
    """Pieces of layers, without textures and what is touched."""
    return [
        rect
        for group in root.iter("g")
        if group.get("class") == "segment"
        for rect in group.iter("rect")
        if rect.get("class") != "m-touch"
    ]


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_areas_are_bytes(size: Size) -> None:
    segments = some()
    total = sum(one.bytes for one in segments)
    root = parsed(maps.core(segments, [], size, "k", "a log"))
    scale = size.core * size.height / total
    areas: dict[str, float] = {}
    for rect in rects(root):
        kind = (rect.get("fill") or "live").removeprefix("url(#k-").removesuffix(")")
        areas[kind] = areas.get(kind, 0.0) + float(rect.get("width", 0)) * float(rect.get("height", 0)) / scale
    expected = {"live": 4 * 600, "dead": 4 * 300, "pinned": 4 * 100, "unknown": 1000, "active": 250}
    assert areas == {kind: pytest.approx(size, rel=0.01) for kind, size in expected.items()}


def test_layers_fill_the_core_from_the_newest_down() -> None:
    drawn = maps.layers(some(), 440)
    assert [layer.segments[0].file for layer in drawn] == [one.file for one in some()]
    assert drawn[0].top == 0
    assert drawn[-1].bottom == pytest.approx(440)
    assert all(one.bottom == pytest.approx(other.top) for one, other in pairwise(drawn))


def test_files_too_thin_to_see_are_drawn_together_and_none_is_left_out() -> None:
    segments = [segment(9000, 10, state="active"), *(segment(at, 1000, live=1000) for at in range(8000, 0, -1))]
    drawn = maps.layers(segments, 440)
    assert len(drawn) <= 440 / maps.THINNEST + 2
    assert sum(len(layer.segments) for layer in drawn) == len(segments)
    assert sum(layer.height for layer in drawn) == pytest.approx(440)
    assert sum(layer.bytes for layer in drawn) == sum(one.bytes for one in segments)
    assert drawn[0].segments == segments[:1], "the one that grows is not drawn as if it were sealed"
    told = maps.lines(drawn[5])
    assert told[0].startswith(f"{len(drawn[5].segments)} files")


def test_no_bytes_at_all_are_no_layers() -> None:
    assert maps.layers([], 440) == []
    assert maps.layers([segment(1, 0)], 440) == []
    parsed(maps.core([segment(1, 0)], [], WIDE, "k", "empty"))


@pytest.mark.parametrize("count", [3, 12, 60])
@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_labels_stand_apart_and_within_the_picture(count: int, size: Size) -> None:
    segments = [segment(at, 1 + (at * at) % 977, live=0, dead=1 + (at * at) % 977) for at in range(count, 0, -1)]
    root = parsed(maps.core(segments, [], size, "k", "a log"))
    places = [float(text.get("y", 0)) for text in root.iter("text") if "m-size" in (text.get("class") or "")]
    assert len(places) == min(len(maps.layers(segments, size.height)), size.height // 17)
    assert all(later - earlier >= 16.9 for earlier, later in pairwise(places))
    assert places[0] >= 0 and places[-1] <= size.height + 4
    for text in root.iter("text"):
        assert 0 <= float(text.get("x", 0)) <= size.width


def test_a_layer_tells_what_is_known_and_what_is_not() -> None:
    whole, unknown = maps.layers([segment(2, 2048), segment(1, 1024, live=1000, dead=4, pinned=20)], 100)[::-1]
    told = maps.lines(whole)
    assert told[:2] == ["000000001.log", "sealed, 1.0 KiB"]
    assert "live: 1000 B" in told and "dead: 4 B" in told and "pinned: 20 B" in told
    assert "pinned by spark" in told
    assert "not known what of it is alive" in maps.lines(unknown)
    assert not [line for line in maps.lines(unknown) if "dead" in line]


def test_brackets_reach_down_to_the_oldest_file_that_is_held() -> None:
    segments = some()
    near = Holder(name="near", kind="consumer", files=2, bytes=1250, oldest_file="000000005.log")
    far = Holder(name="far", kind="group", files=4, bytes=3250, oldest_file="000000003.log")
    none = Holder(name="none", kind="group", files=0, bytes=0, oldest_file="")
    assert [one.name for one in maps.held([near, none, far])] == ["far", "near"]
    root = parsed(maps.core(segments, [near, none, far], WIDE, "k", "a log"))
    brackets = [group for group in root.iter("g") if group.get("class") == "m-bracket"]
    assert [bracket.findtext("text") for bracket in brackets] == ["A", "B"]
    layers = {layer.segments[0].file: layer for layer in maps.layers(segments, WIDE.height)}
    for bracket, file in zip(brackets, ("000000003.log", "000000005.log"), strict=True):
        path = bracket.find("path")
        assert path is not None
        end = float((path.get("d") or "").partition("V")[2].partition("h")[0])
        assert end == pytest.approx(layers[file].bottom, abs=2)


def test_damage_is_drawn_at_its_byte() -> None:
    bad = Damage(file="000000001.log", offset=250, end=300, reason="the checksum differs")
    one = segment(1, 1000, live=1000)
    root = parsed(maps.core([msgspec.structs.replace(one, damage=[bad])], [], WIDE, "k", "a log"))
    scar = next(path for path in root.iter("path") if path.get("class") == "m-damage")
    y = float((scar.get("d") or "").split(" ")[1].partition("h")[0])
    assert y == pytest.approx(WIDE.height * 0.75), "the beginning of a file is at the bottom of its layer"
    label = next(group.get("aria-label") or "" for group in root.iter("g") if group.get("class") == "segment")
    assert "damage at byte 250: the checksum differs" in label


def test_names_are_text_and_nothing_is_inline() -> None:
    nasty = msgspec.structs.replace(segment(1, 1000, live=1000), file='"><script>alert(1)</script>', note="<b>")
    text = str(maps.core([nasty], [], WIDE, "k", "<i>"))
    assert "<script" not in text and "<b>" not in text and "<i>" not in text
    assert "style=" not in text
    parsed(text)


def test_each_kind_can_be_told_without_colour() -> None:
    root = parsed(f"<svg>{maps.patterns('k')}</svg>")
    textures = {pattern.get("id"): [each.tag for each in pattern] for pattern in root.iter("pattern")}
    assert set(textures) == {"k-dead", "k-pinned", "k-active", "k-unknown"}, "and live is plain"
    assert len({str(tags) for tags in textures.values()}) >= 3
    assert all(len(tags) > 1 for tags in textures.values())


@pytest.mark.parametrize(("total", "last"), [(1, 1), (1000, 768), (64 << 20, 64 << 20), (10**12, 3 << 38)])
def test_ticks_are_round_and_few(total: int, last: int) -> None:
    found = maps.ticks(total)
    assert found[0] == 0 and found[-1] == last <= total
    assert len(found) <= 7
    step = found[1] - found[0]
    assert step & (step - 1) == 0, "a power of two"


def test_strips_are_to_the_scale_of_the_largest() -> None:
    row = LogRow(name="jobs", kind="jobs", bytes=500, other_bytes=0, files=3, pieces=[200, 200, 100], active_bytes=100)
    bars = [float(rect.get("width", 0)) for rect in parsed(maps.strip(row, 1000, "k")).iter("rect")]
    assert sum(bars) == pytest.approx(500) and bars[-1] == pytest.approx(100)
    known = msgspec.structs.replace(row, totals=Totals(live=300, dead=100, active=100))
    bars = [float(rect.get("width", 0)) for rect in parsed(maps.strip(known, 1000, "k")).iter("rect")]
    assert bars == [pytest.approx(100), pytest.approx(300), pytest.approx(100)]
    tiny = LogRow(name="t", kind="topic", bytes=1, other_bytes=0, files=1, pieces=[1], active_bytes=1)
    assert "m-hint" in maps.strip(tiny, 10**9, "k"), "there is something"
    parsed(maps.strip(LogRow(name="t", kind="topic", bytes=0, other_bytes=0, files=0), 0, "k"))
