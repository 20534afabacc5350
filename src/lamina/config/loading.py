"""What holds: defaults, then the file, then the environment, then flags, and where each value is from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

from lamina.addresses import Address
from lamina.config import fields, kinds, reading
from lamina.config.table import SECTIONS, SETTINGS, Setting
from lamina.engines.queues.options import QueueOptions
from lamina.engines.store.options import StoreOptions
from lamina.errors import BadOption
from lamina.log.options import LogOptions

DEFAULT: Final = "default"
RETAIN: Final = "topics.retain"


@dataclass(frozen=True, slots=True)
class Given:
    """What a flag says."""

    key: str
    value: object
    """A text, or a value that the flag has read already."""
    flag: str


@dataclass(frozen=True, slots=True)
class Change:
    """Of a setting, from one configuration to another."""

    setting: Setting
    before: object
    after: object

    def __str__(self) -> str:
        if self.setting.is_secret:
            return self.setting.shown_key
        return f"{self.setting.shown_key} {self.before!r} -> {self.after!r}"


@dataclass(slots=True)
class Config:
    """Every setting has a value here, and an origin."""

    file: str | None = None
    """Which was read; None: there was none."""
    values: dict[str, object] = field(default_factory=lambda: {key: one.default for key, one in SETTINGS.items()})
    origins: dict[str, str] = field(default_factory=lambda: dict.fromkeys(SETTINGS, DEFAULT))
    problems: list[str] = field(default_factory=list)
    """Everything that is wrong, one line each; empty: it can be used."""
    warnings: list[str] = field(default_factory=list)

    # -- reading it ------------------------------------------------------------------------------------------------

    def text(self, key: str) -> str:
        """Of a setting that has a value."""
        return str(self.values[key])

    def maybe(self, key: str) -> str | None:
        """None: there is no value."""
        value = self.values[key]
        return None if value is None else str(value)

    def number(self, key: str) -> int:
        value = self.values[key]
        assert isinstance(value, int)
        return value

    def decimal(self, key: str) -> float:
        value = self.values[key]
        assert isinstance(value, int | float)
        return value

    def is_on(self, key: str) -> bool:
        return bool(self.values[key])

    def address(self, door: str) -> Address | None:
        """Where it listens; None: it is off."""
        said = self.text(f"{door}.listen")
        return None if said == kinds.OFF else Address.parse_listen(said)

    def log_options(self, section: str) -> LogOptions:
        made: LogOptions = fields.make(LogOptions, self._of(section, LogOptions))
        return made

    def queue_options(self) -> QueueOptions | None:
        """None: there are no queues. Raises: BadOption where two do not fit together."""
        if self.values["queues.store"] == kinds.OFF:
            return None
        made: QueueOptions = fields.make(QueueOptions, self._of("queues", QueueOptions))
        return made

    def store_options(self) -> StoreOptions | None:
        """None: there is no store. Raises: BadOption for what a server cannot do."""
        if not self.is_on("store.enabled"):
            return None
        made: StoreOptions = fields.make(StoreOptions, self._of("store", StoreOptions))
        if not made.epoch_ms:
            raise BadOption(
                "epoch_ms = 0: no client could end an epoch, and no write would become durable",
                hint="give at least 1",
                option="epoch_ms",
            )
        return made

    def retain(self) -> tuple[str, ...]:
        """``PATTERN=LIMITS``, the first that fits counts."""
        rules = self.values[RETAIN]
        return tuple(f"{pattern}={limits}" for pattern, limits in rules.items()) if isinstance(rules, dict) else ()

    def _of(self, section: str, options: fields.Options) -> dict[str, object]:
        keys = {name: f"{section}.{name}" for name in fields.names(options)}
        return {name: self.values[key] for name, key in keys.items() if key in SETTINGS}

    def changes(self, other: Config) -> list[Change]:
        """What is different in ``other``."""
        return [
            Change(setting, self.values[key], other.values[key])
            for key, setting in SETTINGS.items()
            if self.values[key] != other.values[key] or _order(self.values[key]) != _order(other.values[key])
        ]

    # -- filling it ------------------------------------------------------------------------------------------------

    def put(self, key: str, value: object, origin: str) -> None:
        """A value of a place that wins over those before. Of retention, rule by rule: it goes before the others."""
        if key == RETAIN and isinstance(value, dict):
            former = self.values[RETAIN]
            kept = former if isinstance(former, dict) else {}
            rest = {pattern: limits for pattern, limits in kept.items() if pattern not in value}
            origin = f"{origin}, {self.origins[key]}" if rest else origin
            value = {**value, **rest}
        self.values[key], self.origins[key] = value, origin

    def raise_problem(self) -> Config:
        """Itself. Raises: BadOption if anything is wrong."""
        if self.problems:
            first, *more = self.problems
            rest = f"{len(more)} more: " if more else ""
            hint = f'{rest}run "lamina config check" to see {"them all" if more else "what holds"}'
            raise BadOption(first, hint=hint)
        return self


def load(
    config: str | None = None,
    *,
    flags: Sequence[Given] = (),
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Put together what holds. What is wrong is in ``problems``; a value that cannot be is left out.

    Raises: BadOption if the file that is named is not there; DiskError if it cannot be read.
    """
    around = os.environ if environment is None else environment
    made = Config()
    # Where the file is can depend on where the data is, as flags and environment say it.
    data = next((str(given.value) for given in flags if given.key == "data"), around.get("LAMINA_DATA"))
    found = reading.find(config, around, data or str(SETTINGS["data"].default))
    if found is not None:
        made.file = str(found.path)
        for key, value in reading.read(found, made.problems.append).items():
            made.put(key, value, made.file)
    _take_environment(made, around)
    _take_flags(made, flags)
    _check_together(made)
    return made


