"""``lamina log``: look at, check and mend any folder of log files, also while a server writes to it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import click

from lamina.cli.asking import dry_run
from lamina.cli.main import EXIT_DAMAGE, EXIT_REPAIRED
from lamina.cli.render import as_json, counted, err, out, print_json, print_table, progress_bar
from lamina.errors import BadOption, from_os
from lamina.log.consumer_file import NEVER
from lamina.log.files.real import RealFiles
from lamina.log.naming import FAMILIES, Listing, parse, sort_out
from lamina.log.reader import Reader, Segment
from lamina.log.scan import Batch
from lamina.log.survey import Survey, as_dict, survey
from lamina.units import parse_time, show_bytes, show_time

folder_argument = click.argument("folder", metavar="DIR", type=click.Path(readable=False))
FILES = RealFiles()
PREVIEW = 60


@click.group()
def log() -> None:
    """Look at, check and mend a folder of log files.

    Works on any folder of lamina or workq logs, also beside a running server, and changes nothing
    except for `repair --yes` and `consumers --remove`.
    """


def _listing(folder: str) -> Listing:
    """What is in the folder. Raises: BadOption if there are no logs in it but in folders below."""
    try:
        listing = sort_out(FILES.list(folder))
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
    if not listing.segments:
        below = sorted({str(path.parent) for path in Path(folder).glob("*/**/*") if parse(path.name)})
        if below:
            raise BadOption(f"{folder} holds no log files itself", hint=f"there are some in {', '.join(below[:5])}")
    return listing


@log.command()
@folder_argument
@as_json
def stat(folder: str, as_json: bool) -> None:
    """Show the files of a log: size, records, first and last time."""
    _listing(folder)
    with progress_bar("reading") as progress:
        found = survey(FILES, folder, progress=progress)
    rows = [
        {
            "file": segment.name.name,
            "format": segment.format.name if segment.format else None,
            "bytes": segment.bytes,
            "records": segment.records - segment.marks,
            "marks": segment.marks,
            "first_time_ns": segment.first_ns or None,
            "last_time_ns": segment.last_data_ns or None,
        }
        for segment in found.segments
    ]
    if as_json:
        print_json({"folder": folder, "writer": found.holder, "segments": rows})
        return
    print_table(
        ["file", "kind", "size ", "records ", "first record", "last record"],
        [
            [
                row["file"],
                row["format"] or "?",
                show_bytes(int(str(row["bytes"]))),
                row["records"],
                _moment(row["first_time_ns"]),
                _moment(row["last_time_ns"]),
            ]
            for row in rows
        ],
    )
    writer = f", written by {found.holder}" if found.holder else ""
    records = found.records - sum(segment.marks for segment in found.segments)
    out.print(
        f"{counted(len(rows), 'file')}, {show_bytes(found.bytes)}, {counted(records, 'record')}{writer}", markup=False
    )
    _print_other_files(found)
    if found.damage:
        out.print('damage found, not all could be counted; see "lamina log verify"', style="bold red", markup=False)


def _moment(time_ns: object) -> str:
    return show_time(time_ns) if isinstance(time_ns, int) else "-"


def _print_other_files(found: Survey) -> None:
    for name in found.listing.foreign:
        out.print(f"not a log file, left alone: {name!r}", markup=False)
    for name in found.listing.leftovers:
        out.print(f"left behind by a crash, ignored: {name}", markup=False)


@log.command(short_help="Print every record, marks of the kernel included.")
@folder_argument
@click.option("--since", metavar="TIME", help="Only records at or after: 2026-11-15T06:17:00Z, nanoseconds, or -5m.")
@click.option("--until", metavar="TIME", help="Only records before.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Stop after N records.")
@as_json
def dump(folder: str, since: str | None, until: str | None, limit: int | None, as_json: bool) -> None:
    """Print every record, in log order, the kernel's own marks included.

    With --json one object a line: time_ns, file, offset, size (of the payload), payload (base64); marks also say which.
    """
    start = parse_time(since) if since is not None else None
    end = parse_time(until) if until is not None else None
    count = 0
    for stream in _listing(folder).streams():
        torn = ""
        for segment, batch in Reader(folder, stream=stream, files=FILES).batches():
            torn = f"{segment.name.name}, byte {batch.end}: {segment.end - batch.end} bytes of a torn tail"
            torn = torn if batch.end < segment.end else ""
            for line in _dump_lines(segment, batch, start, end, as_json):
                click.echo(line)
                count += 1
                if limit is not None and count >= limit:
                    return
        if torn:
            err.print(f"not shown: {torn}", markup=False)


def _dump_lines(segment: Segment, batch: Batch, since: int | None, until: int | None, as_json: bool) -> Iterator[str]:
    name = segment.name.name
    for at, time_ns in enumerate(batch.times):
        if (since is not None and time_ns < since) or (until is not None and time_ns >= until):
            continue
        payload = batch.payload(at)
        yield _line(segment, time_ns, name, batch.record_offset(at), payload, as_json)


def _line(segment: Segment | None, time_ns: int, name: str, offset: int, payload: bytes, as_json: bool) -> str:
    mark = _mark(segment, payload) if segment is not None else None
    if not as_json:
        shown = f"<{mark}>" if mark else repr(payload[:PREVIEW])[1:] + ("..." if len(payload) > PREVIEW else "")
        return f"{show_time(time_ns)}  {name}:{offset}  {len(payload)} B  {shown}"
    facts: dict[str, object] = {
        "time_ns": time_ns,
        "file": name,
        "offset": offset,
        "size": len(payload),
        "payload": base64.b64encode(payload).decode(),
    }
    if mark:
        facts["mark"] = mark
    return json.dumps(facts, separators=(",", ":"))


def _mark(segment: Segment, payload: bytes) -> str | None:
    if (synced := segment.format.read_watermark(payload)) is not None:
        return f"watermark: synced up to {synced}"
    if (lost := segment.format.read_gap(payload)) is not None:
        return f"gap: {lost} bytes lost"
    return None


@log.command(short_help="Check every byte. Exit 6: there is damage.")
@folder_argument
@as_json
def verify(folder: str, as_json: bool) -> int:
    """Check every byte: frames, checksums, torn tails, damage, missing ends.

    A torn tail is what a crash leaves and is cut at the next open: exit 0. Damage: exit 6.
    """
    from lamina.cli.log_journals import journals_in, print_journals

    journals = journals_in(folder)
    if journals.is_all:
        facts: dict[str, object] = {"folder": folder}
        is_damaged = False
    else:
        _listing(folder)
        with progress_bar("checking") as progress:
            found = survey(FILES, folder, progress=progress)
        facts, is_damaged = as_dict(found), bool(found.damage)
        if not as_json:
            _print_survey(found)
    if journals.folders:
        facts |= {"journals": journals.as_dict()}
        if not as_json:
            print_journals(journals)
    if as_json:
        print_json(facts)
    return EXIT_DAMAGE if is_damaged or journals.is_damaged else 0


def _print_survey(found: Survey) -> None:
    marks = sum(segment.marks for segment in found.segments)
    records = f"{counted(found.records - marks, 'record')} and {counted(marks, 'mark')} of the kernel"
    out.print(f"{counted(len(found.segments), 'file')}, {records}, {show_bytes(found.bytes)}", markup=False)
    if not found.segments:
        out.print("no log files here")
    for torn in found.torn:
        text = f"torn tail: {torn.file}, byte {torn.offset}: {torn.bytes} bytes ({torn.reason})"
        out.print(text, style="yellow", markup=False)
    for damage in found.damage:
        text = f"damage: {damage.file}, byte {damage.offset} to {damage.end}: {damage.reason}"
        out.print(text, style="bold red", markup=False)
    gaps = sum(segment.gaps for segment in found.segments)
    if gaps:
        out.print(f"{gaps} gaps, from earlier repairs", style="yellow", markup=False)
    _print_other_files(found)
    if found.damage:
        from lamina.log.repair import is_store

        command = "lamina store repair" if is_store(found.listing) else "lamina log repair"
        out.print(f'damage found; see "{command}"', markup=False)
    elif found.torn:
        out.print("no damage; the torn tail is cut when the log is next opened", markup=False)
    else:
        out.print("no damage", style="green")


@log.command(short_help="Cut torn tails, and put damage aside.")
@folder_argument
@click.option("--dry-run", is_flag=True, help="Show what would be done, as without --yes.")
@click.option("--yes", is_flag=True, help="Do it. Without this, only show what would be done.")
@as_json
def repair(folder: str, dry_run: bool, yes: bool, as_json: bool) -> int:
    """Cut torn tails and quarantine damage, keeping every byte that is taken out.

    Cut tails go to FILE.torn-TIME, damaged ranges to FILE.broken-TIME; a gap mark stays in their place.
    A store has its own: `lamina store repair`. Exit 0: nothing to do (or, without --yes, no damage). 5: repaired.
    6: damage is left.
    """
    from lamina.log.repair import check_is_no_store, plan

    check_is_no_store(folder, _listing(folder))
    with progress_bar("checking") as progress:
        found = survey(FILES, folder, progress=progress)
    steps = plan(found)
    if not yes or dry_run or not steps:
        if as_json:
            print_json({"would_do": steps, "done": [], "left": [], **as_dict(found)})
        else:
            for step in steps:
                out.print(f"would: {step}", markup=False)
            out.print("run again with --yes to do it" if steps else "nothing to repair", markup=False)
        return EXIT_DAMAGE if found.damage else 0
    return _repair(folder, found.listing, as_json)


def _repair(folder: str, listing: Listing, as_json: bool) -> int:
    from lamina.clock import SystemClock
    from lamina.log import lock
    from lamina.log.repair import repair_held

    families = sorted({name.family for name in listing.segments} or {"numbered"})
    names = {FAMILIES[family].lock_name: FAMILIES[family] for family in families}
    held = []
    try:
        for family in names.values():
            held.append(lock.take(FILES, folder, family.lock_name))
        report = repair_held(FILES, folder, SystemClock())
    finally:
        for each in held:
            each.release()
    if as_json:
        left = [{"file": damage.file, "offset": damage.offset, "reason": damage.reason} for damage in report.left]
        print_json({"would_do": [], "done": report.done, "left": left})
    else:
        for step in report.done:
            out.print(step, markup=False)
        for damage in report.left:
            out.print(f"left alone: {damage.file}: {damage.reason}", style="bold red", markup=False)
    return EXIT_DAMAGE if report.left else EXIT_REPAIRED


@log.command(short_help="Show who reads the log from outside, and how far.")
@folder_argument
@click.option("--remove", "name", metavar="NAME", help="Keep nothing for this consumer any more.")
@dry_run
@as_json
def consumers(folder: str, name: str | None, dry_run: bool, as_json: bool) -> None:
    """Show who reads the log from outside, how far they are, and until when the rest is kept for them."""
    from lamina.clock import SystemClock
    from lamina.log import consumers as positions

    _listing(folder)
    there = [one.name for one in positions.find(FILES, folder)]
    if name is not None and not (name in there if dry_run else positions.remove(FILES, folder, name)):
        known = ", ".join(there) or "none"
        raise BadOption(f"{folder} has no consumer {name!r}", hint=f"there are: {known}", option="--remove")
    now = SystemClock().now_ns()
    found = positions.find(FILES, folder)
    if as_json:
        rows = [{**asdict(one), "has_expired": one.has_expired(now)} for one in found]
        print_json({"folder": folder, "removed": None if dry_run else name, "consumers": rows})
        return
    if name is not None:
        out.print(f"{'would remove' if dry_run else 'removed'} the position of {name}", markup=False)
    print_table(
        ["consumer", "has read up to", "saved", "holds the rest until"],
        [
            [
                one.name,
                "?" if one.damage else _positions(one.position, one.streams),
                _moment(one.written_ns or None),
                "unknown" if one.expires_ns == NEVER else show_time(one.expires_ns) + " (over)" * one.has_expired(now),
            ]
            for one in found
        ],
    )
    for one in found:
        if one.damage:
            text = f"{one.name}: its position cannot be read ({one.damage}): everything is kept for now"
            out.print(text, style="bold red", markup=False)


def _positions(position: int, streams: Mapping[str, int]) -> str:
    each = [f"{stream} {show_time(time_ns)}" for stream, time_ns in sorted(streams.items())]
    return ", ".join([show_time(position), *each]) if position or not each else ", ".join(each)


@log.command()
@folder_argument
@click.option(
    "-n", "--last", metavar="N", type=click.IntRange(0, 10**9), default=10, help="Begin with the last N records (10)."
)
@click.option("-f", "--follow", is_flag=True, help="Go on as records come, until interrupted.")
@click.option("--since", metavar="TIME", help="Begin with the first record at or after this time; -n is ignored.")
@click.option("--log", "stream", metavar="NAME", help="Which log, if the folder holds several.")
@as_json
def tail(folder: str, last: int, follow: bool, since: str | None, stream: str | None, as_json: bool) -> None:
    """Print the newest records, and with -f those that come."""
    reader = Reader(folder, stream=_stream(folder, stream), files=FILES)
    if since is not None:
        cursor = reader.read(since=parse_time(since))
    else:
        newest = reader.last(last)
        for record in newest:
            click.echo(_line(None, record.time_ns, record.file, record.offset, record.payload, as_json))
        position = newest[-1].time_ns if newest else next((r.time_ns for r in reader.backwards()), 0)
        cursor = reader.read(since=position + 1)
    for record in cursor.follow() if follow else cursor if since is not None else ():
        click.echo(_line(None, record.time_ns, record.file, record.offset, record.payload, as_json))


def _stream(folder: str, chosen: str | None) -> str:
    """The log to read: the chosen one, or the only one there is."""
    streams = list(_listing(folder).streams())
    if chosen is None and len(streams) <= 1:
        return streams[0] if streams else "numbered"
    if chosen not in streams:
        asked = f"{folder} holds {len(streams)} logs" if chosen is None else f"{folder} holds no log {chosen!r}"
        raise BadOption(asked, hint=f"choose one with --log: {', '.join(streams)}")
    return chosen
