"""A dump gives the same queues as all it was folded from, whatever the records were."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.engines.queues.folding import fold
from lamina.engines.queues.restoring import restore
from lamina.testing import MemoryFiles
from queues_store_lab import FOLDER, NOW, START_NS, TTL, Seen, file_of, random_records, seen


def found(files: MemoryFiles, *, keeps_messages: bool) -> Seen:
    return seen(restore(files, FOLDER, now=NOW, ttl=TTL, keeps_messages=keeps_messages).state)


@settings(max_examples=150)
@given(
    seed=st.integers(0, 1 << 30),
    cuts=st.lists(st.integers(0, 120), min_size=1, max_size=5),
    keeps_messages=st.booleans(),
)
def test_folding_changes_nothing_that_can_be_seen(seed: int, cuts: list[int], keeps_messages: bool) -> None:
    """Logs are folded one after the other, each time with the dump that the last folding made."""
    records = random_records(random.Random(seed), 120)
    whole = MemoryFiles()
    whole.make_folder(FOLDER)
    steps = MemoryFiles()
    steps.make_folder(FOLDER)
    edges = [0, *sorted(cuts), len(records)]
    for number, (start, end) in enumerate(pairwise(edges)):
        name = f"{FOLDER}/smp-server-store-{number}.log"
        data = file_of(*records[start:end], first_ns=START_NS + start)
        whole.write(name, data)
        steps.write(name, data)
        if number % 2:  # some dumps have one log to fold, some more
            continue
        report = fold(steps, FOLDER, number, now=0, ttl=0, keeps_messages=keeps_messages)
        for old in [path for path in steps.contents() if not path.endswith(f"-{number}.dump")]:
            steps.remove(old)
        assert found(steps, keeps_messages=keeps_messages) == found(whole, keeps_messages=keeps_messages)
        assert report.bytes == len(steps.contents()[f"{FOLDER}/smp-server-store-{number}.dump"])


@settings(max_examples=150)
@given(seed=st.integers(0, 1 << 30), cut=st.integers(0, 100))
def test_a_dump_leaves_out_just_what_has_expired(seed: int, cut: int) -> None:
    records = random_records(random.Random(seed), 100)
    files = MemoryFiles({f"{FOLDER}/smp-server-store-0.log": file_of(*records[:cut])})
    fold(files, FOLDER, 0, now=0, ttl=0)
    files.write(f"{FOLDER}/smp-server-store-1.log", file_of(*records[cut:], first_ns=START_NS + cut))
    all_of_it = restore(files, FOLDER, now=NOW, ttl=TTL)
    report = fold(files, FOLDER, 1, now=NOW, ttl=TTL)
    dump = f"{FOLDER}/smp-server-store-1.dump"
    alone = restore(MemoryFiles({dump: files.contents()[dump]}), FOLDER, now=NOW, ttl=TTL)
    assert seen(alone.state) == seen(all_of_it.state)
    assert report.expired == all_of_it.expired
    assert alone.expired == 0
    assert alone.last_time == all_of_it.last_time
