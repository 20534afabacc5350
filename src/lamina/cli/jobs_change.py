"""``lamina jobs complete | fail | delete | pause | resume``: one change to one job or queue."""

from __future__ import annotations

import os

import click

from lamina.cli.asking import confirm, dry_run, yes
from lamina.cli.jobs_place import about, job_facts, jobs_at, state_after_fail, where
from lamina.cli.render import as_json, out, print_json


def _say(facts: dict[str, object], text: str, as_json: bool) -> None:
    print_json(facts) if as_json else out.print(text, markup=False)


@click.command()
@click.argument("id")
@click.argument("result", required=False)
@where
@as_json
def complete(id: str, result: str | None, server: str | None, data: str | None, as_json: bool) -> None:
    """Complete a job, with the RESULT that whoever waits for it gets."""
    with jobs_at(server, data) as place, about("job", id):
        place.complete(id, os.fsencode(result or ""))
    _say({"id": id, "state": "completed"}, f"{id} completed", as_json)


@click.command(short_help="Fail a job; it is tried again if it may be.")
@click.argument("id")
@click.argument("error", required=False)
@click.option("--bury", is_flag=True, help="For good, whatever attempts are left.")
@where
@as_json
def fail(id: str, error: str | None, bury: bool, server: str | None, data: str | None, as_json: bool) -> None:
    """Fail a job with this ERROR: it is tried again if it may be, else it is failed until it is redriven."""
    with jobs_at(server, data) as place, about("job", id):
        (place.bury if bury else place.fail)(id, os.fsencode(error or ""))
        state = state_after_fail(place, id)
    _say({"id": id, "state": state}, f"{id} {'failed' if state == 'failed' else 'failed, to be tried again'}", as_json)


@click.command()
@click.argument("id")
@dry_run
@yes
@where
@as_json
def delete(id: str, dry_run: bool, yes: bool, server: str | None, data: str | None, as_json: bool) -> None:
    """Delete a job, whatever its state."""
    with jobs_at(server, data) as place, about("job", id):
        found = job_facts(place, id)
        if not dry_run:
            confirm(f"Delete the job {id} of {found['name']}, which is {found['state']}?", yes=yes)
            place.delete(id)
    if dry_run:
        facts = {"id": id, "state": found["state"], "is_done": False}
        _say(facts, f"{id} would be deleted: it is of {found['name']}, {found['state']}", as_json)
    else:
        _say({"id": id, "state": "deleted", "is_done": True}, f"{id} deleted", as_json)


@click.command()
@click.argument("name")
@where
@as_json
def pause(name: str, server: str | None, data: str | None, as_json: bool) -> None:
    """Hand out no job of the queue NAME until it is resumed. Jobs can still be added."""
    with jobs_at(server, data, makes=True) as place:
        place.pause(name)
    _say({"name": name, "paused": True}, f"{name} paused", as_json)


@click.command()
@click.argument("name")
@where
@as_json
def resume(name: str, server: str | None, data: str | None, as_json: bool) -> None:
    """Hand out the jobs of the queue NAME again."""
    with jobs_at(server, data) as place:
        place.resume(name)
    _say({"name": name, "paused": False}, f"{name} resumed", as_json)


COMMANDS = (complete, fail, delete, pause, resume)
