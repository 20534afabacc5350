"""docs/reference/http.md has every path, operation, page and error of the HTTP door, and none that is not there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import lamina
from lamina import runs
from lamina.runs import Run
from lamina.server.http import describe, openapi
from lamina.server.http.app import OPEN_TO_ALL
from lamina.server.http.console.page import Menu
from lamina.server.http.console.pages import all_pages
from lamina.server.http.operations import USUAL
from lamina.server.http.ops import all_operations

DOCS = Path(__file__).resolve().parents[2] / "docs"
HTTP = (DOCS / "reference" / "http.md").read_text(encoding="utf-8")
CONSOLE = (DOCS / "how-to" / "use-the-console.md").read_text(encoding="utf-8")
SCRIPT = Path(describe.__file__).parent / "console" / "static" / "console.js"
ANEW = "run: python -m lamina.server.http.describe docs/reference/http.md"


def test_every_operation_and_page_is_described_as_it_is() -> None:
    assert describe.rewritten(HTTP) == HTTP, ANEW


def test_the_tables_have_all_operations_and_pages_and_no_other() -> None:
    operations = HTTP.split("## Operations")[1].split("## Pages")[0]
    assert set(re.findall(r"^\| `(\w+\.\w+)` \|", operations, re.MULTILINE)) == all_operations().keys(), ANEW
    pages = HTTP.split("## Pages")[1]
    assert set(re.findall(r"^\| `(/\S*)` \|", pages, re.MULTILINE)) == {page.path for page in all_pages()}, ANEW


def test_a_document_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="missing"):
        describe.rewritten("# nothing")


def test_every_error_of_http_is_in_the_table_with_its_status() -> None:
    part = HTTP.split("## Errors")[1].split("\n## ")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| ?(\d*) ?\|", part, re.MULTILINE))
    assert {code: int(status) for code, status in shown.items() if status} == {**openapi._OF_HTTP, "too_many": 503}
    assert set(USUAL) - openapi._OF_HTTP.keys() <= set(re.findall(r"`(\w+)`", part.split("Every operation")[1]))


def test_what_is_open_to_all_says_so() -> None:
    rows = dict(re.findall(r"^\| (`/.*?) \| .* \| (.+) \|$", HTTP.split("## Paths")[1].split("\n## ")[0], re.MULTILINE))
    free = {path for paths, who in rows.items() if who == "everybody" for path in re.findall(r"`(/[^`]*)`", paths)}
    assert free == OPEN_TO_ALL | {"/static/..."}


def test_every_page_of_the_menu_is_explained_with_its_key() -> None:
    keys = dict(re.findall(r'(\w): "(/\w*)"', SCRIPT.read_text(encoding="utf-8").split("places = {")[1].split("}")[0]))
    rows = re.findall(r"^\| (\w+) \| `g` `(\w)` \|", CONSOLE, re.MULTILINE)
    shown = {title: keys[key] for title, key in rows}
    assert shown == {title: path for _, path, title, _ in Menu.ENTRIES}
    assert len(shown) == len(keys)


def test_the_python_of_the_console_page_leaves_a_record(tmp_path: Path) -> None:
    with lamina.open(str(tmp_path / "data")) as lm:
        lm.jobs.add("mail", b"hello")
    (script,) = re.findall(r"```python\n(.*?)```", CONSOLE, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (record,) = (tmp_path / "data" / "pipeline" / "runs").iterdir()
    assert '"state":"done"' in record.read_text() and '"rows":1' in record.read_text()


def test_the_format_of_a_record_of_a_run_is_as_described() -> None:
    page = (DOCS / "formats" / "runs.md").read_text(encoding="utf-8")
    names = [name for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE) for name in row.split(", ")]
    assert [name.strip("`") for name in names] == sorted(names_of(Run), key=[n.strip("`") for n in names].index)
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    run = msgspec.json.decode(example, type=Run)
    assert runs.is_id(run.id) and msgspec.json.decode(example).keys() == set(names_of(Run))
    for limit in (runs.MOST_KEPT, runs.MOST_PAGES, f"{runs.SIGN_OF_LIFE_S:.0f}"):
        assert re.search(rf"\b{limit}\b", page)


def names_of(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return kind.__struct_fields__
