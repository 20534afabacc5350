"""Epochs: when the last one is durable, who is told, and what the epoch file says. Cases E1 to E26 of the store.

The epoch file differs from limestone's by decision: it is a log of the kernel's whose first record says all that former
files did, so it is never rewritten to become shorter (E22), and rotated ones stay for reads as of a moment (E21).
"""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from lamina.engines.store import codec, epoch_file
from lamina.errors import BadEntry, Corruption, WrongFormat
from lamina.log import kernel
from lamina.log.formats import EPOCH
from store_folder_lab import channel_file, durable, epochs_file, head, put, session
from store_lab import FOLDER, StoreLab


def told(lab: StoreLab) -> list[int]:
    """Epochs that a callback is told from now on."""
    found: list[int] = []
    lab.store.waiters.add_callback(found.append)
    return found


# -- which epoch is durable --------------------------------------------------------------------------------------------


def test_e01_without_sessions_the_last_epoch_is_the_one_before_the_present() -> None:
    lab = StoreLab()
    for epoch in range(1, 20):
        lab.sw(epoch)
        assert lab.store.last_epoch == epoch - 1


def test_e02_epochs_may_jump() -> None:
    lab = StoreLab()
    for epoch in (1, 2, 4, 7, 11, 16, 1 << 40):
        lab.sw(epoch)
        assert lab.store.last_epoch == epoch - 1


def test_e02_epochs_never_fall_and_have_64_bits() -> None:
    lab = StoreLab()
    lab.sw(7)
    for epoch in (6, 0, -1, 1 << 64, (1 << 63) - 1, (1 << 62) + 1):
        with pytest.raises(BadEntry, match="cannot follow epoch 7"):
            lab.sw(epoch)
    assert lab.sw(7) == 7
    assert lab.sw() == 8
    assert lab.sw(1 << 62) == 1 << 62
    assert lab.sw() == (1 << 62) + 1, "whatever somebody asked for, another one can follow"


def test_e03_an_open_session_holds_its_epoch_back() -> None:
    lab = StoreLab()
    lab.sw(1)
    lab.sw(2)
    open_session = lab.begin(0, 2, k="v")
    lab.sw(3)
    lab.sw(4)
    assert lab.store.last_epoch == 1
    open_session.end()
    assert lab.store.last_epoch == 3
    lab.sw(5)
    assert lab.store.last_epoch == 4


def test_e04_the_oldest_open_session_of_all_channels_decides() -> None:
    lab = StoreLab()
    first = lab.begin(0, 2, a="1")
    lab.sw(3)
    second = lab.begin(1, 4, b="2")
    lab.sw(5)
    lab.sw(6)
    assert lab.store.last_epoch == 1
    first.end()
    assert lab.store.last_epoch == 3
    lab.sw(7)
    lab.sw(8)
    assert lab.store.last_epoch == 3
    second.end()
    assert lab.store.last_epoch == 7
    lab.sw(9)
    assert lab.store.last_epoch == 8
    lab.sw(10)
    assert lab.store.last_epoch == 9


# -- callbacks ---------------------------------------------------------------------------------------------------------


def test_e05_a_callback_is_called_once_per_switch_with_the_last_epoch() -> None:
    lab = StoreLab()
    epochs = told(lab)
    lab.sw(2)
    assert epochs == [1] == [lab.store.last_epoch]
    lab.sw(3)
    assert epochs == [1, 2]


def test_e06_no_callback_while_a_session_is_open_and_one_when_it_ends() -> None:
    lab = StoreLab()
    epochs = told(lab)
    open_session = lab.begin(0, 3, k="v")
    epochs.clear()
    lab.sw(4)
    lab.sw(5)
    assert epochs == []
    open_session.end()
    assert epochs == [4]
    lab.sw(6)
    assert epochs == [4, 5]


def test_e07_callbacks_of_two_channels_that_overlap() -> None:
    lab = StoreLab()
    epochs = told(lab)
    counts = []

    def count() -> None:
        counts.append(len(epochs))

    lab.sw(2)
    count()
    first = lab.begin(0, 2, a="1")
    count()
    for epoch in (3, 4):
        lab.sw(epoch)
        count()
    second = lab.begin(1, 4, b="2")
    count()
    for epoch in (5, 6):
        lab.sw(epoch)
        count()
    first.end()
    count()
    for epoch in (7, 8):
        lab.sw(epoch)
        count()
    second.end()
    count()
    for epoch in (9, 10):
        lab.sw(epoch)
        count()
    assert counts == [1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 4, 5]


