"""What a setting can be: how a value of ``lamina.toml`` or a text becomes one, and the words for what it should be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lamina.addresses import Address
from lamina.config.public_url import PublicUrl
from lamina.errors import BadOption
from lamina.log import sync
from lamina.units import parse_bytes, parse_duration

OFF: Final = "off"
NEVER: Final = "never"
_YES: Final = ("true", "on", "yes", "1")
_NO: Final = ("false", "off", "no", "0")


class Unfit(Exception):
    """A value that cannot be."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Of values."""

    name: str
    should: str
    """What such a value is, for who wrote something else."""
    read: Callable[[object, bool], object]
    """From a value of TOML, or (True) from a text of the environment or a flag. Raises: Unfit, BadOption."""


def text(should: str = "a text") -> Kind:
    return Kind("text", should, _text)


def choice(*words: str) -> Kind:
    def read(value: object, is_text: bool) -> object:
        if value not in words:
            raise Unfit
        return value

    return Kind("choice", " or ".join([", ".join(words[:-1]), words[-1]]), read)


def count(least: int = 0, most: int = 1 << 31) -> Kind:
    def read(value: object, is_text: bool) -> object:
        number = _whole(value, is_text)
        if not least <= number <= most:
            raise Unfit
        return number

    return Kind("count", f"a whole number, {least} to {most}", read)


def size(least: int = 0, most: int = 1 << 62) -> Kind:
    def read(value: object, is_text: bool) -> object:
        number = parse_bytes(value) if isinstance(value, str) else _whole(value, is_text)
        if not least <= number <= most:
            raise Unfit
        return number

    return Kind("size", f'bytes, as a number or such as "64MiB", {least} to {most}', read)


def seconds(*, is_whole: bool = False, may_be_never: bool = False) -> Kind:
    def read(value: object, is_text: bool) -> object:
        if may_be_never and value == NEVER:
            return None
        number = parse_duration(value) if isinstance(value, str) else _number(value)
        if number < 0 or (is_whole and number != int(number)):
            raise Unfit
        return int(number) if number == int(number) else number

    should = 'seconds, as a number or such as "10s", "5m", "2h", "1d"'
    return Kind("seconds", should + (f', or "{NEVER}"' if may_be_never else ""), read)


def percent() -> Kind:
    def read(value: object, is_text: bool) -> object:
        number = _any_number(value, is_text)
        if not isinstance(number, int | float) or not 0 <= number <= 100:
            raise Unfit
        return number

    return Kind("percent", "a number, 0 to 100", read)


def _any_number(value: object, is_text: bool) -> object:
    if is_text:
        try:
            value = float(str(value))
        except ValueError:
            raise Unfit from None
    number = _number(value)
    return int(number) if number == int(number) else number


def _whole(value: object, is_text: bool) -> int:
    if is_text:
        words = str(value)
        if not (words.isascii() and words.isdigit() and len(words) < 20):
            raise Unfit
        return int(words)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Unfit
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise Unfit
    return value


def _text(value: object, is_text: bool) -> object:
    if not isinstance(value, str) or not value or "\0" in value:
        raise Unfit
    return value


def _flag(value: object, is_text: bool) -> object:
    if is_text and isinstance(value, str) and value.lower() in (*_YES, *_NO):
        return value.lower() in _YES
    if not isinstance(value, bool):
        raise Unfit
    return value


def _sync(value: object, is_text: bool) -> object:
    found = _text(value, is_text)
    sync.parse(str(found))
    return found


def _listen(value: object, is_text: bool) -> object:
    found = str(_text(value, is_text))
    if found != OFF:
        Address.parse_listen(found)
    return found


def _public_url(value: object, is_text: bool) -> object:
    """Empty: none."""
    if value == "":
        return None
    return PublicUrl.parse(str(_text(value, is_text))).origin


def _path(value: object, is_text: bool) -> object:
    return _text(value, is_text)


def _retain(value: object, is_text: bool) -> object:
    """PATTERN = LIMITS, each checked; of a text, several with ``;`` between them."""
    from lamina.engines.topics.retention import Retentions

    rules: dict[str, str] = {}
    if is_text:
        for rule in filter(None, (each.strip() for each in str(value).split(";"))):
            pattern, _, limits = rule.partition("=")
            rules[pattern] = limits
    elif isinstance(value, dict) and all(isinstance(limits, str) for limits in value.values()):
        rules = dict(value)
    else:
        raise Unfit
    Retentions.parse(f"{pattern}={limits}" for pattern, limits in rules.items())
    return rules


NUMBER: Final = Kind("number", "a number", _any_number)
FLAG: Final = Kind("flag", "true or false", _flag)
SYNC: Final = Kind("sync", '"always", "os", "interval" or "interval:500" (milliseconds)', _sync)
LISTEN: Final = Kind("listen", '"HOST:PORT", "unix:/path" or "off"', _listen)
PUBLIC_URL: Final = Kind("url", 'a URL without a path, such as "https://lamina.example.org"', _public_url)
PATH: Final = Kind("path", "a path", _path)
RETAIN: Final = Kind("retain", 'a table of PATTERN = "LIMITS", such as "logs.*" = "age:7d,bytes:10GiB"', _retain)


def read(kind: Kind, value: object, *, is_text: bool) -> object:
    """The value. Raises: BadOption whose message is what is wrong, and whose hint is what it should be."""
    try:
        return kind.read(value, is_text)
    except Unfit:
        raise BadOption("cannot be", hint=f"give {kind.should}") from None
