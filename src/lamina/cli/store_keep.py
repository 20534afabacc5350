"""``lamina store verify | repair | compact | gc | backup | check | restore``: looking after a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lamina.cli.asking import confirm, dry_run, yes
from lamina.cli.main import EXIT_DAMAGE, EXIT_ERROR, EXIT_REPAIRED
from lamina.cli.render import as_json, counted, err, out, print_json, progress_bar
from lamina.cli.store_place import folder_of, for_itself, is_there, moment, new_folder_of, of_store, opened
from lamina.cli.store_show import (
    print_backup,
    print_clean_up,
    print_compaction,
    print_damage,
    print_facts,
    print_obsolete,
    print_repair,
)
from lamina.errors import BadEntry, TooOld
from lamina.units import show_bytes

if TYPE_CHECKING:
    from lamina.engines.store.backup import Manifest

_BACK_UP: Final = "a server or program has it open: stop it first, or call store.back_up in the program that has it"


@click.command(short_help="Check every byte. Exit 6: there is damage.")
@of_store
@as_json
def verify(data: str, as_json: bool) -> int:
    """Check every byte: sessions, epochs, sorted files, the catalog, and that nothing is missing.

    A torn tail is what a crash leaves and is cut at the next open: exit 0. Damage that a start does without: exit 5.
    Damage: exit 6.
    """
    return verify_folder(folder_of(data), as_json)


def verify_folder(folder: str, as_json: bool) -> int:
    """Of the folder of a store."""
    from lamina.engines.store.verifying import as_dict, verify
    from lamina.log.files.real import RealFiles

    with progress_bar("checking") as progress:
        report = verify(RealFiles(), folder, progress)
    if as_json:
        print_json(as_dict(report))
    else:
        print_facts(report)
        print_damage(report)
    if not report.is_sound:
        return EXIT_DAMAGE
    return EXIT_REPAIRED if report.damage else 0


@click.command()
@of_store
@click.option("--accept-loss", is_flag=True, help="Also repair what loses sessions; damaged bytes are kept aside.")
@dry_run
@yes
@as_json
def repair(data: str, accept_loss: bool, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Make a damaged store one that opens again. Without --accept-loss only what loses nothing.

    It asks before it loses something. --dry-run shows what is damaged, as verify does.

    Exit 0: nothing to repair. 5: repaired. 6: damage is left.
    """
    from dataclasses import asdict

    from lamina.clock import SystemClock
    from lamina.engines.store.repairing import repair
    from lamina.log.files.real import RealFiles

    folder = folder_of(data, to_change=True)
    if dry_run:
        return verify_folder(folder, as_json)
    if accept_loss:
        confirm(f"Repair {data}, and lose the sessions whose bytes are damaged?", yes=yes)
    with for_itself():
        report = repair(RealFiles(), folder, SystemClock(), accept_loss=accept_loss)
    if as_json:
        print_json({"done": report.done, "lost": [asdict(lost) for lost in report.lost], "left": report.left})
    else:
        print_repair(report)
    if report.left:
        return EXIT_DAMAGE
    return EXIT_REPAIRED if report.done else 0


@click.command(short_help="Merge rotated files into sorted ones.")
@of_store
@dry_run
@as_json
def compact(data: str, dry_run: bool, as_json: bool) -> int:
    """Merge rotated files into sorted ones, without what newer entries have replaced, and wait for it.

    A running server is asked to do it, and goes on meanwhile. What the new files replace stays until gc.
    """
    from lamina.cli.store_asking import ask, holder_of
    from lamina.engines.store.trigger import report_of
    from lamina.log.files.real import RealFiles

    files = RealFiles()
    folder = folder_of(data, to_change=True)
    if dry_run:
        would_compact(folder, as_json)
        return 0
    if holder_of(files, folder) is not None:
        with progress_bar("compacting") as progress:
            answer = ask(files, folder, progress)
    else:
        with opened(data) as store, progress_bar("compacting") as progress:
            report = store.compact(progress)
        answer = {"outcome": "done" if report.inputs else "nothing to do", **report.as_dict()}
    if as_json:
        print_json({name: value for name, value in answer.items() if name != "asked"})
    done = report_of(answer)
    if done is None:
        return _compaction_failed(answer)
    if not as_json:
        print_compaction(done)
    return 0


def would_compact(folder: str, as_json: bool) -> None:
    """Say which files of a store a compaction would read."""
    from lamina.engines.store import catalog as catalogs
    from lamina.engines.store.inputs import channel_files
    from lamina.log.files.real import RealFiles

    files = RealFiles()
    catalog = catalogs.load(files, folder)
    names = [each.name for each in channel_files(files.list(folder), catalog.merged)]
    size = sum((Path(folder) / name).stat().st_size for name in names)
    if as_json:
        print_json({"inputs": names, "bytes": size, "parts": len(catalog.parts), "is_done": False})
        return
    into = f", and {counted(len(catalog.parts), 'sorted one')}," if catalog.parts else ""
    out.print(f"{counted(len(names), 'file')}, {show_bytes(size)}{into} would be merged", markup=False)
    out.print("nothing was changed: leave out --dry-run to do it")


def _compaction_failed(answer: dict[str, Any]) -> int:
    """The server said why."""
    error = answer.get("error")
    facts: dict[str, Any] = error if isinstance(error, dict) else {}
    err.print(f"[bold red]error[/] {answer.get('outcome', 'failed')}: ", end="")
    err.print(str(facts.get("message", "the compaction was not done")), markup=False)
    if facts.get("hint"):
        err.print(f"  {facts['hint']}", markup=False)
    return EXIT_DAMAGE if facts.get("code") == "corruption" else EXIT_ERROR


