"""``lamina pipeline dump``: the queues' dump and the logs since, folded into the next dump."""

from __future__ import annotations

import click

from lamina.cli.asking import dry_run
from lamina.cli.pipeline import of_pipeline
from lamina.cli.recorded import recorded
from lamina.cli.render import out, print_json
from lamina.units import parse_duration, parse_time, show_bytes


@click.command(short_help="Queues: write the next dump.")
@of_pipeline
@click.option("--ttl", metavar="DURATION", help="How long the server keeps messages; else only what says so expires.")
@click.option("--now", "moment", metavar="TIME", help="Leave out what has expired by then; for runs to be repeated.")
@click.option("--force", is_flag=True, help="Leave out what cannot be read, for good.")
@dry_run
def dump(
    data: str,
    engine: str,
    master: str | None,
    conf: dict[str, str],
    ttl: str | None,
    moment: str | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Fold the dump of the queues and the logs since into the next dump, so that a start has less to read.

    The folder must not be served: a server does the same by itself (lamina queues dump --server).
    """
    from lamina.pipeline.jobs.dump import dump

    if dry_run:
        _would_dump(data, force, as_json)
        return 0
    with recorded("folding", data) as run:
        report = run.done(
            dump(
                data,
                engine=engine,
                master=master,
                conf=conf,
                progress=run.progress,
                now=None if moment is None else parse_time(moment),
                ttl=0 if ttl is None else int(parse_duration(ttl)),
                force=force,
            )
        )
    if as_json:
        print_json(report.as_dict())
        return 0
    out.print(
        f"dump {report.number}: {report.queues:,} queues, {report.messages:,} messages, {report.expired:,} expired "
        f"left out; {show_bytes(report.bytes_before)} before, {show_bytes(report.bytes_after)} after "
        f"({report.engine}, {report.seconds:.1f} s)",
        markup=False,
    )
    return 0


def _would_dump(data: str, force: bool, as_json: bool) -> None:
    """What the next dump would hold, before anything expires; also beside a server."""
    from lamina.cli.queues_place import looked_at

    looked = looked_at(data, force=force)
    views = list(looked.views())
    messages = sum(view.waiting for view in views)
    if as_json:
        print_json({"queues": len(views), "messages": messages, "store": looked.store, "is_done": False})
        return
    out.print(f"{len(views):,} queues with {messages:,} messages would be dumped, those that are expired left out")
    out.print("nothing was changed: leave out --dry-run to do it")
