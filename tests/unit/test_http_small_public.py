"""The console behind a proxy that ends TLS: the host that was named is ours, its cookies are for TLS, and no header of
a proxy is believed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from http_lab import HttpLab
from integration.console_server import ConsoleServer
from integration.workq_server import LAMINA
from lamina.config import Given, load
from lamina.config.public_url import PublicUrl
from lamina.errors import BadOption

PUBLIC = "https://lamina.example.org"
NAME = "lamina.example.org"
FORWARDED = {
    "x-forwarded-proto": "https",
    "x-forwarded-host": NAME,
    "x-forwarded-for": "127.0.0.1",
    "forwarded": f"proto=https;host={NAME}",
}


def public(url: str) -> dict[str, Any]:
    return {"http.public_url": url}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[HttpLab]:
    with HttpLab(tmp_path, **public(PUBLIC)) as lab:
        lab.host = NAME
        yield lab


def page(lab: HttpLab, **headers: str) -> tuple[int, str]:
    answer = lab.request("GET", "/settings", headers={"accept": "text/html", **headers})
    assert "strict-transport-security" not in answer.headers, "as where the door itself speaks TLS"
    return answer.status, answer.headers.get("set-cookie", "").lower()


# -- hosts, origins and cookies ----------------------------------------------------------------------------------------


def test_the_public_host_is_answered_to_and_its_cookies_are_for_tls(lab: HttpLab) -> None:
    for host in (NAME, NAME.upper(), f"{NAME}:443", "127.0.0.1:9980", "localhost"):
        status, cookie = page(lab, host=host)
        assert status == 200 and "; secure" in cookie and "httponly" in cookie and "samesite=strict" in cookie, host
    for host in ("evil.example", f"{NAME}.evil.example", f"evil.{NAME}", "example.org"):
        assert page(lab, host=host)[0] == 421, host


def test_its_pages_may_act_and_no_others(lab: HttpLab) -> None:
    lab.workq.ask(b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c8 mail 1000 60000 1\r\nx\r\n")
    fields = {"queue": "mail", "form_token": lab.form_token(), "back": "/"}
    for origin in (PUBLIC, "HTTPS://Lamina.Example.org"):
        assert lab.post_form("/act/jobs.pause", fields, origin=origin).status == 200, origin
    for origin in (f"http://{NAME}", f"{PUBLIC}:8443", "https://evil.example", f"{PUBLIC}.evil.example", "null"):
        refused = lab.post_form("/act/jobs.pause", fields, origin=origin)
        assert (refused.status, "another page sent this" in refused.text) == (403, True), origin
    assert lab.post_form("/act/jobs.pause", fields, origin=PUBLIC, sec_fetch_site="cross-site").status == 403
    lab.host = "127.0.0.1:9980"  # a proxy that does not hand on the host, or no proxy at all
    for origin in (PUBLIC, "http://127.0.0.1:9980"):
        assert lab.post_form("/act/jobs.pause", fields, origin=origin).status == 200, origin
    assert lab.post_form("/act/jobs.pause", fields, origin=f"http://{NAME}").status == 403


def test_whoever_logs_in_there_comes_and_goes_with_cookies_for_tls(lab: HttpLab) -> None:
    token = lab.user("ann", "*:admin")
    entered = lab.post_form("/login", {"token": token, "back": "/jobs"}, origin=PUBLIC)
    assert (entered.status, entered.headers["location"]) == (303, "/jobs")
    assert "; secure" in entered.headers["set-cookie"].lower()
    left = lab.post_form("/logout", {"form_token": lab.form_token()}, origin=PUBLIC)
    assert left.status == 303 and "; secure" in left.headers["set-cookie"].lower()
    assert lab.post_form("/login", {"token": token, "back": "/"}, origin=f"http://{NAME}").status == 403


def test_no_header_of_a_proxy_is_believed(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        status, cookie = page(lab, **FORWARDED)
        assert status == 200 and "lamina_session" in cookie and "secure" not in cookie
        assert page(lab, host=NAME, **FORWARDED)[0] == 421
        fields = {"queue": "mail", "form_token": lab.form_token(), "back": "/"}
        sent = {name.replace("-", "_"): value for name, value in FORWARDED.items()}
        assert lab.post_form("/act/jobs.pause", fields, **{**sent, "origin": PUBLIC}).status == 403


def test_a_public_url_without_tls_makes_no_cookie_for_tls(tmp_path: Path) -> None:
    with HttpLab(tmp_path, **public("http://lamina.example.org:8080")) as lab:
        status, cookie = page(lab, host=f"{NAME}:8080", **FORWARDED)
        assert status == 200 and "lamina_session" in cookie and "secure" not in cookie


def test_who_is_public_without_users_is_warned(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with HttpLab(tmp_path, **public(PUBLIC)) as lab:
        assert f"{PUBLIC} is public and nobody has to log in" in caplog.text
        lab.user("ann", "*:admin")
        caplog.clear()
        lab.restart()
        assert "is public" not in caplog.text


# -- the setting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "origin", "host"),
    [
        (PUBLIC, PUBLIC, NAME),
        ("HTTPS://Lamina.Example.ORG/", PUBLIC, NAME),
        (f"{PUBLIC}:443", PUBLIC, NAME),
        (f"{PUBLIC}:8443", f"{PUBLIC}:8443", NAME),
        ("http://db1:80", "http://db1", "db1"),
        ("https://[2001:DB8:0::1]:8443", "https://[2001:db8::1]:8443", "2001:db8::1"),
        ("https://10.0.0.1", "https://10.0.0.1", "10.0.0.1"),
    ],
)
def test_a_url_is_read_as_browsers_write_it(text: str, origin: str, host: str) -> None:
    found = PublicUrl.parse(text)
    assert (found.origin, found.host, found.is_https) == (origin, host, origin.startswith("https:"))
    assert (
        load(flags=[Given("http.public_url", text, "--public-url")], environment={}).maybe("http.public_url") == origin
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (NAME, "begin with https"),
        ("ftp://lamina.example.org", "begin with https"),
        ("//lamina.example.org", "begin with https"),
        ("https://", "no host"),
        ("https://*.example.org", "no host"),
        ("https://-x", "no host"),
        ("https://[::g]", "no host"),
        ("https://[fe80::1%25eth0]", "no host"),
        ("https://[::1", "no host"),
        ("https://[::1]x", "no host"),
        ("https://x[::1]:8443", "no host"),
        ("https://[v1.x]", "no host"),
        ("https://x..y", "no host"),
        ("https://127.1", "no host"),
        ("https://0x7f.1", "no host"),
        ("https://10.0.0.256", "no host"),
        ("https://[::1]:99999", "web"),
        ("https://x:99999", "web"),
        ("https://x:port", "web"),
        ("https://x:0", "port"),
        ("https://x:", "port"),
        ("https://ann:token@x", "user"),
        ("https://x/lamina", "more than a host"),
        ("https://x/?", "more than a host"),
        ("https://x#y", "more than a host"),
        ("https://x y", "letters"),
        ("https://x\n", "letters"),
        ("https://b\u00fccher.example", "letters"),
    ],
)
def test_a_url_that_cannot_be_is_refused_with_what_is_wrong(text: str, what: str) -> None:
    with pytest.raises(BadOption) as refused:
        PublicUrl.parse(text)
    assert what in refused.value.message and refused.value.hint
    (problem,) = load(flags=[Given("http.public_url", text, "--public-url")], environment={}).problems
    assert what in problem and "--public-url" in problem


def test_an_empty_one_is_none(tmp_path: Path) -> None:
    file = tmp_path / "lamina.toml"
    file.write_text('[http]\npublic_url = ""\n')
    found = load(str(file), environment={"LAMINA_HTTP_PUBLIC_URL": ""}).raise_problem()
    assert found.maybe("http.public_url") is None
    file.write_text("[http]\npublic_url = 7\n")
    assert "[http] public_url = 7 cannot be" in load(str(file), environment={}).problems[0]


# -- real processes ----------------------------------------------------------------------------------------------------


def test_a_bad_one_is_refused_at_the_start_and_by_config_check(tmp_path: Path) -> None:
    around = {name: value for name, value in os.environ.items() if not name.startswith("LAMINA_")}
    for words in (["serve", "--data", "data"], ["config", "check", "--data", "data"]):
        done = subprocess.run(
            [LAMINA, *words],
            cwd=tmp_path,
            env={**around, "LAMINA_PURE": "1", "LAMINA_HTTP_PUBLIC_URL": "https://lamina.example.org/console"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2, words
        assert "LAMINA_HTTP_PUBLIC_URL" in done.stderr and "more than a host" in done.stderr.replace("\n", " ")
        assert not (tmp_path / "data").exists()


def test_a_server_that_was_told_answers_to_its_name(tmp_path: Path) -> None:
    with ConsoleServer(tmp_path, "--public-url", f"{PUBLIC}/") as server, server.connection() as connection:
        for host, status in ((NAME, 200), ("evil.example", 421)):
            connection.request("GET", "/settings", headers={"Host": host, "Accept": "text/html", **FORWARDED})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status, host
            assert (status != 200) or "; secure" in (answer.headers["set-cookie"] or "").lower()
        settings = json.loads(server.get("/api/v1/settings").body)
        assert PUBLIC in json.dumps(settings)
