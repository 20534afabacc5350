"""How ``lamina store`` shows entries, files and reports to people and to programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from lamina.cli.render import counted, err, out, print_table
from lamina.units import show_bytes, show_duration, show_time

if TYPE_CHECKING:
    from lamina.engines.store.cleaning import CleanUp
    from lamina.engines.store.compactions import CompactionReport
    from lamina.engines.store.repairing import RepairReport
    from lamina.engines.store.verifying import VerifyReport
    from lamina.engines.store.view import Found

_AT_ONCE: Final = 1000  # lines that are written together
_FEW: Final = 20


# -- entries ---------------------------------------------------------------------------------------------------------


def facts_of(found: Found) -> dict[str, object]:
    """An entry for programs: keys and values in hexadecimal."""
    return {
        "storage": found.storage,
        "key": found.key.hex(),
        "value": found.value.hex(),
        "version": [found.version.major, found.version.minor],
        "time_ns": found.time_ns,
    }


def shown(data: bytes, *, in_hex: bool = False) -> str:
    """Text if it is some that can be printed, else hexadecimal with 0x before it."""
    if in_hex:
        return data.hex()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() and not text.startswith("0x") else f"0x{data.hex()}"


def export_lines(entries: Iterable[Found]) -> int:
    """One object a line for each entry. Returns how many."""
    count = 0
    lines: Iterator[str] = (
        f'{{"storage": {found.storage}, "key": "{found.key.hex()}", "value": "{found.value.hex()}"}}\n'
        for found in entries
    )
    while some := list(islice(lines, _AT_ONCE)):
        sys.stdout.write("".join(some))
        count += len(some)
    sys.stdout.flush()
    return count


# -- files and damage ------------------------------------------------------------------------------------------------


def print_files(report: VerifyReport) -> None:
    rows = [
        [
            file.name,
            _kind(file.kind, is_active=file.is_active, is_merged=file.is_merged),
            show_bytes(file.bytes),
            file.sessions or "-",
            file.entries,
            f"{file.first_epoch} to {file.last_epoch}" if file.last_epoch else "-",
        ]
        for file in report.files
    ]
    if rows:
        print_table(["file", "kind", "size ", "sessions ", "entries ", "epochs"], rows)


def _kind(kind: str, *, is_active: bool, is_merged: bool) -> str:
    more = ", active" if is_active else ", obsolete" if is_merged else ""
    return f"{kind}{more}"


def print_facts(report: VerifyReport) -> None:
    writer = f", written by {report.holder}" if report.holder else ""
    catalog = report.catalog
    compacted = f"generation {catalog.generation}, up to epoch {catalog.epoch}" if catalog else "the catalog is damaged"
    voids = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in report.voids[:_FEW])
    out.print(f"{counted(len(report.files), 'file')}, {show_bytes(report.bytes)}{writer}", markup=False)
    out.print(f"durable: up to epoch {report.durable}", markup=False)
    out.print(f"compacted: {compacted}", markup=False)
    if voids:
        more = f" and {len(report.voids) - _FEW} more" if len(report.voids) > _FEW else ""
        out.print(f"void epochs, of crashes: {voids}{more}", markup=False)
    if report.dead_bytes:
        out.print(f'obsolete: {show_bytes(report.dead_bytes)}, which "lamina store gc" removes', markup=False)


def print_damage(report: VerifyReport) -> None:
    for torn in report.torn:
        text = f"torn tail: {torn.file}, byte {torn.offset}: {torn.bytes} bytes ({torn.reason})"
        out.print(text, style="yellow", markup=False)
    for damage in report.damage:
        where = f"{damage.file}, byte {damage.offset} to {damage.end}"
        text = f"damage: {where}: {damage.reason}" if damage.is_needed else f"not needed: {where}: {damage.reason}"
        out.print(text, style="bold red" if damage.is_needed else "yellow", markup=False)
    for name in report.foreign:
        out.print(f"not a file of a store, left alone: {name!r}", markup=False)
    for name in report.leftovers:
        out.print(f"left behind by a crash, ignored: {name}", markup=False)
    if not report.is_sound:
        from lamina.engines.store import hints

        what_next = hints.OF_A_BACKUP if report.is_backup else 'see "lamina store repair"'
        out.print(f"damage found; {what_next}", markup=False)
    elif report.torn:
        out.print("no damage; torn tails are cut when the store is next opened", markup=False)
    else:
        out.print("no damage", style="green")


def print_repair(report: RepairReport) -> None:
    for line in report.done:
        out.print(line, markup=False)
    for lost in report.lost:
        if str(lost) not in report.done:
            out.print(f"lost: {lost}", style="bold red", markup=False)
    for line in report.left:
        out.print(f"left alone: {line}", style="bold red", markup=False)
    if report.left:
        out.print("what costs data is repaired with --accept-loss only; a backup is better", markup=False)
    elif not report.done:
        out.print("nothing to repair", markup=False)


# -- what was done ---------------------------------------------------------------------------------------------------


def print_compaction(report: CompactionReport) -> None:
    if not report.inputs:
        out.print("nothing to do: all is compacted", markup=False)
        return
    files = counted(len(report.inputs), "file")
    out.print(f"generation {report.generation}, up to epoch {report.epoch}: {files} merged", markup=False)
    new = f"{counted(report.entries_read, 'new entry', 'new entries')} read"
    out.print(f"{new}; {counted(report.entries_live, 'live entry', 'live entries')} in all", markup=False)
    size = f"{show_bytes(report.bytes_before)} before, {show_bytes(report.bytes_after)} now"
    parts = f"{counted(report.parts_written, 'part')} written, {report.parts_kept} kept"
    out.print(f"{size}; {parts}; in {show_duration(report.seconds)}", markup=False)


def print_clean_up(done: CleanUp) -> None:
    for name in done.removed:
        out.print(f"removed {name}", markup=False)
    if done.kept:
        kept = counted(len(done.kept), "file")
        out.print(f"{kept} kept for reads as of an earlier epoch, or for consumers", markup=False)
    files = counted(len(done.removed), "file")
    out.print(f"{files}, {show_bytes(done.bytes)} freed" if done.removed else "nothing to remove", markup=False)


def print_obsolete(names: Sequence[tuple[str, int]]) -> None:
    for name, size in names:
        out.print(f"would remove {name}, {show_bytes(size)}", markup=False)
    files = counted(len(names), "file")
    freed = show_bytes(sum(size for _, size in names))
    out.print(f"{files}, {freed}; nothing was changed" if names else "nothing to remove", markup=False)


def print_backup(facts: dict[str, Any], what: str) -> None:
    size = f"{counted(facts['files'], 'file')}, {show_bytes(facts['bytes'])}"
    out.print(f"{what}: everything up to epoch {facts['epoch']}, {size}, {show_time(facts['time_ns'])}", markup=False)


def warn(text: str) -> None:
    err.print(f"warning: {text}", markup=False)
