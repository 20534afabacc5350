"""``lamina backup``: generations of a data folder, made beside the server that writes to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from lamina.cli.asking import confirm, dry_run, yes
from lamina.cli.main import EXIT_DAMAGE, EXIT_REPAIRED
from lamina.cli.recorded import recorded
from lamina.cli.render import as_json, counted, err, out, print_json, print_table, progress_bar
from lamina.units import show_bytes, show_time

if TYPE_CHECKING:
    from lamina.pipeline.backing.checking import Verified
    from lamina.pipeline.backing.making import BackupReport
    from lamina.pipeline.backing.opening import OpenProof
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
@click.option("--full", is_flag=True, help="Read all files, also those that were backed up before, and all of BACKUP.")
@click.option(
    "--reread",
    type=click.IntRange(1, 10_000),
    default=30,
    show_default=True,
    metavar="N",
    help="Read old contents of BACKUP again, all of them in N runs.",
)
@click.option("--moved", is_flag=True, help="The data folder has another path than in the former generations.")
@as_json
def make(data: str, to: str, verify: bool, full: bool, reread: int, moved: bool, as_json: bool) -> int:
    """Add a generation to BACKUP: all logs of DATA, as of one moment.

    What was acknowledged before it began is in it. Killed, it leaves the former generations as they were. Each run
    reads a share of what is in BACKUP again, and heals what is rotten from DATA.

    Exit 0: made. 5: made, but files of DATA are damaged, or former generations are broken; both are named.
    """
    from lamina.pipeline.backing.making import back_up

    with recorded("backing up", data, "backup") as run:
        report = run.done(
            back_up(data, to, verify=verify, is_full=full, is_moved=moved, shares=reread, progress=run.progress)
        )
    for note in report.notes:
        err.print(f"note: {note}", markup=False)
    for line in _found(report):
        err.print(line, markup=False)
    if as_json:
        print_json(report.as_dict())
    else:
        again = f", {show_bytes(report.reread_bytes)} of it read again" if report.reread_bytes else ""
        out.print(
            f"{report.backup}: generation {report.generation}, {report.logs:,} logs, {report.files:,} files, "
            f"{show_bytes(report.bytes)}, {show_bytes(report.copied_bytes)} of it new"
            f"{again}{', read back' if report.is_verified else ''} ({report.seconds:.1f} s)",
            markup=False,
        )
    return 0 if report.is_whole else EXIT_REPAIRED


def _found(report: BackupReport) -> Iterator[str]:
    """What is or was wrong, a line each."""
    for one in report.damage:
        kept = "the generation has it whole, as it was backed up before"
        if one.path not in report.kept_whole:
            kept = "it is in the generation as it is: restore an older one, or repair it and back up again"
        yield f"damage in the data folder: {one.path}, byte {one.byte}: {one.reason}; {kept}"
    for rot in report.rot:
        where = f"{rot.path}, byte {rot.byte}" if rot.path else rot.file
        names = ", ".join(rot.generations)
        if rot.is_healed:
            yield f"healed in the backup: {where}: {rot.file} {rot.reason}; written anew from DATA, in {names}"
        else:
            yield f"broken in the backup: {where}: {rot.file} {rot.reason}; broken generations: {names}"


@backup.command(name="list")
@click.argument("folder", metavar="BACKUP")
@as_json
def list_(folder: str, as_json: bool) -> int:
    """The generations of a backup, oldest first."""
    from lamina.errors import StorageError
    from lamina.pipeline.backing.manifest import SUFFIX, shown

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
                "damage": [shown(each.path) for each in found.damage],
            }
        )
    if as_json:
        print_json({"backup": os.path.abspath(folder), "generations": rows})
    else:
        table = [_row(row) for row in rows]
        print_table(["generation", "as of", "logs ", "files ", "bytes ", "new "], table)
        for row in rows:
            if damaged := row.get("damage"):
                text = f"note: generation {row['generation']} has files damaged in the data folder: {damaged}"
                err.print(text, markup=False)
    return EXIT_DAMAGE if any("problem" in row for row in rows) else 0


def _row(row: dict[str, object]) -> list[object]:
    if "problem" in row:
        return [row["generation"], row["problem"], "", "", "", ""]
    sizes = [show_bytes(int(str(row[name]))) for name in ("bytes", "new_bytes")]
    return [row["generation"], show_time(int(str(row["moment_ns"])))[:19] + "Z", row["logs"], row["files"], *sizes]


@backup.command(short_help="Read every byte of every generation.")
@click.argument("folder", metavar="BACKUP")
@click.option("--open", "opens", is_flag=True, help="Restore the newest generation to a temporary folder, and open it.")
@click.option("--generation", metavar="TIME", help="With --open: this one instead.")
@click.option(
    "--in",
    "temporary",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="With --open: where the temporary folder is made; else where the system has them.",
)
@as_json
def verify(folder: str, opens: bool, generation: str | None, temporary: str | None, as_json: bool) -> int:
    """Read every byte of every generation: its SHA-256, and the checksums of the logs. Changes nothing.

    With --open, show that what would be restored starts: every engine and log is opened as a server opens it.

    Exit 0: all are whole, and what was opened starts. 6: something is not, and is named.
    """
    from lamina.errors import BadOption, Corruption
    from lamina.pipeline.backing.checking import verify as check
    from lamina.pipeline.backing.opening import prove

    if not opens and (generation or temporary):
        raise BadOption("--generation and --in say what to open, and where", hint="add --open", option="open")
    with progress_bar("checking") as progress:
        found = check(_place(folder), progress)
    if not as_json:
        _show_verified(found, os.path.abspath(folder))
    proof: OpenProof | None = None
    problem: Corruption | None = None
    if opens:
        with progress_bar("opening") as progress:
            try:
                proof = prove(os.path.abspath(folder), generation=generation, folder=temporary, progress=progress)
            except Corruption as error:
                problem = error
    if as_json:
        opened = {"problem": problem.as_dict()} if problem else proof.as_dict() if proof else None
        print_json({**found.as_dict(), **({"opened": opened} if opens else {})})
    elif problem is not None:
        out.print(f"not opened: {problem}", markup=False)
    elif proof is not None:
        _show_opened(proof)
    return 0 if found.is_whole and problem is None and (proof is None or proof.starts) else EXIT_DAMAGE


def _show_verified(found: Verified, folder: str) -> None:
    from lamina.pipeline.backing.checking import restore_command

    for one in found.damage:
        where = f"{one.path}, byte {one.byte}" if one.path else one.file
        what = f"{one.file} {one.reason}" if one.file else one.reason
        out.print(f"damage: {where}: {what}, in {', '.join(one.generations)}", markup=False)
    words = "whole" if found.is_whole else f"{len(found.damage):,} problems"
    out.print(
        f"{counted(found.generations, 'generation')}, {counted(found.contents, 'content')}, "
        f"{show_bytes(found.bytes)}: {words}",
        markup=False,
    )
    if found.is_whole:
        return
    if found.newest_whole is None:
        out.print(
            "no generation is whole: back up again, and see the data folder with lamina doctor --deep", markup=False
        )
    else:
        command = restore_command(folder, "NEW", found.newest_whole)
        out.print(f"the newest generation that is whole: {command}", markup=False)


def _show_opened(proof: OpenProof) -> None:
    for log in proof.logs:
        out.print(f"{log.log}: {log.problem or log.holds}", markup=False)
        for warning in log.warnings:
            out.print(f"  warning: {warning}", markup=False)
    words = "starts" if proof.starts else "does not start"
    out.print(
        f"generation {proof.generation}, {show_bytes(proof.bytes)}, restored and opened: it {words} "
        f"({proof.seconds:.1f} s)",
        markup=False,
    )


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