@click.command()
@of_store
@click.option("--keep", metavar="EPOCH|TIME", help="Reads as of this epoch or time and later ones stay possible.")
@dry_run
@yes
@as_json
def gc(data: str, keep: str | None, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove the files that compactions have replaced. Reads as of before the last compaction end with it."""
    from lamina.cli.store_asking import holder_of
    from lamina.engines.store import catalog as catalogs
    from lamina.engines.store import cleaning, inputs, looking
    from lamina.log import lock
    from lamina.log.files.real import RealFiles
    from lamina.log.naming import PWAL

    files = RealFiles()
    folder = folder_of(data, to_change=True)
    epoch, time_ns = moment(keep)
    if time_ns is not None:
        try:
            epoch = looking.epoch_at(files, folder, time_ns)
        except TooOld:
            epoch = 0  # all that there is stays
    elif epoch is not None and epoch > (last := looking.last_epoch(files, folder)):
        raise BadEntry(f"epoch {epoch} is not durable yet", hint=f"the last one is {last}")
    if dry_run:
        is_held = holder_of(files, folder) is not None
        working = [name for name in files.list(folder) if is_held and name.startswith(inputs.RUN)]
        names = cleaning.obsolete(files, folder, catalogs.load(files, folder), keep=working, keep_after_epoch=epoch)
        if as_json:
            gone = {"removed": [name for name, _ in names], "bytes": sum(size for _, size in names), "kept": []}
            print_json({**gone, "is_done": False})
        else:
            print_obsolete(names)
        return
    hint = "a server has it open: send it S.COMPACT CLEAN (docs/reference/resp.md), which it also does by itself"
    with for_itself(f"{hint} with compact_every_s; or stop it first, or look with --dry-run"):
        held = lock.take(files, folder, PWAL.lock_name)
    try:
        names = cleaning.obsolete(files, folder, catalogs.load(files, folder), keep_after_epoch=epoch)
        if names:
            size = show_bytes(sum(size for _, size in names))
            confirm(f"Remove {counted(len(names), 'file')}, {size}, and the past that only they have?", yes=yes)
        done = cleaning.clean_up(files, folder, catalogs.load(files, folder), keep_after_epoch=epoch)
    finally:
        held.release()
    if as_json:
        print_json({"removed": done.removed, "bytes": done.bytes, "kept": done.kept, "is_done": True})
    else:
        print_clean_up(done)


# -- backups ---------------------------------------------------------------------------------------------------------


@click.command()
@of_store
@click.option("--to", metavar="BACKUP", required=True, type=click.Path(), help="A folder that is empty or not there.")
@click.option("--copy", is_flag=True, help="Copy all files, also where a second name for them would do.")
@as_json
def backup(data: str, to: str, copy: bool, as_json: bool) -> None:
    """Make a backup of everything that is durable now. On the same disk it takes no room: files get a second name.

    Nobody may have the store open; a program that has it calls store.back_up.
    """
    from lamina.engines.store.backup import check_is_outside

    check_is_outside(str(Path(folder_of(data, to_change=True)).resolve()), str(Path(to).resolve()))
    with opened(data, hint=_BACK_UP) as store:
        manifest = store.back_up(to, link=not copy)
    _print_manifest(manifest, "backed up", as_json)


@click.command()
@click.argument("folder", metavar="BACKUP", type=click.Path())
@as_json
def check(folder: str, as_json: bool) -> int:
    """Check every byte of a backup. Exit 6: it is not whole."""
    is_there(folder)
    return _check(folder, "whole", as_json)


def _check(folder: str, words: str, as_json: bool) -> int:
    from lamina.engines.store.backup import check_backup, read_manifest
    from lamina.log.files.real import RealFiles

    files = RealFiles()
    with progress_bar("checking") as progress:
        problems = check_backup(files, folder, progress)
    if problems:
        if as_json:
            print_json({"is_whole": False, "problems": problems})
        for problem in () if as_json else problems:
            out.print(problem, style="bold red", markup=False)
        return EXIT_DAMAGE
    manifest = read_manifest(files, folder)
    if as_json:
        print_json({"is_whole": True, "problems": [], **_facts(manifest)})
    else:
        print_backup(_facts(manifest), words)
    return 0


@click.command(short_help="Make a store of a backup.")
@click.argument("folder", metavar="BACKUP", type=click.Path())
@click.option("--to", "data", metavar="DST", required=True, type=click.Path(), help="A data folder without a store.")
@dry_run
@as_json
def restore(folder: str, data: str, dry_run: bool, as_json: bool) -> int:
    """Make a store of a backup, which is checked first and stays as it is. Nothing that is there is written over."""
    from lamina.engines.store.backup import restore
    from lamina.log.files.real import RealFiles

    is_there(folder)
    target = new_folder_of(data)
    if dry_run:
        return _check(folder, "whole, and would be restored", as_json)
    with progress_bar("restoring") as progress:
        manifest = restore(RealFiles(), folder, target, progress)
    _print_manifest(manifest, "restored", as_json)
    return 0


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        "epoch": manifest.epoch,
        "time_ns": manifest.time_ns,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
    }


def _print_manifest(manifest: Manifest, what: str, as_json: bool) -> None:
    if as_json:
        print_json(_facts(manifest))
    else:
        print_backup(_facts(manifest), what)
