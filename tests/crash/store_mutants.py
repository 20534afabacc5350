"""Planted mistakes of the store: small and plausible, each of which the tests must catch.

As in mutants.py, a mutant whose text is no longer there must be brought up to date: that is an error, not a pass.
"""

from __future__ import annotations

from crash.mutants import Mutant

_CUTS = "tests/crash/test_store_power_loss.py"
CUTS = (f"{_CUTS}::test_no_power_cut_at_any_operation_of", f"{_CUTS}::test_no_power_cut_breaks_a_promise")
_MODEL = "tests/property/test_store_model.py"
MODEL = (_MODEL,)


def _by_hand(words: str) -> tuple[str, ...]:
    """The test that shows it at once, and then all of them."""
    return (f"{_MODEL}::test_{words}", _MODEL)


def _in_scene(scene: str) -> tuple[str, ...]:
    """The scene that shows it, and then all of them."""
    return (f"{CUTS[0]}[{scene}-strict]", *CUTS)


FLIPS = ("tests/crash/test_store_damage.py",)
FILES = ("tests/crash/test_store_files.py",)

STORE = "engines/store"
"""Whichever file of it holds the text: code moves."""

MUTANTS = [
    # -- epochs ------------------------------------------------------------------------------------------------------
    Mutant(
        "an epoch is recorded before the channels are synced",
        STORE,
        "            attested = self._sync(pending, step.upper)\n",
        "            attested = {}\n",
        CUTS,
    ),
    Mutant(
        "an epoch is told before it is recorded",
        STORE,
        "            durable = max(step.record, recorded)\n",
        "            durable = max(step.record, recorded)\n            self.waiters.tell(step.upper)\n",
        CUTS,
    ),
    Mutant(
        "nobody waits for epoch records",
        STORE,
        "        position = self._log.append_many(records, until=Level.SYNCED)\n",
        "        position = self._log.append_many(records)\n",
        CUTS,
    ),
    Mutant(
        "the head of an epoch file is not synced",
        STORE,
        "            epoch, records = self._head()\n            self._append(epoch, records)\n",
        "            epoch, records = self._head()\n"
        "            self.reached = Reached(epoch, self._log.append_many(records))\n",
        CUTS,
    ),
    Mutant(
        "a channel repeats an epoch that is not recorded yet",
        STORE,
        "            attested = self._sync(pending, step.upper)\n",
        "            before = self.epoch_log.reached\n"
        "            self.epoch_log.reached = before._replace(epoch=step.record, time_ns=before.time_ns + 1)\n"
        "            attested = self._sync(pending, step.upper)\n",
        CUTS,
    ),
    Mutant(
        "the catalog is vouched for before it is saved",
        STORE,
        "        baseline = Baseline.open(engine.files, engine.folder, catalog, engine.baseline)\n",
        "        engine.vouch_for_catalog(catalog.generation)\n"
        "        baseline = Baseline.open(engine.files, engine.folder, catalog, engine.baseline)\n",
        _in_scene("compaction"),
    ),
    Mutant(
        "a catalog is vouched for whose name a power cut may take back",
        STORE,
        "                self._go_over(catalog, baseline, gone)\n            raise\n",
        "                self._go_over(catalog, baseline, gone)\n"
        "                engine.vouch_for_catalog(catalog.generation)\n            raise\n",
        (f"{_CUTS}::test_no_power_cut_behind_a_catalog_whose_sync_failed",),
    ),
    Mutant(
        "epochs that a crash left are not void",
        STORE,
        "            _add_range(self.voids, opened.epochs.durable + 1, opened.last_epoch)\n",
        "            pass\n",
        CUTS,
    ),
    Mutant(
        "epochs that the disk refused are not recorded as void",
        STORE,
        "                _add_range(self._owed, first, step.upper)\n",
        "",
        _by_hand("what_one_channel_wrote_of_an_epoch_that_another_could_not_write_never_comes_back"),
    ),
    Mutant(
        "the last epoch is not kept at the end",
        STORE,
        "        self.settle()\n        self._keep_last_epoch()\n",
        "        self.settle()\n",
        _in_scene("closing"),
    ),
    Mutant(
        "sessions that are not durable count",
        STORE,
        "self.after < epoch <= self.until and",
        "self.after < epoch and",
        CUTS,
    ),
    Mutant(
        "void sessions count",
        STORE,
        " and not any(first <= epoch <= last for first, last in self.voids)\n",
        "\n",
        CUTS,
    ),
    # -- rotation ----------------------------------------------------------------------------------------------------
    Mutant(
        "a channel is renamed without a sync of the folder",
        STORE,
        "                self._store.files.sync_folder(self._store.folder)\n",
        "                pass\n",
        CUTS,
    ),
    Mutant(
        "a channel goes on writing to the file that was renamed",
        STORE,
        "        if log is not None:\n            if log.rotate()",
        "        if False:\n            if log.rotate()",
        (*_by_hand("a_session_behind_the_boundary_is_in_the_next_file_also_if_nobody_has_renamed_the_old_one"), *CUTS),
    ),
    Mutant(
        "the epoch file is renamed without a sync of the folder",
        STORE,
        "            self._files.sync_folder(self._folder)\n",
        "            pass\n",
        CUTS,
    ),
    Mutant(
        "a file is rotated under a session of the old epoch",
        STORE,
        "                if session is not None and session.epoch <= request.boundary:\n                    continue\n",
        "",
        _by_hand("a_session_of_the_old_epoch_is_in_the_file_that_is_rotated"),
    ),
    Mutant(
        "sessions behind the boundary go to the file that is to be rotated",
        STORE,
        "        if self._marks and batch.epoch > self._marks[0]:\n            self._turn(batch.epoch - 1)\n",
        "",
        _by_hand("a_session_behind_the_boundary_is_in_the_next_file_also_if_nobody_has_renamed_the_old_one"),
    ),
    # -- compaction --------------------------------------------------------------------------------------------------
    Mutant(
        "parts are not synced before the catalog names them",
        STORE,
        "        if sync:\n            self._sync()\n",
        "",
        _in_scene("compaction"),
    ),
    Mutant(
        "inputs go before the catalog is committed",
        STORE,
        "            catalogs.save(engine.files, engine.folder, catalog)\n",
        "            for name in task.inputs:\n                engine.files.remove(f'{engine.folder}/{name}')\n"
        "            catalogs.save(engine.files, engine.folder, catalog)\n",
        _in_scene("compaction"),
    ),
    Mutant(
        "the catalog is written in its place",
        STORE,
        "    rewrite.replace(files, folder, NAME, [encode(catalog)], PWAL)\n",
        "    if NAME in files.list(folder):\n        files.remove(join(folder, NAME))\n"
        "    file = files.create(join(folder, NAME))\n    file.append([encode(catalog)])\n    file.sync()\n"
        "    file.close()\n    files.sync_folder(folder)\n",
        _in_scene("compaction"),
    ),
    Mutant(
        "a compaction does not know which epochs are void",
        STORE,
        "            voids=tuple(engine.voids),\n",
        "            voids=(),\n",
        CUTS,
    ),
    Mutant(
        "a compaction says that it has more than it has",
        STORE,
        "            epoch=task.until,\n            parts=",
        "            epoch=engine.last_epoch,\n            parts=",
        MODEL + CUTS,
    ),
    Mutant(
        "removes are dropped that hide what is still to come",
        STORE,
        "            self._write(culled(merged(runs), storages, self._task.until))\n",
        "            self._write(culled(merged(runs), storages, codec.MOST))\n",
        _by_hand("a_remove_that_hides_what_is_still_to_come_is_kept"),
    ),
    Mutant(
        "versions are taken that are older than what was forgotten",
        STORE,
        "        if self.floor and major <= self.floor < epoch:\n",
        "        if False:\n",
        _by_hand("a_version_that_is_older_than_what_was_forgotten_is_refused"),
    ),
    Mutant(
        "what was spilled during a compaction stays beside its parts",
        STORE,
        "                self._moved.append((table, there))\n",
        "                pass\n",
        _by_hand("entries_that_were_spilled_while_a_compaction_went_on_go_with_it"),
    ),
    # -- clean-up ----------------------------------------------------------------------------------------------------
    Mutant(
        "clean-up removes files before the catalogs that need them",
        STORE,
        "    for names in (plan.formers, plan.others):\n",
        "    for names in (plan.others, plan.formers):\n",
        _in_scene("cleaning"),
    ),
    Mutant(
        "clean-up removes what reads as of an earlier epoch need",
        STORE,
        "    reaching = [catalog for catalog in known if catalog.epoch <= epoch]\n",
        "    reaching = known\n",
        CUTS + MODEL,
    ),
    # -- opening -----------------------------------------------------------------------------------------------------
    Mutant(
        "a torn tail is not cut",
        STORE,
        "                file.truncate(keep)\n                file.sync()\n",
        "                pass\n",
        CUTS,
    ),
    Mutant(
        "a file is put aside without a sync",
        STORE,
        "                self._sync(name)\n",
        "",
        _in_scene("opening"),
    ),
    Mutant(
        "opening removes parts that the catalog names",
        STORE,
        "    known = {part.name for part in catalog.parts} | ",
        "    known = ",
        _in_scene("opening"),
    ),
    Mutant(
        "opening goes on before its renames are synced",
        STORE,
        "                rewrite.remove(files, folder, [epoch_file.NAME])\n        files.sync_folder(folder)\n",
        "                rewrite.remove(files, folder, [epoch_file.NAME])\n",
        CUTS,
    ),
    # -- reading -----------------------------------------------------------------------------------------------------
    Mutant(
        "a read as of an epoch begins too late",
        STORE,
        "if catalog.epoch <= epoch), None)",
        "if True), None)",
        CUTS + MODEL,
    ),
    Mutant(
        "an entry is looked for in the newest layer only",
        STORE,
        "        if best is not None and codec.version_of(best) >= layer.highest:\n",
        "        if best is not None:\n",
        MODEL,
    ),
    Mutant(
        "a clear hides what is as new as it",
        STORE,
        "        and item[VERSION_AT:VERSION_END] >= cleared",
        "        and item[VERSION_AT:VERSION_END] > cleared",
        ("tests/property/test_store_twins.py::test_cull", "tests/unit/test_store_compacting.py"),
    ),
    # -- backup ------------------------------------------------------------------------------------------------------
    Mutant(
        "a backup is promised before it is synced",
        STORE,
        "            write_all(file, [chunk])\n        file.sync()\n",
        "            write_all(file, [chunk])\n",
        _in_scene("backing_up"),
    ),
    # -- damage ------------------------------------------------------------------------------------------------------
    Mutant(
        "a channel that lost its end is taken as it is",
        STORE,
        "        check_attested(found, gathering.result, epochs, catalog)\n",
        "",
        FLIPS,
    ),
    Mutant(
        "an epoch file that lost its end is taken as it is",
        STORE,
        "        check_reached(gathering.result.reached, epochs)\n",
        "",
        FILES,
    ),
    Mutant(
        "what the epoch file says at the end is not repeated",
        STORE,
        "                    teardown.step(partial(self._repeat_epochs, log))\n",
        "                    pass\n",
        FILES,
    ),
    Mutant(
        "void epochs are not repeated",
        STORE,
        "[each for each in voids if each[1] > compacted]",
        "[]",
        FILES,
    ),
    Mutant(
        "an older copy of the epoch file is taken for the one that it was",
        STORE,
        "                    check_follows(files, folder, name.name, found, known[-1].name)\n",
        "                    pass\n",
        FILES,
    ),
    Mutant(
        "an older copy of the catalog is taken for the one that it was",
        STORE,
        "        if catalog.generation < at_least:\n",
        "        if False:\n",
        FILES,
    ),
    Mutant(
        "an older copy of the catalog is put back though files are gone that it needs",
        STORE,
        "        if begun_at < 0:\n",
        "        if False:\n",
        FILES,
    ),
    Mutant(
        "a rotated file that is gone is not missed",
        STORE,
        "    check_there(epochs, catalog, set(names))\n",
        "",
        FLIPS,
    ),
    Mutant(
        "damage in a part is not looked at",
        STORE,
        "        if found.stop != end - start:\n            self._bad(start + found.stop,",
        "        if False:\n            self._bad(start + found.stop,",
        FLIPS,
    ),
]
