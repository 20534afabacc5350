"""``lamina user``: who may use a server, and for what. Works on the data folder, also while a server has it open."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from lamina.cli.asking import confirm, dry_run, yes
from lamina.cli.render import as_json, err, out, print_json, print_table
from lamina.errors import BadOption

if TYPE_CHECKING:
    from lamina.server.security.users import User

_SIGHUP: Final = "a server that runs sees it when it gets SIGHUP (kill -HUP PID, systemctl reload)"
_NEVER: Final = "never"

_of_data: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--data",
    metavar="DIR",
    type=click.Path(file_okay=False),
    callback=lambda context, option, data: data or _data_of_settings(),
    help="The data folder.  [default: that of the settings]",
)
_expires: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--expires", metavar="WHEN", help="30d, 12h or 2027-01-01: from then on nobody gets in with it; or never."
)


@click.group()
def user() -> None:
    """Who may use a server, and for what (docs/reference/security.md).

    As soon as there is a user, whoever connects has to log in. A token is shown once, when it is made: only its SHA-256
    is kept, in users.json in the data folder.
    """


@user.command()
@click.argument("name")
@click.option(
    "--allow",
    "rights",
    multiple=True,
    required=True,
    metavar="ENGINE:RIGHT[:PATTERN]",
    help="jobs:write:mail.*, topics:read, *:admin … Several times: each adds to what the user may do.",
)
@_expires
@_of_data
@as_json
def add(name: str, rights: tuple[str, ...], expires: str | None, data: str, as_json: bool) -> None:
    """Make a user, and print its token on standard output.

    ENGINE: jobs, topics, queues, store, admin (the server itself), or * for all. RIGHT: read, write or admin, each with
    those before it. PATTERN: names of queues of jobs, topics, or numbers of storages, as orders.*; without it all.
    """
    from lamina.server.security import tokens
    from lamina.server.security.rights import Right
    from lamina.server.security.users import User, changing, check_name

    token = tokens.make()
    now = time.time_ns()
    made = User(
        name=check_name(name),
        rights=tuple(Right.parse(right) for right in rights),
        digest=tokens.digest(token),
        created_ns=now,
        expires_ns=_moment(expires, now),
    )
    with changing(data) as users:
        if name in users:
            raise BadOption(
                f"there is a user {name} already",
                hint="lamina user rotate gives it a new token; lamina user remove takes it away",
                option="name",
            )
        users[name] = made
    _show_token(made, token, as_json=as_json)


@user.command("list")
@_of_data
@as_json
def list_users(data: str, as_json: bool) -> None:
    """Who there is, and what each may do. No token: they are not kept."""
    from lamina.server.security.users import load
    from lamina.units import show_time

    found = load(data)
    users = list((found or {}).values())
    if as_json:
        print_json({"is_login_needed": found is not None, "users": [_facts(each) for each in users]})
        return
    if found is None:
        out.print("no users: whoever connects may do everything, unless the server has a password", markup=False)
        return
    if not users:
        out.print("no users, but users.json is there: nobody can log in", markup=False)
        return
    now = time.time_ns()
    rows = []
    for each in users:
        ends = _NEVER if each.expires_ns is None else show_time(each.expires_ns)[:19] + "Z"
        is_over = " (over)" if each.is_expired(now) else ""
        rows.append((each.name, " ".join(map(str, each.rights)), show_time(each.created_ns)[:19] + "Z", ends + is_over))
    print_table(("user", "may", "made", "expires"), rows)


@user.command()
@click.argument("name")
@dry_run
@yes
@_of_data
@as_json
def remove(name: str, dry_run: bool, yes: bool, data: str, as_json: bool) -> None:
    """Take a user away. Without the last one nobody can log in: the server does not become open to all."""
    from lamina.server.security.users import changing, load

    is_done = not dry_run
    users = load(data) or {}
    rights = ", ".join(map(str, _known(users, name).rights))
    if is_done:
        confirm(f"Remove the user {name}, who may {rights}?", yes=yes)
        with changing(data) as users:
            gone = _known(users, name)
            del users[name]
    else:
        gone = users.pop(name)
    if as_json:
        print_json({**_facts(gone), "is_done": is_done, "users_left": len(users)})
        return
    if not is_done:
        out.print(f"would remove {name}; nothing was changed: leave out --dry-run to do it", markup=False)
        return
    out.print(f"removed {name}", markup=False)
    if not users:
        err.print("  that was the last one: nobody can log in now. Without users.json anybody could", markup=False)
    err.print(f"  {_SIGHUP}", markup=False)


@user.command(short_help="Give a user a new token.")
@click.argument("name")
@_expires
@_of_data
@as_json
def rotate(name: str, expires: str | None, data: str, as_json: bool) -> None:
    """Give a user a new token, and print it; the old one is good for nothing any more. Its rights stay."""
    from dataclasses import replace

    from lamina.server.security import tokens
    from lamina.server.security.users import changing

    token = tokens.make()
    with changing(data) as users:
        made = _known(users, name)
        until = made.expires_ns if expires is None else _moment(expires, time.time_ns())
        made = users[name] = replace(made, digest=tokens.digest(token), expires_ns=until)
    _show_token(made, token, as_json=as_json)


def _data_of_settings() -> str:
    """Where a server started here would look for its users: those of another folder let nobody in, and keep nobody out.

    Raises: BadOption, DiskError.
    """
    from lamina.config import load

    return load().raise_problem().text("data")


def _known(users: dict[str, User], name: str) -> User:
    found = users.get(name)
    if found is None:
        known = ", ".join(sorted(users)[:10]) or "nobody"
        raise BadOption(f"there is no user {name}", hint=f"lamina user list shows who there is: {known}", option="name")
    return found


def _show_token(user: User, token: str, *, as_json: bool) -> None:
    """The only time that anybody sees it."""
    if as_json:
        print_json({**_facts(user), "token": token})
        return
    click.echo(token)
    err.print(f"  the token of {user.name}, shown this once: keep it where only its owner can read it", markup=False)
    err.print(f"  {_SIGHUP}", markup=False)


def _facts(user: User) -> dict[str, object]:
    from lamina.units import show_time

    return {
        "name": user.name,
        "allow": [str(right) for right in user.rights],
        "created": show_time(user.created_ns),
        "expires": None if user.expires_ns is None else show_time(user.expires_ns),
    }


def _moment(text: str | None, now_ns: int) -> int | None:
    """``30d`` from now on, or a time; None: never. Raises: BadOption."""
    from lamina.units import parse_duration, parse_time

    if text is None or text == _NEVER:
        return None
    try:
        moment = now_ns + round(parse_duration(text) * 1e9) if text[-1:].isalpha() and text[-1:] != "Z" else None
        moment = parse_time(text) if moment is None else moment
    except BadOption:
        raise BadOption(
            f"--expires {text[:60]}: that is no time", hint="write 30d, 12h, 2027-01-01 or never", option="expires"
        ) from None
    if moment <= now_ns:
        raise BadOption(
            f"--expires {text[:60]} is over already", hint="write 30d, 2027-01-01 or never", option="expires"
        )
    return moment
