"""What is durable is there after any stop, and what is not never comes back: cases D1 to D8, and errors of the disk."""

from __future__ import annotations

import errno

import pytest

from lamina.engines.store import codec
from lamina.errors import Corruption, DiskError, DiskFull, LogClosed, LogFailed, StorageError
from lamina.log import kernel
from lamina.log.formats import PWAL
from lamina.testing import PowerLoss
from store_folder_lab import at, channel_file, durable, epochs_file, head, put, session
from store_lab import StoreLab, epochs_in

# -- durable or not ----------------------------------------------------------------------------------------------------


def test_d01_a_session_of_an_epoch_that_is_not_over_does_not_survive_a_crash() -> None:
    lab = StoreLab()
    lab.s(0, 42, k1="v1")
    lab.sw(43)
    still_open = lab.begin(1, 43, k3="v3")
    lab.s(0, 43, k2="v2")
    lab.flush()
    assert lab.entries() == {"k1": "v1"}
    lab.restart()
    assert lab.entries() == {"k1": "v1"}
    assert still_open.epoch == 43


def test_d02_nor_does_one_whose_epoch_was_not_switched() -> None:
    lab = StoreLab()
    lab.s(0, 42, k1="v1", k2="v2")
    lab.s(0, 43, k3="v3", k4="v4")
    lab.flush()
    assert epochs_in(lab.disk, "pwal_0000") == [42, 43]
    lab.restart()
    assert lab.entries() == {"k1": "v1", "k2": "v2"}


def test_d02_closing_in_order_makes_what_has_ended_durable() -> None:
    """Better than limestone, which forgets it."""
    lab = StoreLab()
    lab.s(0, 42, k1="v1")
    never_ended = lab.begin(1, 42, k2="v2")
    lab.reopen()
    assert lab.entries() == {"k1": "v1"}
    with pytest.raises(LogClosed):
        never_ended.end()
    lab.reopen()
    assert lab.entries() == {"k1": "v1"}


def test_d03_what_was_not_durable_never_comes_back_when_a_later_epoch_is() -> None:
    lab = StoreLab()
    lab.s(0, 42, k1="v1", k2="v2")
    lab.s(0, 43, k3="v3", k4="v4")
    lab.flush()
    lab.restart()
    assert lab.store.epoch == 44
    lab.s(0, 46, k5="v5", k6="v6")
    lab.sw(47)
    for _ in range(3):
        assert lab.entries() == {"k1": "v1", "k2": "v2", "k5": "v5", "k6": "v6"}
        lab.restart()
    lab.compact()
    lab.reopen()
    assert lab.entries() == {"k1": "v1", "k2": "v2", "k5": "v5", "k6": "v6"}


def made_by_hand(pwal: bytes, ld: int) -> StoreLab:
    lab = StoreLab()
    lab.store.close()
    lab.drop(*lab.names("epoch"))
    lab.put_file("epoch", epochs_file(head(0), durable(ld), start_ns=at(ld)))
    lab.put_file("pwal_0000", pwal)
    return lab


def test_d04_a_session_that_is_not_durable_is_passed_over_and_its_file_is_not_changed() -> None:
    data = channel_file(session(42, put(b"k1", b"v1", 42)), session(43, put(b"k2", b"v2", 43)))
    lab = made_by_hand(data, ld=42)
    lab.store = lab.open()
    assert (lab.entries(), lab.store.last_epoch, lab.store.voids) == ({"k1": "v1"}, 43, [(43, 43)])
    (name,) = lab.rotated()
    assert bytes(lab.data(name)) == data


def test_d05_a_torn_session_that_is_not_durable_is_no_error_and_its_rest_is_kept_aside() -> None:
    whole = channel_file(session(42, put(b"k1", b"v1", 42)))
    begun = whole + kernel.encode_many(at(43), [codec.begin(43)])
    lab = made_by_hand(begun + b"\x01\x00", ld=42)
    lab.store = lab.open()
    assert (lab.entries(), lab.store.last_epoch) == ({"k1": "v1"}, 43)
    (aside,) = [name for name in lab.names() if ".torn-" in name]
    assert bytes(lab.data(aside)).endswith(b"\x01\x00")
    assert "pwal_0000, byte" in lab.store.warnings[0]
    lab.restart()
    assert lab.entries() == {"k1": "v1"}


def test_d06_a_torn_session_that_is_durable_is_refused() -> None:
    whole = channel_file(session(42, put(b"k1", b"v1", 42)))
    begun = whole + kernel.encode_many(at(43), [codec.begin(43)])
    lab = made_by_hand(begun + b"\x01\x00", ld=43)
    error = lab.refuses_to_open(Corruption)
    assert (error.facts["file"], error.facts["offset"]) == ("pwal_0000", len(begun))
    assert "inside a session of epoch 43, which is durable" in str(error)