def _take_environment(made: Config, around: Mapping[str, str]) -> None:
    for setting in SETTINGS.values():
        said = around.get(setting.variable)
        if not said:  # an empty one is as good as none: that is how one is switched off in a unit or a container
            continue
        _take(made, setting, said, setting.variable, f"environment {setting.variable}")
    known = {setting.variable for setting in SETTINGS.values()}
    prefixes = tuple(f"LAMINA_{section.upper()}_" for section in SECTIONS if section)
    for name in sorted(around):
        if name.startswith(prefixes) and name not in known:
            # Not refused: machines that start containers put names of their own there (LAMINA_RESP_PORT, ...).
            near = get_close_matches(name, known, n=1)
            made.warnings.append(f"{name} is no setting" + (f"; did you mean {near[0]}?" if near else ""))


def _take_flags(made: Config, flags: Iterable[Given]) -> None:
    rules: dict[str, str] = {}
    for given in flags:
        if given.key == RETAIN:
            pattern, _, limits = str(given.value).partition("=")
            rules.setdefault(pattern, limits)
            _take(made, SETTINGS[RETAIN], {pattern: limits}, f"{given.flag} {given.value}", "", keep=False)
        elif given.key in SETTINGS:
            setting = SETTINGS[given.key]
            shown = given.flag if setting.is_secret else f"{given.flag} {given.value}"
            if "=" in setting.flag:
                shown = f"{given.flag} {setting.name}={given.value}"
            _take(made, setting, given.value, shown, f"flag {given.flag}")
        else:
            section, _, name = given.key.rpartition(".")
            names = [one.name for one in SETTINGS.values() if one.section == section and "=" in one.flag]
            near = get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(names)}"
            of = "the store" if section == "store" else section
            made.problems.append(f"{given.flag} {name}={given.value}: no setting of {of} has that name; {hint}")
    if rules and not made.problems:
        made.put(RETAIN, rules, "flag --retain")


def _take(made: Config, setting: Setting, said: object, shown: str, origin: str, *, keep: bool = True) -> None:
    try:
        value = kinds.read(setting.kind, said, is_text=isinstance(said, str))
    except BadOption as problem:
        made.problems.append(f"{shown}: {reading.why(problem)}")
        return
    if keep:
        made.put(setting.key, value, origin)


def _check_together(made: Config) -> None:
    """Values that are right by themselves and do not fit together."""
    for section, make in (("queues", made.queue_options), ("store", made.store_options)):
        try:
            make()
        except BadOption as problem:
            name = str(problem.facts.get("option", ""))
            origin = made.origins.get(f"{section}.{name}", DEFAULT)
            made.problems.append(f"{origin}: [{section}] {problem.message}; {problem.hint}")
    for one, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert"), ("tls_client_ca", "tls_cert")):
        if made.maybe(f"server.{one}") and not made.maybe(f"server.{other}"):
            origin = made.origins[f"server.{one}"]
            made.problems.append(f"{origin}: [server] {one} is set and {other} is not; set both")
    if all(made.address(door) is None for door in ("workq", "resp")):
        made.problems.append("there is no door to open; leave --workq or --resp on")
    data = made.text("data")
    if os.path.exists(data) and not os.path.isdir(data):  # where nobody may look, who opens it says so
        made.problems.append(f"{data} is a file; the data folder has to be a folder ({made.origins['data']})")


def _order(value: object) -> object:
    """Of retention, the order counts, too."""
    return list(value) if isinstance(value, dict) else None
