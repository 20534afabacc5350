"""What docs/reference/http.md says of each operation and page, made from them: a test compares.

``python -m lamina.server.http.describe docs/reference/http.md`` writes it there anew, between the marks.
"""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from lamina.server.http.console.page import Page
from lamina.server.http.console.pages import all_pages
from lamina.server.http.operations import AnyOperation
from lamina.server.http.ops import all_operations

_MARKS: Final = {name: (f"<!-- {name} -->\n", f"<!-- end of {name} -->\n") for name in ("operations", "pages")}
_KINDS: Final = {"string": "text", "integer": "number", "number": "number", "boolean": "true or false"}
_WIDEST: Final = (1 << 63) - 1


def operations() -> str:
    """A table for each part of a server."""
    found = sorted(all_operations().values(), key=lambda one: one.name.partition(".")[0])
    parts = []
    for part, group in groupby(found, key=lambda one: one.name.partition(".")[0]):
        rows = "".join(map(_operation, sorted(group, key=lambda one: one.name)))
        head = "| operation | request | needs | what | fields | more errors |\n|---|---|---|---|---|---|\n"
        parts.append(f"### {part}\n\n{head}{rows}")
    return "\n".join(parts)


def pages() -> str:
    """One table, in the order of the paths."""
    rows = "".join(map(_page, sorted(all_pages(), key=lambda page: page.path)))
    return f"| page | part of | needs | in the query |\n|---|---|---|---|\n{rows}"


def rewritten(text: str) -> str:
    """A document with both between their marks. Raises: ValueError if a mark is missing."""
    for name, made in (("operations", operations()), ("pages", pages())):
        begin, end = _MARKS[name]
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise ValueError(f"{begin.strip()} or {end.strip()} is missing")
        text = before + begin + made + end + after
    return text


def _operation(one: AnyOperation) -> str:
    cells = [
        f"`{one.name}`",
        f"{one.method} `{re.sub(r':path}', '}', one.path)}`",
        f"`{':'.join(one.right)}`",
        one.summary,
        ", ".join(_fields(one.asks)),
        ", ".join(f"`{code}`" for code in one.errors),
    ]
    return _row(cells)


def _page(page: Page) -> str:
    return _row([f"`{page.path}`", page.section, f"`{':'.join(page.right)}`", ", ".join(_fields(page.asks))])


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") or " " for cell in cells) + " |\n"


def _fields(asks: type[msgspec.Struct]) -> list[str]:
    """Each in a few words, those that are needed in bold; ``dry_run`` is the same for all, and told above."""
    (schema,), components = msgspec.json.schema_components([asks])
    shown: dict[str, Any] = components[schema["$ref"].rpartition("/")[2]]
    needed = set(shown.get("required", ()))
    return [
        (f"**`{name}`** {_kind(field)}" if name in needed else f"`{name}` {_kind(field)}{_default(field)}")
        for name, field in shown.get("properties", {}).items()
        if name != "dry_run"
    ]


def _kind(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        field = next((each for each in field["anyOf"] if each.get("type") != "null"), {})
    if "enum" in field:
        return " or ".join(str(each) for each in field["enum"] if each != "")
    kind = field.get("type", "")
    if kind == "array":
        return f"list of {_kind(field.get('items', {}))}"
    low, high = field.get("minimum"), field.get("maximum")
    if low is not None and high is not None and high < _WIDEST:
        return f"{low} to {high}"
    return _KINDS.get(kind, str(kind) or "anything") + (f" from {low}" if low else "")


def _default(field: dict[str, Any]) -> str:
    default = field.get("default")
    return "" if default in (None, "", False, [], {}) else f" ({'true' if default is True else default})"


if __name__ == "__main__":
    for place in sys.argv[1:]:
        path = Path(place)
        path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
    if not sys.argv[1:]:
        sys.stdout.write(operations() + "\n" + pages())