@pytest.mark.parametrize("rest", [bytes(64), b"\x99" * 64])
def test_d07_bytes_that_are_no_record_inside_a_durable_session_are_refused(rest: bytes) -> None:
    begun = PWAL.header + kernel.encode_many(at(42), [codec.begin(42), put(b"k1", b"v1", 42)])
    lab = made_by_hand(begun + rest, ld=42)
    error = lab.refuses_to_open(Corruption)
    assert (error.facts["file"], error.facts["offset"]) == ("pwal_0000", len(begun))


@pytest.mark.parametrize("payload", [b"\0", b"\x99", b"\x08" + bytes(12)])
def test_d07_a_whole_record_that_is_no_entry_is_refused_wherever_it_is(payload: bytes) -> None:
    for sessions in ([codec.begin(42), payload], [*session(42, put(b"k", b"v", 42)), payload]):
        lab = made_by_hand(PWAL.header + kernel.encode_many(at(42), sessions), ld=42)
        assert "no entry of kind" in str(lab.refuses_to_open(Corruption))


def test_d07_an_absurd_length_inside_a_record_is_refused() -> None:
    entry = bytearray(put(b"key", b"v", 42))
    entry[25:29] = b"\xff\xff\xff\xf0"  # the size of the key
    lab = made_by_hand(PWAL.header + kernel.encode_many(at(42), [codec.begin(42), bytes(entry)]), ld=42)
    assert "a key of 4294967280 bytes does not fit" in str(lab.refuses_to_open(Corruption))


def test_d08_the_largest_epoch_of_all_files_is_known_also_of_those_that_do_not_count() -> None:
    lab = made_by_hand(channel_file(session(0xFF, put(b"a", b"1", 0xFF))), ld=0x100)
    lab.put_file("pwal_0007", channel_file(session(0x101, put(b"b", b"2", 0x101))))
    lab.store = lab.open()
    assert (lab.store.last_epoch, lab.store.epoch, lab.entries()) == (0x101, 0x102, {"a": "1"})


def test_d08_a_session_of_an_earlier_epoch_behind_a_later_one_is_refused() -> None:
    data = channel_file(session(42, put(b"k1", b"v1", 42)), session(42, put(b"k2", b"v2", 42)))
    later = kernel.encode_many(at(50), session(41, put(b"k3", b"v3", 41)))
    error = made_by_hand(data + later, ld=42).refuses_to_open(Corruption)
    assert "epoch 41 behind one of epoch 42" in str(error) and error.facts["offset"] == len(data)


# -- files that went bad -----------------------------------------------------------------------------------------------


def test_a_byte_that_changed_in_what_is_durable_is_refused_with_file_and_byte() -> None:
    lab = StoreLab()
    for epoch in range(2, 8):
        lab.s(0, epoch, **{f"k{epoch}": "v" * 20})
    lab.reopen()
    lab.store.close()
    (name,) = lab.rotated()
    good = bytes(lab.data(name))
    for offset in range(0, len(good), 5):
        lab.put_file(name, good)
        lab.damage(name, offset)
        error = lab.refuses_to_open(StorageError)
        assert error.facts["file"] == name and isinstance(error.facts["offset"], int)
        assert error.facts["offset"] <= offset


def test_a_durable_file_that_is_cut_short_anywhere_is_refused() -> None:
    lab = StoreLab()
    for epoch in range(2, 5):
        lab.s(0, epoch, **{f"k{epoch}": "v"})
    lab.sw()
    lab.crash()
    good = bytes(lab.data("pwal_0000"))
    for size in range(0, len(good), 3):
        lab.put_file("pwal_0000", good[:size])
        error = lab.refuses_to_open(Corruption)
        assert error.facts["file"] == "pwal_0000"
    lab.drop("pwal_0000")
    assert "the end of the file is gone, though epoch 4 is durable" in str(lab.refuses_to_open(Corruption))


def test_a_rotated_file_that_is_missing_is_noticed() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="v")
    lab.s(1, 2, l="w")
    lab.rotate()
    lab.s(0, 4, k="v2")
    lab.sw()
    lab.store.close()
    (name,) = lab.rotated("pwal_0001")
    lab.drop(name)
    error = lab.refuses_to_open(Corruption)
    assert error.facts["file"] == name


