"""Operations on the server itself: its settings and users, how its last start went, and who changed what."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from lamina.config.loading import Config
from lamina.config.showing import as_dict
from lamina.config.table import SETTINGS as TABLE
from lamina.errors import NotThere
from lamina.server.http.operations import AnyOperation, Asks, Gives, Operation, Place
from lamina.server.http.ops.server_audit import AUDIT as AUDIT
from lamina.server.http.ops.server_audit import AuditAsks as AuditAsks
from lamina.server.http.ops.server_audit import together as together
from lamina.server.http.ops.server_recovery import RECOVERY as RECOVERY
from lamina.server.security.gate import Gate
from lamina.server.security.users import User

_DEFAULT: Final = "default"


class SettingsAsks(Asks, frozen=True, kw_only=True):
    """Which settings."""

    find: Annotated[str, msgspec.Meta(max_length=200)] = ""
    """Only those whose key, meaning or origin has this in it; capital letters or not."""
    changed: bool = False
    """Only those that are not at their default."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting."""

    key: str
    origin: str
    """Where its value comes from: a file, the environment, a flag, or the default."""
    reload: bool
    """It can be changed while the server runs; the others need a new start."""
    value: Any = None
    """Never of a secret one."""
    is_set: bool | None = None
    """Of a secret one: whether there is a value."""
    meaning: str = ""
    variable: str = ""
    """The name that it has in the environment."""


class Settings(Gives, frozen=True, kw_only=True):
    """Those that hold."""

    file: str | None
    settings: list[Setting]
    warnings: list[str]


async def _settings(place: Place, asked: SettingsAsks) -> Settings:
    place.check("admin", "read")
    if place.inside.config is None:
        raise NotThere("this server was not started with settings", hint="start it with lamina serve")
    return await place.in_thread(_chosen, place.inside.config(), asked)


def _chosen(config: Config, asked: SettingsAsks) -> Settings:
    found: dict[str, Any] = as_dict(config)
    rows = []
    for row in found["settings"]:
        known = TABLE[row["key"]]
        one = msgspec.convert({**row, "meaning": known.meaning, "variable": known.variable}, Setting)
        if _is_meant(one, asked):
            rows.append(one)
    return Settings(file=found["file"], settings=rows, warnings=found["warnings"])


def _is_meant(one: Setting, asked: SettingsAsks) -> bool:
    if asked.changed and one.origin == _DEFAULT:
        return False
    sought = asked.find.strip().lower()
    return not sought or any(sought in text.lower() for text in (one.key, one.meaning, one.origin, one.variable))


class KnownUser(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who may come in. Nothing of the token is shown."""

    name: str
    rights: list[str]
    created_ns: int | None = None
    expires_ns: int | None = None
    """None: never."""
    is_expired: bool = False


class Users(Gives, frozen=True, kw_only=True):
    """All of them."""

    is_login_needed: bool
    """Whoever comes has to log in; else everybody who reaches the server may do everything."""
    has_password: bool
    """One password lets anybody in, for everything."""
    users: list[KnownUser]


async def _users(place: Place, asked: Asks) -> Users:
    place.check("admin", "read")
    return await place.in_thread(_known, place.inside.gate)


def _known(gate: Gate) -> Users:
    now = gate.now_ns()
    found = [user for name in gate.names if (user := gate.user(name)) is not None and user.name != "default"]
    return Users(
        is_login_needed=gate.is_needed,
        has_password=gate.has_password,
        users=[_shown(user, now) for user in found],
    )


def _shown(user: User, now_ns: int) -> KnownUser:
    return KnownUser(
        name=user.name,
        rights=[str(right) for right in user.rights],
        created_ns=user.created_ns or None,
        expires_ns=user.expires_ns,
        is_expired=user.is_expired(now_ns),
    )


SETTINGS: Final = Operation(
    name="server.settings",
    method="GET",
    path="/settings",
    summary="The settings that hold, and where each comes from",
    right=("admin", "read"),
    asks=SettingsAsks,
    gives=Settings,
    do=_settings,
)
USERS: Final = Operation(
    name="server.users",
    method="GET",
    path="/users",
    summary="Who may come in, and what each may do",
    right=("admin", "read"),
    asks=Asks,
    gives=Users,
    do=_users,
)
OPERATIONS: Final[tuple[AnyOperation, ...]] = (RECOVERY, SETTINGS, USERS, AUDIT)
