"""``lamina backup``: generations of a data folder, made beside the server that writes to it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from lamina.cli.asking import confirm, dry_run, yes
from lamina.cli.main import EXIT_DAMAGE
from lamina.cli.recorded import recorded
from lamina.cli.render import as_json, counted, err, out, print_json, print_table, progress_bar
from lamina.units import show_bytes, show_time

if TYPE_CHECKING:
    from lamina.pipeline.backing.place import Backup


class _Backup(click.Group):
    """``lamina backup DATA`` is short for ``lamina backup make DATA``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["make", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Backup)
def backup() -> None:
    """Back up a data folder, also while a server writes to it. `lamina backup DATA --to BACKUP` is short for make.

    Each backup adds a generation, and copies only what is new. lamina restore makes a data folder of one again.
    """


@backup.command()
@click.argument("data", type=click.Path(exists=True, file_okay=False))
@click.option("--to", required=True, metavar="BACKUP", help="A new folder, or a backup of the same data folder.")
@click.option("--verify", is_flag=True, help="Read the new generation back, every byte.")
@click.option("--full", is_flag=True, help="Read all files, also those that were backed up before.")
@click.option("--moved", is_flag=True, help="The data folder has another path than in the former generations.")
@as_json
def make(data: str, to: str, verify: bool, full: bool, moved: bool, as_json: bool) -> int:
    """Add a generation to BACKUP: all logs of DATA, as of one moment.

    What was acknowledged before it began is in it. Killed, it leaves the former generations as they were.
    """
    from lamina.pipeline.backing.making import back_up

    with recorded("backing up", data, "backup") as run:
        report = run.done(back_up(data, to, verify=verify, is_full=full, is_moved=moved, progress=run.progress))
    for note in report.notes:
        err.print(f"note: {note}", markup=False)
    if as_json:
        print_json(report.as_dict())
        return 0
    out.print(
        f"{report.backup}: generation {report.generation}, {report.logs:,} logs, {report.files:,} files, "
        f"{show_bytes(report.bytes)}, {show_bytes(report.copied_bytes)} of it new"
        f"{', read back' if report.is_verified else ''} ({report.seconds:.1f} s)",
        markup=False,
    )
    return 0


@backup.command(name="list")
@click.argument("folder", metavar="BACKUP")
@as_json
def list_(folder: str, as_json: bool) -> int:
    """The generations of a backup, oldest first."""
    from lamina.errors import StorageError
    from lamina.pipeline.backing.manifest import SUFFIX

    place = _place(folder)
    place.check()
    rows: list[dict[str, object]] = []
    seen: set[str] = set()
    for name in place.names():
        try:
            found = place.load(name)
        except StorageError as error:
            rows.append({"generation": name.removesuffix(SUFFIX), "problem": error.message})
            continue
        contents = found.contents()
        new = sum(content.bytes for digest, content in contents.items() if digest not in seen)
        seen |= contents.keys()
        rows.append(
            {
                "generation": found.name,
                "moment_ns": found.moment_ns,
                "logs": len(found.logs),
                "files": len(found.files),
                "bytes": found.bytes,
                "new_bytes": new,
                "notes": list(found.notes),
            }
        )
    if as_json:
        print_json({"backup": os.path.abspath(folder), "generations": rows})
    else:
        shown = [_row(row) for row in rows]
        print_table(["generation", "as of", "logs ", "files ", "bytes ", "new "], shown)
    return EXIT_DAMAGE if any("problem" in row for row in rows) else 0


def _row(row: dict[str, object]) -> list[object]:
    if "problem" in row:
        return [row["generation"], row["problem"], "", "", "", ""]
    sizes = [show_bytes(int(str(row[name]))) for name in ("bytes", "new_bytes")]
    return [row["generation"], show_time(int(str(row["moment_ns"])))[:19] + "Z", row["logs"], row["files"], *sizes]


@backup.command(short_help="Read every byte of every generation.")
@click.argument("folder", metavar="BACKUP")
@as_json
def verify(folder: str, as_json: bool) -> int:
    """Read every byte of every generation: its SHA-256, and the checksums of the logs. Changes nothing.

    Exit 0: all are whole. 6: something is not, and is named.
    """
    from lamina.pipeline.backing.checking import verify as check

    with progress_bar("checking") as progress:
        found = check(_place(folder), progress)
    if as_json:
        print_json(found.as_dict())
    else:
        for one in found.damage:
            where = one.path or one.file
            out.print(f"damage: {where}: {one.file} {one.reason}, in {', '.join(one.generations)}", markup=False)
        words = "whole" if found.is_whole else f"{len(found.damage):,} problems"
        out.print(
            f"{counted(found.generations, 'generation')}, {counted(found.contents, 'content')}, "
            f"{show_bytes(found.bytes)}: {words}",
            markup=False,
        )
    return 0 if found.is_whole else EXIT_DAMAGE


@backup.command()
@click.argument("folder", metavar="BACKUP")
@click.option("--keep", required=True, type=click.IntRange(min=1), metavar="N", help="So many of the newest stay.")
@dry_run
@yes
@as_json
def prune(folder: str, keep: int, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Remove all generations but the newest N, and what they alone have."""
    from lamina.pipeline.backing.pruning import prune as remove

    place = _place(folder)
    would = remove(place, keep, is_dry_run=True)
    if not dry_run and would.removed:
        question = f"Remove {len(would.removed)} of {len(would.removed) + len(would.kept)} generations for good"
        confirm(f"{question}, {show_bytes(would.bytes)}?", yes=yes)
    done = would if dry_run else remove(place, keep)
    if as_json:
        print_json(done.as_dict())
        return 0
    for name in done.removed:
        out.print(f"{'would remove' if dry_run else 'removed'} {name}", markup=False)
    out.print(
        f"{'would stay' if dry_run else 'left'}: {counted(len(done.kept), 'generation')}; "
        f"{'would go' if dry_run else 'gone'}: {counted(done.contents, 'content')}, {show_bytes(done.bytes)}",
        markup=False,
    )
    return 0


def _place(folder: str) -> Backup:
    from lamina.log.files.real import RealFiles
    from lamina.pipeline.backing.place import Backup

    return Backup(RealFiles(), os.path.abspath(folder))
