"""Settings as text: values as TOML has them, and a ``lamina.toml`` of all defaults with what each means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from textwrap import wrap

from lamina.config.loading import RETAIN, Config
from lamina.config.table import SECTIONS, SETTINGS, Setting

_WIDTH = 110
_NOT_SET = {
    "server.tls_cert": "server.pem",
    "server.tls_key": "server.key",
    "server.tls_client_ca": "clients.pem",
    "http.public_url": "https://lamina.example.org",
}
_HEAD = """\
# Settings of "lamina serve". All are optional; what stands here behind # is the default.
# Flags win over the environment (LAMINA_<SECTION>_<NAME>), which wins over this file.
# "lamina config check" says what is wrong with it, "lamina config show" what holds.
"""


def toml_value(value: object) -> str:
    """``"always"``, ``128``, ``true``; nothing for none."""
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {toml_value(of)}" for name, of in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def shown_value(config: Config, setting: Setting) -> str:
    """For people; never a secret."""
    value = config.values[setting.key]
    if setting.is_secret:
        return "not set" if value is None else "set"
    return toml_value(value) or "not set"


def as_dict(config: Config) -> dict[str, object]:
    """For programs; never a secret."""
    shown = []
    for key, setting in SETTINGS.items():
        value = config.values[key]
        row: dict[str, object] = {"key": key, "origin": config.origins[key], "reload": setting.is_live}
        row |= {"is_set": value is not None} if setting.is_secret else {"value": value}
        shown.append(row)
    return {"file": config.file, "settings": shown, "problems": config.problems, "warnings": config.warnings}


def page_rows() -> list[str]:
    """The rows of the table in docs/reference/options.md: a test compares."""
    return [
        f"| `{setting.shown_key}` | `{setting.variable}` | `{setting.flag}` | {_page_default(setting)} "
        f"| {'yes' if setting.is_live else 'no'} | {setting.meaning} |"
        for setting in SETTINGS.values()
    ]


def _page_default(setting: Setting) -> str:
    return f"`{toml_value(setting.default)}`" if toml_value(setting.default) else "none"


def example() -> str:
    """A ``lamina.toml`` that changes nothing: every setting with its default, behind ``#``."""
    return "\n".join([_HEAD, *_lines()]) + "\n"


def _lines() -> Iterator[str]:
    for section in SECTIONS:
        if section:
            yield f"\n[{section}]"
        for setting in SETTINGS.values():
            if setting.section != section or setting.key == RETAIN:
                continue
            live = " (A reload can change it.)" if setting.is_live else ""
            yield from (f"# {line}" for line in wrap(setting.meaning + live, _WIDTH))
            yield f"# {setting.name} = {_example_value(setting)}"
    retain = SETTINGS[RETAIN]
    yield "\n[topics.retain]"
    yield from (f"# {line}" for line in wrap(retain.meaning + " (A reload can change it.)", _WIDTH))
    yield '# "logs.*" = "age:7d,bytes:10GiB"'


def _example_value(setting: Setting) -> str:
    if setting.default is not None:
        return toml_value(setting.default)
    if setting.kind.name == "seconds":
        return toml_value("never")
    return toml_value(_NOT_SET.get(setting.key, "..."))
