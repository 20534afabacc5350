"""``lamina.toml``: where it is, what it says, and everything that is wrong with it, each in one line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from lamina.config import kinds
from lamina.config.table import SECTIONS, SETTINGS
from lamina.errors import BadOption, from_os

NAME: Final = "lamina.toml"
VARIABLE: Final = "LAMINA_CONFIG"
_LARGEST: Final = 1 << 20  # bytes; settings are not more than that
_PLACE: Final = re.compile(r"^(.*) \(at line (\d+), column \d+\)$", re.DOTALL)

Wrong = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Found:
    """A file that is there."""

    path: Path
    is_in_data: bool = False
    """It was found in the data folder, and cannot name another one."""


def find(flag: str | None, environment: Mapping[str, str], data: str) -> Found | None:
    """The file to read: the one that is named, the data folder's, the current folder's; None: there is none.

    Raises: BadOption if one is named that is not there; DiskError if a folder may not be entered.
    """
    for named, by in ((flag, "--config"), (environment.get(VARIABLE), VARIABLE)):
        if named:
            if not _is_file(Path(named)):
                raise BadOption(f"{named}: there is no such file ({by})", hint="check the path of the configuration")
            return Found(Path(named))
    if _is_file(Path(data) / NAME):
        return Found(Path(data) / NAME, is_in_data=True)
    return Found(Path(NAME)) if _is_file(Path(NAME)) else None


def _is_file(path: Path) -> bool:
    """Raises: DiskError if nobody can tell."""
    try:
        return path.is_file()
    except OSError as error:
        raise from_os(error, "look for the configuration", str(path)) from error


def read(found: Found, wrong: Wrong) -> dict[str, object]:
    """The settings in the file, by key, each checked. ``wrong`` gets a line for each that cannot be.

    Raises: DiskError if it cannot be read.
    """
    try:
        with found.path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise from_os(error, "read the configuration", str(found.path)) from error
    try:
        if len(data) > _LARGEST:
            raise ValueError(f"more than {_LARGEST} bytes")
        text = data.decode()
        tree = tomllib.loads(text)
    except RecursionError:
        wrong(f"{found.path}: no TOML: brackets in brackets, too deep; write one table for each section")
        return {}
    except UnicodeDecodeError as error:
        wrong(f"{found.path}, line {data[: error.start].count(10) + 1}: no UTF-8 text; write it as TOML in UTF-8")
        return {}
    except ValueError as error:
        place = _PLACE.match(str(error))
        what, line = (place[1], int(place[2])) if place else (str(error), data.count(b"\n") + 1)
        wrong(f'{found.path}, line {line}: no TOML: {what}; write NAME = VALUE, texts in "..."')
        return {}
    return dict(_settings(found, text, tree, wrong))


def _settings(found: Found, text: str, tree: dict[str, object], wrong: Wrong) -> Iterator[tuple[str, object]]:
    for section, name, value in _flat(tree):
        key = f"{section}.{name}" if section else name
        shown = f"{found.path}{_line(text, section, name)}"
        if section and section not in SECTIONS:
            wrong(f"{shown}: [{section}] is no section{_near(section, SECTIONS)}")
        elif not name:
            pass  # an empty section
        elif key not in SETTINGS:
            of = f"[{section}] {name}" if section else name
            hint = _near_key(section, name)
            wrong(f"{shown}: {of} is no setting{hint}")
        elif key == "data" and found.is_in_data:
            wrong(f"{shown}: data cannot be set by a file inside the data folder; take it out")
        else:
            setting = SETTINGS[key]
            try:
                read = kinds.read(setting.kind, value, is_text=False)
            except BadOption as problem:
                wrong(f"{shown}: {setting.shown_key}{_said(setting.is_secret, value)} {_why(problem)}")
                continue
            if setting.kind is kinds.PATH:
                read = str(found.path.parent / str(read))
            yield key, read


def _flat(tree: dict[str, object]) -> Iterator[tuple[str, str, object]]:
    """Section, name and value of each; what is no table in a section's place is a setting at the top."""
    for name, value in tree.items():
        if isinstance(value, dict) and (name in SECTIONS or name not in SETTINGS):
            yield name, "", None
            if name in SECTIONS:
                yield from ((name, each, of) for each, of in value.items())
        else:
            yield "", name, value


def _said(is_secret: bool, value: object) -> str:
    return "" if is_secret else f" = {value!r}"


def _why(problem: BadOption) -> str:
    words = problem.message if problem.message == "cannot be" else f"cannot be: {problem.message}"
    return f"{words}; {problem.hint}" if problem.hint else words


def why(problem: BadOption) -> str:
    """What is wrong with a value, behind it."""
    return _why(problem)


def _near(word: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(word, [each for each in known if each], n=1)
    return f"; did you mean [{near[0]}]?" if near else f"; there are {', '.join(f'[{each}]' for each in known if each)}"


def _near_key(section: str, name: str) -> str:
    """The nearest of the same section, or where a setting of that name is, or all that there are."""
    names = [setting.name for setting in SETTINGS.values() if setting.section == section]
    near = get_close_matches(name, names, n=1)
    if near and near[0] != name:
        return f"; did you mean {near[0]}?"
    elsewhere = [setting.shown_key for setting in SETTINGS.values() if setting.name == name]
    if elsewhere:
        return f"; did you mean {' or '.join(elsewhere)}?"
    everywhere = {setting.name: setting.shown_key for setting in SETTINGS.values()}
    near = get_close_matches(name, everywhere, n=1)
    if near:
        return f"; did you mean {everywhere[near[0]]}?"
    return f"; there are {', '.join(names)}"


def _line(text: str, section: str, name: str) -> str:
    """Which line it is on, as far as can be told without reading TOML a second time; else nothing."""
    wanted = f"{section}.{name}".strip(".")
    here = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line):
            here = head[1].replace('"', "").replace(" ", "")
            if here == wanted:
                return f", line {number}"
        elif entry := re.match(r"\s*([\w.\"' -]+?)\s*=", line):
            key = re.sub(r"[\"' ]", "", entry[1])
            full = f"{here}.{key}".strip(".")
            if full == wanted or full.startswith(f"{wanted}."):
                return f", line {number}"
    return ""