@pytest.mark.parametrize("size", [1, 7, 8, 40, 512])
def test_zeros_behind_what_is_durable_are_a_torn_tail(size: int) -> None:
    lab = StoreLab()
    lab.s(0, 2, k="v")
    lab.sw()
    lab.crash()
    lab.data("pwal_0000").extend(bytes(size))
    lab.store = lab.open()
    assert lab.entries() == {"k": "v"}
    assert len(lab.store.warnings) == 1


def test_the_version_of_the_future_is_refused() -> None:
    lab = StoreLab()
    lab.s(0, 2, k="v")
    lab.reopen()
    lab.store.close()
    (name,) = lab.rotated()
    lab.data(name)[7] = 9
    error = lab.refuses_to_open(StorageError)
    assert "version 9 of a pwal file" in str(error) and error.facts["file"] == name


# -- errors of the disk ------------------------------------------------------------------------------------------------


def outcome(lab: StoreLab, epoch: int) -> object:
    """What somebody who waits for that epoch is told."""
    found: list[object] = []
    lab.store.waiters.add(epoch, found.append)
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("taken", [0, 20, 60])
def test_a_write_that_fails_makes_its_epoch_void_and_the_store_goes_on(error: int, taken: int) -> None:
    lab = StoreLab()
    lab.s(0, 2, kept="1")
    lab.sw(3)
    lab.s(1, 3, other="1")  # of the same epoch on a channel whose disk is well: void all the same
    lab.s(0, 3, lost="1")
    told: list[object] = []
    lab.store.waiters.add(3, told.append)
    lab.files.fail("append", only="pwal_0000", error=error, taken=taken)
    lab.sw(4)
    assert isinstance(told[0], DiskFull if error == errno.ENOSPC else DiskError)
    assert isinstance(outcome(lab, 3), StorageError) and outcome(lab, 2) is None
    assert lab.entries() == {"kept": "1"}
    lab.s(0, 4, later="1")
    lab.sw(5)
    assert outcome(lab, 4) is None
    assert lab.entries() == {"kept": "1", "later": "1"}
    lab.restart()
    assert lab.entries() == {"kept": "1", "later": "1"}
    lab.compact()
    lab.reopen()
    assert lab.entries() == {"kept": "1", "later": "1"}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_crash_right_behind_an_epoch_that_failed_does_not_bring_it_back(error: int) -> None:
    lab = StoreLab()
    lab.s(0, 2, kept="1")
    lab.sw(3)
    lab.s(1, 3, other="1")
    lab.s(0, 3, lost="1")
    lab.flush()
    lab.files.fail("append", only="/epoch", error=error)
    lab.sw(4)
    assert isinstance(outcome(lab, 3), StorageError)
    lab.restart()
    assert lab.entries() == {"kept": "1"}
    assert lab.store.epoch == 4
    lab.s(0, 5, later="1")
    lab.sw()
    lab.restart()
    assert lab.entries() == {"kept": "1", "later": "1"}


def test_a_record_of_an_epoch_that_does_not_fit_is_told_and_the_next_one_says_what_is_void() -> None:
    lab = StoreLab()
    for epoch in (2, 3, 4):
        lab.s(0, epoch, **{f"lost{epoch}": "1"})
        fault = lab.files.fail("append", only="/epoch", error=errno.ENOSPC)
        lab.sw(epoch + 1)
        assert fault.struck == 1 and isinstance(outcome(lab, epoch), DiskFull)
    assert lab.ld() == 0
    lab.s(0, 5, kept="1")
    lab.sw(6)
    assert lab.ld() == 5 and lab.entries() == {"kept": "1"}
    lab.restart()
    assert lab.entries() == {"kept": "1"}


@pytest.mark.parametrize("where", ["pwal_0000", "/epoch"])
def test_after_a_sync_that_failed_the_store_refuses_writes_until_it_is_opened_again(where: str) -> None:
    """If it was the sync of the epoch file, the record may be on the disk: what was written is there or not, whole and
    for good, which only opening can tell. If it was a channel's, the epoch is void."""
    lab = StoreLab()
    lab.s(0, 2, kept="1")
    lab.sw(3)
    lab.s(0, 3, lost="1")
    lab.s(1, 3, also="1")
    told: list[object] = []
    for epoch in (3, 9):
        lab.store.waiters.add(epoch, told.append)
    lab.files.fail("sync", only=where)
    lab.sw(4)
    assert [type(error) for error in told] == [LogFailed, LogFailed]
    lab.files.heal()
    for refused in (lambda: lab.sw(5), lambda: lab.begin(0), lambda: lab.begin(1), lab.store.request_rotation):
        with pytest.raises(LogFailed):
            refused()
    assert lab.entries() == {"kept": "1"}  # reading goes on
    lab.store.close()
    lab.store = lab.open()
    found = lab.entries()
    assert found in ({"kept": "1"}, {"kept": "1", "lost": "1", "also": "1"})
    assert found == {"kept": "1"} or where == "/epoch"
    lab.s(0, 9, later="1")
    lab.sw()
    lab.restart()
    assert lab.entries() == {**found, "later": "1"}


