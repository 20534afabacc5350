"""``lamina topics``: look at, publish to and look after topics, of a running server or of a data folder."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Final

import click

from lamina.cli.asking import confirm, dry_run, yes
from lamina.cli.render import as_json, err, out, print_json, progress_bar
from lamina.cli.topics_place import Place, check_topic, to_moment, topics_at, where
from lamina.cli.topics_show import (
    contents,
    message_facts,
    print_deleted,
    print_groups,
    print_message,
    print_reset,
    print_topics,
    print_why,
    reset_facts,
)
from lamina.errors import BadOption, LaminaError

_AT_ONCE: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 26


@click.group()
def topics() -> None:
    """Look at, publish to and look after topics.

    Works on a running server (--server), or on a data folder that no server has open (--data).
    TIME is 2026-11-15T06:17:00Z (a day alone will do), nanoseconds since 1970, -5m for five minutes ago, or the id of
    a message, such as 1700000000123-0.
    """


@topics.command(short_help="Show all topics.")
@where
@as_json
def ls(server: str | None, data: str | None, as_json: bool) -> None:
    """Show all topics: how many messages they have, and from when to when. With --json one object a line."""
    with topics_at(server, data) as place:
        found = [place.stats(name) for name in place.names()]
    if as_json:
        for one in found:
            print_json(asdict(one))
    else:
        print_topics(found)


@topics.command()
@click.argument("topic")
@click.option("-n", "count", metavar="N", type=click.IntRange(min=0), help="Only the newest N.  [default: 10]")
@click.option("--since", metavar="TIME", help="All from this time on.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what is published, until Ctrl-C.")
@where
@as_json
def tail(
    topic: str,
    count: int | None,
    since: str | None,
    follow: bool,
    server: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Show the newest messages of a topic, or all since a time. With --json one object a line."""
    start = None if since is None else to_moment(since)
    if start == "end":
        start, count = None, 0
    elif start == "start":
        start, count = None, count if count is not None else sys.maxsize
    last = 10 if count is None and since is None else count

    with topics_at(server, data) as place:
        if follow and data is not None:
            place.follow(topic, "0-0")
        newest = check_topic(place, topic).last_id if not follow else place.stats(topic).last_id
        for message in place.read(topic, start, None if last == sys.maxsize else last):
            newest = message.id
            print_json(message_facts(message)) if as_json else print_message(message)
        if follow:
            for message in place.follow(topic, newest or "0-0"):
                print_json(message_facts(message)) if as_json else print_message(message)
                sys.stdout.flush()


