"""Planted mistakes: small, plausible bugs of the kernel, each of which the tests must catch.

A mutant is one edit of one source file. If the text it edits is no longer there, the mutant must be brought up to
date: that is an error, not a pass.
"""

from __future__ import annotations

from dataclasses import dataclass

UNIT = ("tests/unit/test_writer.py", "tests/unit/test_disk_errors.py", "tests/unit/test_recovery.py")
READ = ("tests/unit/test_reader.py", "tests/unit/test_recovery.py")
CUTS = ("tests/crash/test_power_loss.py",)
CUTS_OF = {
    policy: (f"tests/crash/test_power_loss.py::test_no_power_cut_breaks_a_promise[{policy}-0]",)
    for policy in ("interval", "os")
}
"""Where a policy shows nothing of a mistake, there is no need to wait for it."""
BYTES = ("tests/crash/test_every_byte.py",)
COMPACTION = ("tests/unit/test_topics_compaction.py", "tests/property/test_topic_compaction.py")
COMPACTION_CUTS = ("tests/crash/test_compaction_power_loss.py",)


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Which tests must catch it."""


MUTANTS = [
    Mutant(
        "acknowledge before sync",
        "tail.py",
        "                segment.sync()\n                if self._is_nameless",
        "                if self._is_nameless",
        CUTS,
    ),
    Mutant(
        "no folder sync when a file appears",
        "tail.py",
        "            self._files.sync_folder(self._folder)",
        "            pass",
        CUTS,
    ),
    Mutant(
        "old segment not synced at rotation",
        "tail.py",
        "hole.\n            self.sync()",
        "hole.\n            self.synced = self.written",
        CUTS,
    ),
    Mutant(
        "rename without sync",
        "rewrite.py",
        "            file.sync()\n        finally:\n",
        "        finally:\n",
        CUTS,
    ),
    Mutant(
        "delete before rename",
        "rewrite.py",
        "        files.rename(temporary, path)\n",
        "        _remove_if_there(files, path)\n        files.sync_folder(folder)\n"
        "        files.rename(temporary, path)\n",
        CUTS,
    ),
    Mutant(
        "no folder sync after rename, before obsolete files go",
        "rewrite.py",
        "        files.rename(temporary, path)\n        files.sync_folder(folder)\n",
        "        files.rename(temporary, path)\n",
        ("tests/unit/test_rewrite.py",),
    ),
    Mutant(
        "new file written in place of the old one",
        "rewrite.py",
        "    temporary = path + family.temporary_suffix\n",
        "    temporary = path\n",
        CUTS,
    ),
    Mutant("tail not cut", "recovery.py", "            file.truncate(keep)\n", "", CUTS),
    Mutant(
        "torn bytes thrown away",
        "recovery.py",
        "        is_worth_keeping = size > max(keep, HEADER_SIZE)",
        "        is_worth_keeping = False",
        UNIT,
    ),
    Mutant(
        "served before synced",
        "recovery.py",
        "        _sync_what_is_kept(files, folder, segments, set(names), is_safe=is_safe)\n",
        "",
        CUTS_OF["interval"],
    ),
    Mutant(
        "stop silently at a bad record",
        "cursor.py",
        "        if scan.why is not Stop.END or scan.stop < segment.end:\n            self._check_stop(segment, scan)",
        "        self._at = segment.file.size()",
        READ,
    ),
    Mutant(
        "checksum not looked at", "frame.py", "    if crc32c(data[at:body_end]) != ", "    if False and 0 != ", BYTES
    ),
    Mutant(
        "short write ignored",
        "segment.py",
        "                if taken == left:\n",
        "                if taken > 0:\n",
        UNIT,
    ),
    Mutant(
        "failed write not cut back",
        "segment.py",
        "            self.file.truncate(size)\n        except OSError:",
        "            pass\n        except OSError:",
        UNIT,
    ),
    Mutant(
        "failed cut-back ignored",
        "tail.py",
        "        if not segment.cut_back(segment.size + end):",
        "        if segment.cut_back(segment.size + end) and False:",
        UNIT,
    ),
    Mutant(
        "sync error swallowed",
        "tail.py",
        '                raise self._failed("sync the file", error) from error\n            self.stats.syncs',
        "                pass\n            self.stats.syncs",
        UNIT,
    ),
    Mutant(
        "writes go on after a failed sync",
        "writer.py",
        "            self._failure = error\n",
        "            pass\n",
        UNIT,
    ),
    Mutant(
        "refused calls forgotten",
        "writer.py",
        "            self._refused.add(first, last, error, self._written)\n",
        "",
        UNIT,
    ),
    Mutant(
        "level overstated",
        "writer.py",
        "        if position <= (self._synced if level is Level.SYNCED else self._written):",
        "        if position <= self._written:",
        UNIT,
    ),
    Mutant(
        "positions follow the clock back",
        "writer.py",
        "        first = first or max(self._clock.now_ns(), self._last_stamp + 2)",
        "        first = first or self._clock.now_ns()",
        UNIT,
    ),
    Mutant(
        "unsynced records shown under always",
        "tail.py",
        "        return segment.name, segment.synced_bytes if self._shows_synced_only else segment.size",
        "        return segment.name, segment.size",
        READ,
    ),
    Mutant(
        "no watermarks",
        "tail.py",
        "        if not self.synced or (self.synced == self._attested and not segment.is_empty):",
        "        if True:",
        BYTES,
    ),
    Mutant(
        "damage taken for a torn tail",
        "attest.py",
        "        if attested is not None and last_good_ns < attested <= head.time_ns:\n            return True",
        "        if attested is not None and last_good_ns < attested <= head.time_ns:\n            return False",
        BYTES,
    ),
    Mutant(
        "leftovers of a crash stay",
        "rewrite.py",
        "    if names:\n        remove(files, folder, names)",
        "    return",
        UNIT,
    ),
    Mutant(
        "a dropped last record leaves no trace",
        "rewrite.py",
        "        decisions[newest] = _STANDS_IN",
        "        pass",
        CUTS_OF["os"],
    ),
    Mutant(
        "next file opened before the rest of this one is read",
        "cursor.py",
        "        if self._at < size:",
        "        if False:",
        READ,
    ),
    Mutant(
        "a lost end of a file goes unnoticed",
        "reader.py",
        "        if attested is not None and follows(name, following.name):",
        "        if False:",
        BYTES,
    ),
    Mutant(
        "a gap is hidden",
        "cursor.py",
        "        if attested is not None and is_reading and attested > position:",
        "        if False:",
        READ,
    ),
    Mutant(
        "a stale index is believed",
        "index.py",
        "    return index if (index.bytes == size or ends_early) and has_points_in(index, file) else None",
        "    return index",
        ("tests/unit/test_index.py", *CUTS),
    ),
    Mutant(
        "the index of a growing file kept before its sync",
        "tail.py",
        "        if segment is not None and (segment.synced_bytes < segment.size or segment.was_cut):\n",
        "        if segment is not None and (segment.synced_bytes < segment.size or segment.was_cut):\n"
        "            self._keep_index(segment)\n",
        CUTS,
    ),
    Mutant(
        "an interrupted write is forgotten",
        "writer.py",
        "        except BaseException as error:\n            # Interrupted",
        "        except ZeroDivisionError as error:\n            # Interrupted",
        UNIT,
    ),
    Mutant(
        "a reader goes on at a byte that is no longer its place",
        "cursor.py",
        "        return isinstance(head, frame.Head) and (head.time_ns, head.end) == (time_ns, self._at)",
        "        return True",
        READ,
    ),
    Mutant(
        "a file is shown while it is being made",
        "reader.py",
        "        return [name for name in names if newest is not None and name <= newest[0]]",
        "        return names",
        READ,
    ),
    Mutant(
        "salvage looks inside a damaged payload",
        "attest.py",
        "        if at == self._end and path and (reaches or may_step):",
        "        if len(path) > 1:",
        READ,
    ),
    Mutant(
        "closing hides what was refused",
        "writer.py",
        "            teardown.add(refusal.with_traceback(None))",
        "            pass",
        UNIT,
    ),
    Mutant(
        "a deletion goes while an older file of the topic has the entry",
        "../engines/topics/compaction.py",
        "                        if waste.trimmed_to < id <= waste.floor:",
        "                        if False:",
        COMPACTION,
    ),
    Mutant(
        "a file does not say that it stands in for others",
        "../engines/topics/compaction.py",
        "        reach = max([run.facts.reach_ns, *(waste.facts.reach_ns for waste in run.empty)])",
        "        reach = run.facts.reach_ns",
        COMPACTION,
    ),
    Mutant(
        "records are taken out before what stands in for them is synced",
        "../engines/topics/compaction.py",
        "        topic.sync(position)\n        with suppress(DiskFull):  # a start without it takes longer\n"
        "            topic.checkpoint()\n",
        "",
        COMPACTION_CUTS,
    ),
    Mutant(
        "what a former checkpoint counted is believed of a topic that was written anew",
        "../engines/topics/checkpoint.py",
        "    if not position or is_compacted or",
        "    if not position or",
        COMPACTION,
    ),
    Mutant(
        "what is dead but pending is forgotten",
        "../engines/topics/compaction.py",
        "                and all(next(each.keys(EntryId(after + 1)), LAST) > last for each in pending)\n",
        "",
        COMPACTION,
    ),
    Mutant("two writers at once", "lock.py", "    if isinstance(lock, str):", "    if False:", UNIT),
]