def test_e08_epochs_without_sessions_are_told_and_not_recorded() -> None:
    lab = StoreLab()
    size = len(lab.data("epoch"))
    lab.sw(2)
    lab.sw(3)
    assert (lab.store.last_epoch, lab.store.recorded_epoch) == (2, 0)
    assert len(lab.data("epoch")) == size


def test_e09_a_session_is_recorded_when_its_epoch_is_over() -> None:
    lab = StoreLab()
    lab.sw(2)
    lab.s(0, 3)
    assert (lab.store.last_epoch, lab.store.recorded_epoch) == (2, 0)
    lab.sw(4)
    assert (lab.store.last_epoch, lab.store.recorded_epoch) == (3, 3)
    lab.sw(5)
    assert (lab.store.last_epoch, lab.store.recorded_epoch) == (4, 3)


def test_e10_or_when_it_ends_in_a_later_epoch() -> None:
    lab = StoreLab()
    open_session = lab.begin(0, 3, k="v")
    lab.sw(4)
    assert (lab.store.last_epoch, lab.store.recorded_epoch) == (2, 0)
    open_session.end()
    assert (lab.store.last_epoch, lab.store.recorded_epoch) == (3, 3)
    lab.sw(5)
    assert (lab.store.last_epoch, lab.store.recorded_epoch) == (4, 3)


def test_e10_a_session_that_left_nothing_is_not_recorded() -> None:
    lab = StoreLab()
    lab.begin(0, 3).end()
    lab.begin(0, 3, k="v").abort()
    lab.sw(4)
    assert (lab.store.last_epoch, lab.store.recorded_epoch, lab.entries()) == (3, 0, {})
    assert lab.names("pwal_") == []


def test_e11_an_epoch_is_never_told_before_its_record_is_synced() -> None:
    lab = StoreLab()
    events: list[str] = []
    lab.store.waiters.add_callback(lambda epoch: events.append(f"inform {epoch}"))

    def watch(operation: str, path: str) -> None:
        if (operation, path) == ("sync", f"{FOLDER}/epoch"):
            events.append(f"record {lab.ld()}")  # what is in the file and about to be synced

    lab.files.before = watch
    lab.sw(2)
    lab.sw(3)
    lab.s(0, 3)
    lab.sw(4)
    lab.s(1, 4)
    lab.sw(5)
    assert events == ["inform 1", "inform 2", "record 3", "inform 3", "record 4", "inform 4"]


def test_e12_a_channel_knows_the_epochs_of_its_open_and_its_last_session() -> None:
    lab = StoreLab()
    lab.ch(0)
    state = lab.store._counter.channels[0]
    assert (state.current, state.finished) == (None, 0)
    open_session = lab.begin(0, 5, k="v")
    assert (state.current, state.finished) == (5, 0)
    open_session.end()
    assert (state.current, state.finished) == (None, 5)


def test_e13_a_callback_that_was_removed_is_not_called_any_more() -> None:
    lab = StoreLab()
    epochs: list[int] = []
    kept = told(lab)
    lab.store.waiters.add_callback(epochs.append)
    lab.sw(2)
    lab.store.waiters.remove_callback(epochs.append)
    lab.sw(3)
    assert (epochs, kept) == ([1], [1, 2])


def test_e13_a_callback_that_fails_keeps_nobody_from_being_told() -> None:
    lab = StoreLab()

    def fails(epoch: int) -> None:
        raise RuntimeError("a mistake of theirs")

    lab.store.waiters.add_callback(fails)
    epochs = told(lab)
    lab.s(0, 2, k="v")
    lab.sw(3)
    assert epochs == [1, 2] and lab.entries() == {"k": "v"}