def test_a_session_that_was_open_when_the_store_failed_is_refused() -> None:
    lab = StoreLab()
    lab.s(0, 2, lost="1")
    waiting = lab.begin(1, 2, also="1")
    lab.flush()
    lab.sw(3)
    lab.files.fail("sync", only="pwal_0000")
    second = lab.begin(2, 3, more="1")
    with pytest.raises(LogFailed):
        waiting.end()
        lab.sw(4)
        second.end()
    second.abort()


def test_requests_that_wait_in_the_queue_are_told_when_the_store_fails() -> None:
    lab = StoreLab()
    lab.s(0, 2, lost="1")
    lab.flush()
    requests = [lab.store.request_rotation() for _ in range(3)]
    lab.files.fail("sync", only="pwal_0000")
    lab.sw(3)
    for request in requests:
        assert request.is_answered
        with pytest.raises(LogFailed):
            request.result()


def test_a_new_file_that_cannot_be_made_refuses_its_epoch_only() -> None:
    for operation in ("create", "append", "sync_folder"):
        lab = StoreLab()
        lab.s(0, 2, kept="1")
        lab.sw(3)
        lab.files.fail(operation, error=errno.ENOSPC, only="pwal_0005" if operation != "sync_folder" else "")
        told: list[object] = []
        try:
            lab.s(5, 3, lost="1")
        except StorageError as error:
            told.append(error)
        lab.store.waiters.add(3, told.append)
        if lab.store.failure is None:
            lab.sw(4)
        assert isinstance(told[0], LogFailed if operation == "sync_folder" else DiskFull), operation
        lab.files.heal()
        if lab.store.failure is None:
            lab.s(5, 4, later="1")
            lab.sw(5)
            assert lab.entries() == {"kept": "1", "later": "1"}
        lab.restart()
        assert "lost" not in lab.entries() and "kept" in lab.entries()


# -- power cuts --------------------------------------------------------------------------------------------------------


def test_after_any_power_cut_exactly_the_epochs_that_were_told_are_there() -> None:
    disk = PowerLoss()
    lab = StoreLab(disk)
    lab.store.waiters.add_callback(disk.note)
    for epoch in (1, 2, 3):
        lab.s(0, epoch, **{f"a{epoch}": "1"})
        lab.s(1, epoch, **{f"b{epoch}": "1"})
        lab.sw()
    looked_at = 0
    for state in disk.states(per_point=40):
        after = StoreLab(state.files)
        found = after.entries()
        told = max((note for note in state.notes if isinstance(note, int)), default=0)
        for epoch in (1, 2, 3):
            here = {key for key in (f"a{epoch}", f"b{epoch}") if key in found}
            assert len(here) in ((2,) if epoch <= told else (0, 2)), (state.label, epoch, here)
        looked_at += 1
    assert looked_at > 100


def test_a_power_cut_behind_a_kill_finds_what_the_killed_process_had_not_synced() -> None:
    """The file was rotated when the store was opened again: its end must be as safe as its name."""
    disk = PowerLoss()
    killed = StoreLab(disk)
    killed.s(0, 42, k1="v1")
    killed.s(0, 43, k2="v2" * 500)
    killed.flush()
    disk.drop_locks()
    disk.note("killed")
    second = StoreLab(disk)
    second.s(0, 50, k3="v3")
    second.sw()
    disk.note("written")
    for state in disk.states(per_point=30):
        if state.notes:
            found = StoreLab(state.files).entries()
            assert found.pop("k3", None) == "v3" or "written" not in state.notes, state.label
            assert found == {"k1": "v1"}, state.label


def test_what_opening_made_void_stays_so_over_a_second_power_cut() -> None:
    lab = StoreLab()
    lab.s(0, 42, k1="v1")
    lab.s(0, 43, k2="v2")
    lab.flush()
    lab.crash()
    disk = PowerLoss(lab.disk.contents())
    second = StoreLab(disk)
    second.s(0, 50, k3="v3")
    second.sw()
    for state in disk.states(per_point=30):
        found = StoreLab(state.files).entries()
        assert "k2" not in found and found["k1"] == "v1", state.label
