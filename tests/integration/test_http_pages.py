"""Pages of the console: reached by links, well made, under the strictest policy, with payloads as text, and calm about
whatever they are asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from browser.ways import WAYS
from http_lab import HttpLab
from integration.console_samples import address_of, changing
from integration.console_server import MARKUP, Filled, fill, record_runs
from integration.crawling import Reader, Walk, walk
from lamina.server.http.console import page as console_page
from lamina.server.http.console.pages import all_pages
from lamina.server.http.ops import all_operations

CONSOLE = Path(console_page.__file__).parent
POLICY = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
}
MOST_OF_A_PAGE = 2 << 20
WHILE_RUNNING = ("logs.stop", "store.cancel")
"""Offered only while there is something to stop."""
CHANGING = [operation.name for operation in changing()]


@pytest.fixture(scope="module")
def filled_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpLab, Filled]]:
    with HttpLab(tmp_path_factory.mktemp("lab")) as lab:
        with lab.remote() as lm:
            filled = fill(lm)
        record_runs(lab.folder)
        yield lab, filled


@pytest.fixture(scope="module")
def walked(filled_lab: tuple[HttpLab, Filled]) -> Walk:
    lab, _ = filled_lab

    def look(at: str) -> tuple[int, str, str]:
        status, html, headers = lab.page(at)
        assert status < 500, f"{at}: {html}"
        assert set(headers["content-security-policy"].split("; ")) == POLICY, at
        assert len(html) < MOST_OF_A_PAGE, at
        return status, headers.get("content-type", ""), html

    return walk(look)


# -- pages ---------------------------------------------------------------------------------------------------------


def test_no_template_has_a_script_or_a_style_of_its_own() -> None:
    templates = sorted((CONSOLE / "templates").rglob("*.html"))
    assert len(templates) > 5
    for template in templates:
        text = template.read_text()
        assert not re.search(r"\|\s*safe\b|autoescape|Markup\(", text), f"{template.name}: a value is not escaped"
        plain = re.sub(r"{#.*?#}|{%.*?%}", "", text, flags=re.DOTALL)
        plain = re.sub(r"{{.*?}}", "x", plain, flags=re.DOTALL)
        assert Reader(plain).problems() == [], template.name


def test_no_script_makes_code_of_text_or_knows_another_host() -> None:
    for script in (CONSOLE / "static").iterdir():
        if script.suffix in (".js", ".css"):
            text = re.sub(r"http://www\.w3\.org/\S*", "", script.read_text())
            assert not re.search(r"\beval\(|new Function|document\.write|https?://|@import|//cdn", text), script.name


def test_every_page_is_reached_by_links_and_none_is_broken(walked: Walk) -> None:
    assert walked.broken == []
    assert {page.path for page in all_pages()} - walked.kinds.keys() == set(), "no link leads there"


def test_pages_are_well_made_and_have_no_inline_script(walked: Walk) -> None:
    for at, reader in walked.pages.items():
        assert reader.problems() == [], at
        assert reader.wrong == [], at
        ids = [each.attributes["id"] for each in reader.elements if "id" in each.attributes]
        assert len(ids) == len(set(ids)), f"{at}: an id is there twice"
        assert [each.tag for each in reader.elements].count("h1") == 1, f"{at}: one headline"


def test_a_payload_of_markup_is_text(walked: Walk) -> None:
    shown = [at for at, reader in walked.pages.items() if MARKUP in reader.text]
    assert {at.split("/")[1].split("?")[0] for at in shown} >= {"jobs", "topics", "queues", "store"}
    for reader in walked.pages.values():
        assert all(each.attributes.get("src") != "/nothing" for each in reader.elements)


def test_no_page_shows_the_id_of_a_queue(walked: Walk, filled_lab: tuple[HttpLab, Filled]) -> None:
    lab, filled = filled_lab
    for at, reader in walked.pages.items():
        assert not any(id in reader.text or id in str(reader.elements) for id in filled.secrets), at
    for operation in all_operations().values():
        if not operation.changes and "{" not in operation.path:
            answer = lab.request("GET", f"/api/v1{operation.path}")
            assert not any(id.encode() in answer.body for id in filled.secrets), operation.name


def test_every_action_is_offered_on_its_page(filled_lab: tuple[HttpLab, Filled]) -> None:
    lab, filled = filled_lab
    for name in CHANGING:
        if name not in WHILE_RUNNING:
            _, html, _ = lab.page(WAYS[name].page(filled))
            assert f'action="/act/{name}"' in html, name


def test_every_answer_has_the_policy(filled_lab: tuple[HttpLab, Filled]) -> None:
    lab, _ = filled_lab
    places = ["/healthz", "/readyz", "/metrics", "/static/style.css", "/static/none", "/api/v1/openapi.json", "/none"]
    for path in [*places, "/api/v1/none", "/api/v1/audit?limit=0", "/audit?limit=x", "/login"]:
        for accept in ("text/html", "application/json"):
            headers = lab.request("GET", path, headers={"accept": accept}).headers
            assert set(headers["content-security-policy"].split("; ")) == POLICY, path
            assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert "access-control-allow-origin" not in headers


# -- bad input -------------------------------------------------------------------------------------------------------

ABSURD = {
    "limit": ["0", "-1", "1001", "9" * 30, "1e9", "", "NaN", "x"],
    "after": [
        "\x00",
        "zzz",
        "9" * 8000,
        "a" * 9000,
        "\ud800".encode("utf-16", "surrogatepass").hex(),
        "../../etc",
        "%",
    ],
    "offset": ["-1", "9" * 30],
    "before_ns": ["-1", "9" * 30, str(1 << 63)],
    "name": ["", "nobody-has-this", "\x00", "x" * 5000, "hex:zz"],
    "queue": ["", "nobody-has-this", "\x00", "x" * 5000],
    "topic": ["", "nobody-has-this", "\x00", "x" * 5000],
    "since": ["yesterday", "9" * 30, "-1", "0001-01-01T00:00:00Z"],
    "until": ["yesterday", "9" * 30, "-1"],
    "id": ["", "0", "zz" * 16, "9" * 400],
    "state": ["none", "\x00"],
}


def test_absurd_values_are_told_so_on_pages_and_in_the_api(filled_lab: tuple[HttpLab, Filled]) -> None:
    lab, _ = filled_lab
    asked = 0
    for page in all_pages():
        for name in page.asks.__struct_fields__:
            for value in ABSURD.get(name, ["\x00", "9" * 30, "x" * 5000]):
                path = re.sub(r"{\w+(:path)?}", "x", page.path)
                status, html, _ = lab.page(f"{path}?{urlencode({name: value})}")
                assert status in (200, 400, 404, 409, 410), (page.path, name, value[:40], html)
                assert len(html) < MOST_OF_A_PAGE
                asked += 1
    for operation in all_operations().values():
        if operation.changes:
            continue
        for name in operation.asks.__struct_fields__:
            for value in ABSURD.get(name, ["\x00", "9" * 30, "x" * 5000]):
                path, _ = address_of(operation, {})
                answer = lab.request("GET", f"{path}?{urlencode({name: value})}")
                assert answer.status in (200, 400, 404, 409, 410), (operation.name, name, value[:40], answer.body)
                assert answer.status == 200 or answer.json()["error"]["code"]
                asked += 1
    assert asked > 10