def test_e14_a_new_store_is_in_epoch_1_and_switching_to_that_does_nothing() -> None:
    """There is no time before a store is ready here: the first epoch is 1, and told when it is over."""
    lab = StoreLab()
    epochs = told(lab)
    assert (lab.store.epoch, lab.store.last_epoch) == (1, 0)
    lab.sw(1)
    assert epochs == []
    lab.sw(2)
    assert epochs == [1]


# -- the epoch file ----------------------------------------------------------------------------------------------------


def with_epoch_file(data: bytes | None) -> StoreLab:
    """A lab whose store is closed and has this epoch file, and no other."""
    lab = StoreLab()
    lab.store.close()
    lab.drop(*lab.names("epoch"))
    if data is not None:
        lab.put_file("epoch", data)
    return lab


@pytest.mark.parametrize("data", [b"", EPOCH.header[:3], EPOCH.header, bytes(8)])
def test_e15_an_empty_epoch_file_says_0(data: bytes) -> None:
    lab = with_epoch_file(data)
    assert lab.ld() == 0
    assert lab.open().last_epoch == 0


def test_e16_without_an_epoch_file_it_is_0_and_one_is_made() -> None:
    lab = with_epoch_file(None)
    assert lab.ld() == 0
    assert lab.open().last_epoch == 0
    assert "epoch" in lab.names()


def test_e17_the_durable_epoch_is_in_the_file() -> None:
    lab = StoreLab()
    lab.s(0, 2)
    assert lab.ld() == 0
    lab.sw(3)
    assert lab.ld() == 2


def test_e18_with_an_empty_main_file_the_rotated_one_says_it() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="v")
    lab.rotate()
    assert lab.ld() == 2
    lab.crash()
    for size in (EPOCH.header, b""):
        lab.put_file("epoch", size)
        assert lab.ld() == 2
    lab.store = lab.open()
    assert (lab.store.last_epoch, lab.entries()) == (2, {"k": "v"})


def test_e19_and_so_does_it_with_no_main_file() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="v")
    lab.rotate()
    lab.crash()
    lab.drop("epoch")
    assert lab.ld() == 2
    lab.store = lab.open()
    assert (lab.store.last_epoch, lab.entries()) == (2, {"k": "v"})


def test_e20_a_main_file_with_records_is_the_one_that_counts() -> None:
    lab = StoreLab()
    lab.s(0, 2)
    lab.rotate()
    lab.s(0, 3)
    lab.sw(4)
    assert len(lab.rotated("epoch")) == 1
    assert lab.ld() == 3


def test_e21_a_new_main_file_says_all_that_rotated_ones_did() -> None:
    """By decision: rotated epoch files stay until clean-up, since they say when each epoch became durable. The newest
    of them stays even then, should the main file be lost."""
    lab = StoreLab()
    for epoch in (2, 4, 6):
        lab.s(0, epoch, k=str(epoch))
        lab.rotate()
    assert len(lab.rotated("epoch")) == 3
    lab.compact()
    lab.compactions.clean_up()
    newest = lab.rotated("epoch")
    assert len(newest) == 1
    lab.store.close()
    lab.drop(*lab.rotated("epoch"))
    lab.store = lab.open()
    assert lab.store.last_epoch >= 6 and lab.entries() == {"k": "6"}


def test_e22_203_epochs_each_with_a_session_make_203_records() -> None:
    """By decision: the file is never rewritten to become shorter. It grows by one record an epoch until it is rotated
    by a compaction, and no other file appears meanwhile."""
    lab = StoreLab()
    lab.s(0, 1)
    lab.sw()
    names = lab.names()
    sizes = [len(lab.data("epoch"))]
    for _ in range(203):
        lab.s(0)
        lab.sw()
        sizes.append(len(lab.data("epoch")))
        assert lab.names() == names
    grown = {after - before for before, after in pairwise(sizes)}
    assert len(grown) == 1 and grown.pop() < 100
    assert lab.ld() == lab.store.last_epoch == 204
    lab.rotate()
    assert len(lab.data("epoch")) < 200


@pytest.mark.parametrize("name", ["epoch.tmp", "compaction_catalog.tmp", "pwal_compacted.7.0.tmp", "run.3", "run.o0"])
def test_e23_what_a_crash_left_half_done_is_removed(name: str) -> None:
    lab = StoreLab()
    lab.s(0, 2, k="v")
    lab.reopen()
    lab.crash()
    lab.put_file(name, b"junk")
    lab.store = lab.open()
    assert name not in lab.names() and lab.entries() == {"k": "v"}


