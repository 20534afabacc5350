"""``lamina store``: look at a store, read and write it, take one over from limestone."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lamina.cli import store_keep
from lamina.cli.asking import dry_run
from lamina.cli.main import EXIT_DAMAGE, EXIT_NOTHING, EXIT_REPAIRED, show_error
from lamina.cli.render import as_json, counted, out, print_json, print_table, progress_bar
from lamina.cli.store_place import (
    as_of_option,
    folder_of,
    in_hex,
    looked_at,
    new_folder_of,
    of_storage,
    of_store,
    opened,
    to_bytes,
)
from lamina.cli.store_show import export_lines, facts_of, print_damage, print_facts, print_files, shown, warn
from lamina.errors import BadEntry, Corruption, WrongFormat
from lamina.units import show_bytes

if TYPE_CHECKING:
    from lamina.engines.store.importing import Imported
    from lamina.engines.store.limestone import LimestoneFolder

_WRITE: Final = "a server has it open: send it S.WRITE (docs/reference/resp.md), or stop it first"


@click.group()
def store() -> None:
    """Look at a store, read and write it, and look after it.

    DIR is a data folder, or the folder of a store itself. export, get, scan, inspect, verify and gc --dry-run read the
    files without a lock, also beside a running server, and change nothing; compact asks a running server. What else
    changes the store needs the folder for itself.
    """


# -- reading ---------------------------------------------------------------------------------------------------------


@store.command()
@of_store
@of_storage
@click.argument("key")
@as_of_option
@in_hex
@click.option("--raw", is_flag=True, help="Write the bytes of the value, and nothing else.")
@as_json
def get(data: str, storage: int, key: str, as_of: str | None, in_hex: bool, raw: bool, as_json: bool) -> int:
    """Show the value of a key. Exit 3: it has none."""
    wanted = to_bytes(key, in_hex=in_hex)
    with looked_at(data, as_of) as looked:
        found = looked.snapshot.entry(storage, wanted)
    if as_json:
        print_json({"epoch": looked.epoch, "entry": None if found is None else facts_of(found)})
    elif found is not None and raw:
        sys.stdout.buffer.write(found.value)
        sys.stdout.buffer.flush()
    elif found is not None:
        click.echo(shown(found.value, in_hex=in_hex))
    elif not raw:
        out.print(f"no such key, up to epoch {looked.epoch}", markup=False)
    return 0 if found is not None else EXIT_NOTHING


@store.command()
@of_store
@of_storage
@click.option("--from", "start", metavar="KEY", default="", help="Begin with this key.")
@click.option("--to", "end", metavar="KEY", help="End before this key.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="At most N entries.")
@as_of_option
@in_hex
@as_json
def scan(
    data: str,
    storage: int,
    start: str,
    end: str | None,
    limit: int | None,
    as_of: str | None,
    in_hex: bool,
    as_json: bool,
) -> None:
    """Show the entries of a storage in order of their keys. With --json one object a line."""
    first = to_bytes(start, in_hex=in_hex)
    last = None if end is None else to_bytes(end, in_hex=in_hex)
    with looked_at(data, as_of) as looked:
        for found in islice(looked.snapshot.scan(storage, first, last), limit):
            if as_json:
                print_json(facts_of(found))
            else:
                click.echo(f"{shown(found.key, in_hex=in_hex)}\t{shown(found.value, in_hex=in_hex)}")


@store.command(short_help="Print all live entries as JSON lines.")
@of_store
@click.option("--jsonl", "--json", "jsonl", is_flag=True, help="One object a line, which is the only form there is.")
@as_of_option
def export(data: str, jsonl: bool, as_of: str | None) -> None:
    """Print all live entries, by storage and key: {"storage": n, "key": hex, "value": hex}, one a line."""
    with looked_at(data, as_of) as looked:
        export_lines(looked.snapshot.scan())


@store.command(short_help="Show files, epochs, and entries by storage.")
@of_store
@as_json
def inspect(data: str, as_json: bool) -> int:
    """Show the files of a store, its epochs, and how many entries each storage has. Exit 6: it is damaged."""
    from lamina.engines.store.verifying import as_dict, verify
    from lamina.log.files.real import RealFiles

    with progress_bar("reading the store") as progress:
        report = verify(RealFiles(), folder_of(data), progress)
    counts: dict[int, int] = {}
    if report.is_sound:
        with looked_at(data) as looked:
            for found in looked.snapshot.scan():
                counts[found.storage] = counts.get(found.storage, 0) + 1
            for storage, (_, is_there) in looked.snapshot.storages.there.items():
                if is_there:
                    counts.setdefault(storage, 0)
    newest = max((file.last_epoch for file in report.files), default=0)
    if as_json:
        storages = [{"storage": storage, "entries": count} for storage, count in sorted(counts.items())]
        entries = sum(counts.values()) if report.is_sound else None
        facts = {"max_epoch": max(newest, report.durable), "entries": entries, "storages": storages}
        print_json({**as_dict(report), **facts})
    else:
        print_files(report)
        print_facts(report)
        if counts:
            print_table(["storage", "live entries "], [[str(each), count] for each, count in sorted(counts.items())])
        print_damage(report)
    return 0 if report.is_sound else EXIT_DAMAGE


# -- writing ---------------------------------------------------------------------------------------------------------


@store.command()
@of_store
@of_storage
@click.argument("key")
@click.argument("value")
@in_hex
@as_json
def put(data: str, storage: int, key: str, value: str, in_hex: bool, as_json: bool) -> None:
    """Write an entry; it is durable when this ends. A VALUE of - is read from standard input, its last newline too."""
    wanted = to_bytes(key, in_hex=in_hex)
    content = sys.stdin.buffer.read() if value == "-" else to_bytes(value, in_hex=in_hex)
    with opened(data, makes=True, hint=_WRITE) as store:
        epoch = store.put(storage, wanted, content)
    _wrote(epoch, as_json)


@store.command(short_help="Take a key away.")
@of_store
@of_storage
@click.argument("key")
@in_hex
@dry_run
@as_json
def remove(data: str, storage: int, key: str, in_hex: bool, dry_run: bool, as_json: bool) -> None:
    """Take a key away, whether or not it is there; durable when this ends.

    Reads as of before still have it, until the store is compacted and cleaned up.
    """
    wanted = to_bytes(key, in_hex=in_hex)
    if dry_run:
        with looked_at(data) as looked:
            found = looked.snapshot.entry(storage, wanted)
        if as_json:
            print_json({"epoch": None, "is_there": found is not None, "is_done": False})
        else:
            there = "it is not there" if found is None else f"it has {show_bytes(len(found.value))}"
            out.print(f"{there}; nothing was changed: leave out --dry-run to remove it", markup=False)
        return
    with opened(data, hint=_WRITE) as store:
        epoch = store.remove(storage, wanted)
    _wrote(epoch, as_json)


def _wrote(epoch: int, as_json: bool) -> None:
    print_json({"epoch": epoch}) if as_json else out.print(f"durable in epoch {epoch}", markup=False)


# -- limestone -------------------------------------------------------------------------------------------------------


@store.command("import", short_help="Make a store of a log folder of limestone.")
@click.argument("source", metavar="SRC", type=click.Path())
@click.option("--to", "data", metavar="DST", required=True, type=click.Path(), help="A data folder without a store.")
@as_json
def import_(source: str, data: str, as_json: bool) -> int:
    """Make a store of the log folder SRC of limestone, which is only read and stays as it is.

    Exit 0: imported. 5: imported, and something was repaired on the way, blobs were left where they are, or limestone
    itself had lost something. 6: refused, nothing was made.
    """
    from lamina.clock import SystemClock
    from lamina.engines.store.importing import import_entries
    from lamina.engines.store.limestone import read_folder
    from lamina.log.files.real import RealFiles

    files = RealFiles()
    target = new_folder_of(data)
    try:
        found = read_folder(files, source)
        total = len(found.entries)
        with progress_bar("importing") as progress:
            imported = import_entries(
                files,
                found.entries,
                found.max_epoch,
                target,
                clock=SystemClock(),
                # How many bytes it will be is only known by those that are done.
                progress=lambda done, size: progress(size, size * total // max(done, 1)),
            )
    except (Corruption, WrongFormat, BadEntry) as error:
        show_error(error)
        return EXIT_DAMAGE
    if as_json:
        print_json(_import_facts(found, imported, target))
    else:
        _print_import(found, imported, source, target)
    return EXIT_REPAIRED if found.repairs or found.losses or found.blobs else 0


def _import_facts(found: LimestoneFolder, imported: Imported, target: str) -> dict[str, object]:
    return {
        "folder": target,
        "format_version": found.format_version,
        "durable_epoch": found.durable_epoch,
        "epoch": imported.epoch,
        "entries": imported.entries,
        "storages": imported.storages,
        "parts": imported.parts,
        "bytes": imported.bytes,
        "blobs": found.blobs,
        "repairs": found.repairs,
        "losses": found.losses,
    }


def _print_import(found: LimestoneFolder, imported: Imported, source: str, target: str) -> None:
    for line in found.repairs:
        out.print(f"repaired: {line}", style="yellow", markup=False)
    for line in found.losses:
        out.print(f"lost by limestone: {line}", style="bold red", markup=False)
    if found.blobs:
        blobs = counted(found.blobs, "reference to a blob", "references to blobs")
        warn(f"{blobs}: the values were imported, the files of the blobs were not: keep {Path(source) / 'blob'}")
    counts = f"{counted(imported.entries, 'entry', 'entries')} of {counted(imported.storages, 'storage')}"
    out.print(
        f"imported {counts}, up to epoch {imported.epoch}, {show_bytes(imported.bytes)}, into {target}", markup=False
    )


for command in (
    store_keep.verify,
    store_keep.repair,
    store_keep.compact,
    store_keep.gc,
    store_keep.backup,
    store_keep.check,
    store_keep.restore,
):
    store.add_command(command)