@topics.command()
@click.argument("topic")
@click.argument("words", metavar="[TEXT | FIELD=VALUE... | -]", nargs=-1)
@click.option("--id", metavar="ID", help="Of the message, larger than all before.  [default: the time]")
@where
@as_json
def publish(
    topic: str,
    words: tuple[str, ...],
    id: str | None,
    server: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Publish a message and print its id.

    TEXT alone becomes the field "value". With "-" every line of standard input is published as a message of its own,
    as it comes.
    """
    if words == ("-",):
        if id is not None:
            raise BadOption("--id is for one message", hint="leave it out with -")
        with topics_at(server, data, makes=True) as place:
            _publish_lines(place, topic, as_json)
        return
    message = _message(words)
    with topics_at(server, data, makes=True) as place:
        given = place.publish(topic, message, id)
    print_json({"topic": topic, "id": given}) if as_json else click.echo(given)


def _message(words: tuple[str, ...]) -> dict[bytes, bytes] | bytes:
    if not words:
        raise BadOption("there is nothing to publish", hint="give a text, FIELD=VALUE, or - for standard input")
    if len(words) == 1 and "=" not in words[0]:
        return os.fsencode(words[0])
    fields: dict[bytes, bytes] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or os.fsencode(name) in fields:
            raise BadOption(f"{word!r} is no field", hint="write FIELD=VALUE, each field once; or one text alone")
        fields[os.fsencode(name)] = os.fsencode(value)
    return fields


def _publish_lines(place: Place, topic: str, as_json: bool) -> None:
    done, first, last = 0, None, None
    with progress_bar(f"publishing to {topic}") as progress:
        try:
            for lines in _lines(progress):
                ids = place.publish_many(topic, lines)
                done, first, last = done + len(ids), first or ids[0], ids[-1]
        except LaminaError:
            err.print(f"{done:,} messages were published before this", markup=False)
            raise
    if as_json:
        print_json({"topic": topic, "published": done, "first_id": first, "last_id": last})
    else:
        out.print(f"{done:,} messages published" + (f", {first} to {last}" if done else ""), markup=False)


def _lines(progress: Callable[[int, int], None]) -> Iterator[list[bytes]]:
    """Lines of standard input, as many as have come. One that does not end is the last one."""
    found = os.fstat(0)
    total = found.st_size if stat.S_ISREG(found.st_mode) else 0
    rest, read = b"", 0
    while data := os.read(0, _AT_ONCE):
        read += len(data)
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            raise BadOption(f"a line of more than {_LONGEST_LINE} bytes", hint="every line is one message")
        if lines:
            yield lines
        progress(read, max(total, read))
    if rest:
        yield [rest]


@topics.command(short_help="Show the groups of a topic, and how far they are.")
@click.argument("topic")
@where
@as_json
def groups(topic: str, server: str | None, data: str | None, as_json: bool) -> None:
    """Show the groups of a topic: what they have yet to read and to acknowledge. With --json one object a line."""
    with topics_at(server, data) as place:
        check_topic(place, topic)
        found = place.groups(topic)
    if as_json:
        for one in found:
            print_json(asdict(one))
    else:
        print_groups(topic, found)


@topics.command(short_help="Let a group go on at another place.")
@click.argument("topic")
@click.argument("group")
@click.option("--to", metavar="TIME", required=True, help="The first message it gets: TIME, start or end.")
@dry_run
@where
@as_json
def reset(
    topic: str,
    group: str,
    to: str,
    dry_run: bool,
    server: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Let a group go on at another place: read again what it had, or skip what it has not.

    What it was given and has not acknowledged stays with its consumers.
    """
    moment = to_moment(to)
    with topics_at(server, data) as place:
        check_topic(place, topic)
        found = place.reset(topic, group, moment, dry_run=dry_run)
    if as_json:
        print_json({**reset_facts(found), "is_done": not dry_run})
    else:
        print_reset(found, dry_run=dry_run)


@topics.command()
@click.argument("topic")
@dry_run
@yes
@where
@as_json
def delete(topic: str, dry_run: bool, yes: bool, server: str | None, data: str | None, as_json: bool) -> None:
    """Delete a topic: its messages, its groups, and what was pending."""
    with topics_at(server, data) as place:
        found = check_topic(place, topic)
        if not dry_run:
            confirm(f"Delete the topic {topic} for good, with {contents(found)}?", yes=yes)
            place.delete(topic)
    if as_json:
        print_json({"topic": topic, "messages": found.length, "groups": found.groups, "is_done": not dry_run})
    else:
        print_deleted(found, dry_run=dry_run)


@topics.command(short_help="Say why a topic is as large as it is.")
@click.argument("topic")
@click.option(
    "--retention", metavar="LIMITS", help="age:7d,bytes:10GiB and so on.  [default: what the server has; keep]"
)
@where
@as_json
def why(topic: str, retention: str | None, server: str | None, data: str | None, as_json: bool) -> None:
    """Say why a topic is as large as it is: what these limits would let go, and which group keeps it from going."""
    with topics_at(server, data) as place:
        report = place.why(topic, retention)
    if as_json:
        print_json({"topic": topic, **asdict(report)})
    else:
        print_why(topic, report)