def test_e23_a_file_that_is_not_the_stores_is_left_alone_and_told() -> None:
    lab = StoreLab()
    lab.store.close()
    lab.put_file(".epoch.tmp", b"junk")
    store = lab.open()
    assert store.warnings == [".epoch.tmp: not a file of a store, left alone"]
    assert bytes(lab.data(".epoch.tmp")) == b"junk"


def test_e24_the_last_record_is_the_durable_epoch() -> None:
    lab = with_epoch_file(epochs_file(head(0), durable(1), durable(42)))
    assert lab.ld() == 42
    assert (lab.open().last_epoch, lab.store.is_closed) == (42, True)


def test_e25_a_partial_last_record_is_passed_over_wherever_it_was_cut() -> None:
    """Better than limestone, which refuses: no tool of its own can then open the folder."""
    whole = epochs_file(head(0), durable(1))
    more = whole + kernel.encode_many(1_800_000_000_000_000_000, [durable(42)])
    for size in range(len(whole), len(more)):
        lab = with_epoch_file(more[:size])
        assert lab.ld() == 1
        lab.store = lab.open()
        assert lab.store.last_epoch == 1
        lab.s(0, 5, k="v")
        lab.sw()
        lab.restart()
        assert (lab.store.last_epoch, lab.entries()) == (5, {"k": "v"})


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\0" + bytes(8), "no record of kind 0"),
        (codec.put(1, b"k", b"v", 1, 1), "unpack requires"),
        (b"\x63", "no record of kind 99"),
        (durable(3)[:5], "requires a buffer|unpack"),
        (durable(3) + b"x", "requires a buffer|unpack|multiple"),
        (epoch_file.void(5, 4), "cannot be void"),
        (head(1)[:-1] + b"\xff", "another size|unpack|buffer"),
        (epoch_file.head(1, [], [])[:9] + b"\xff\xff\xff\xff", "4294967295 ranges do not fit"),
        (durable(0), "epoch 0 behind epoch 2"),
    ],
)
def test_e26_a_record_that_cannot_be_is_refused_with_its_byte(payload: bytes, reason: str) -> None:
    good = epochs_file(head(0), durable(2))
    lab = with_epoch_file(good + kernel.encode_many(1_800_000_000_000_000_000, [payload, durable(9)]))
    error = lab.refuses_to_open(Corruption)
    assert (error.facts["file"], error.facts["offset"]) == ("epoch", len(good))
    assert re.search(reason, str(error))


def test_e26_another_kind_of_file_is_refused() -> None:
    lab = with_epoch_file(channel_file(session(1, put(b"k", b"v", 1))))
    assert "pwal file where a epoch file was expected" in str(lab.refuses_to_open(WrongFormat))
    lab = with_epoch_file(b"lmep\0\0\0\2")
    assert "version 2 of a epoch file" in str(lab.refuses_to_open(WrongFormat))
    lab = with_epoch_file(b"not one of ours at all")
    assert lab.refuses_to_open(WrongFormat).facts["file"] == "epoch"


def test_e26_a_byte_that_changed_before_the_last_record_is_refused_and_never_taken_for_a_torn_tail() -> None:
    """Taking it for one would make epochs void that were told to be durable."""
    lab = StoreLab()
    for epoch in (2, 3, 4, 5):
        lab.s(0, epoch, **{f"k{epoch}": "v"})
    lab.sw()
    assert lab.ld() == 5
    lab.crash()
    good = bytes(lab.data("epoch"))
    last = len(good) - 120  # the last record, and the watermark before it
    for offset in range(8, last, 7):
        lab.put_file("epoch", good)
        lab.damage("epoch", offset)
        error = lab.refuses_to_open(Corruption)
        assert error.facts["file"] == "epoch"
    lab.put_file("epoch", bytes(8) + good[8:])
    assert lab.refuses_to_open(Corruption).facts == {"file": "epoch", "offset": 0, "reason": "the header is cut short"}
