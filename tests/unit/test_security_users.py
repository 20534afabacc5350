"""Rights, tokens, the users of a folder and the gate: who is let in, what they may do, and what a bad file says."""

from __future__ import annotations

import json
import os
import ssl
import stat
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from lamina.cli.user import user as user_command
from lamina.errors import BadOption, DiskError, DiskFull, LogLocked, WrongFormat
from lamina.log.files.real import RealFiles
from lamina.server.security import tokens, users
from lamina.server.security.exposure import check_exposure, is_public
from lamina.server.security.gate import Changes, Gate
from lamina.server.security.modes import open_to_others
from lamina.server.security.rights import ENGINES, LEVELS, Right
from lamina.server.security.users import EVERYBODY, User
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles

SECOND = 10**9


TOKEN, OTHER, SESAME = "t", "u", "sesame"


def made(name: str, *rights: str, token: str = TOKEN, expires_ns: int | None = None) -> User:
    return User(name, tuple(map(Right.parse, rights)), tokens.digest(token), 1, expires_ns)


# -- rights -----------------------------------------------------------------------------------------------------------

PATTERNS = st.sampled_from(["", "*", "a*", "*b", "a?", "[ab]c", "[!a]*", "a.b", "é*", "*\n*"])
NAMES = st.sampled_from(["", "a", "b", "ab", "ac", "bc", "a.b", "axb", "éa", "a\nb", "[ab]c"])
RIGHTS = st.lists(st.tuples(st.sampled_from([*ENGINES, "*"]), st.sampled_from(LEVELS), PATTERNS), max_size=4)


@given(RIGHTS, st.sampled_from(ENGINES), st.sampled_from(LEVELS), NAMES, st.booleans())
def test_a_user_may_what_one_of_its_rights_says(
    rights: list[tuple[str, str, str]], engine: str, level: str, name: str, as_bytes: bool
) -> None:
    texts = [":".join(part for part in right if part) for right in rights]
    user = made("ann", *texts)

    def gives(right: tuple[str, str, str]) -> bool:
        its_engine, its_level, pattern = right
        is_included = {"read": "read write admin", "write": "write admin", "admin": "admin"}[level].split()
        fits = fnmatchcase(name.encode(), (pattern or "*").encode())
        return its_engine in (engine, "*") and its_level in is_included and fits

    asked = name.encode() if as_bytes else name
    assert user.may(engine, level, asked) == any(map(gives, rights))
    assert user.may(engine, level, asked) == any(map(gives, rights)), "what it remembers is the same"
    if user.may_all(engine, level):
        assert user.may(engine, level, asked)
    if user.may(engine, level, asked):
        assert user.may_some(engine, level)
    if user.may_everything:
        assert user.may_all(engine, level)


@given(RIGHTS)
def test_a_right_is_read_as_it_is_shown(rights: list[tuple[str, str, str]]) -> None:
    for right in rights:
        parsed = Right.parse(":".join(part for part in right if part))
        assert Right.parse(str(parsed)) == parsed


@pytest.mark.parametrize(
    "text", ["", "jobs", "jobs:", "job:read", "jobs:reads", "jobs:read:", ":read", "jobs:read:" + "a" * 600]
)
def test_what_is_no_right_is_refused(text: str) -> None:
    with pytest.raises(BadOption):
        Right.parse(text)


def test_a_pattern_may_have_colons() -> None:
    assert made("ann", "topics:read:a:*").may("topics", "read", b"a:b")


def test_what_a_user_remembers_is_bounded() -> None:
    user = made("ann", "topics:read:a*")
    for number in range(20_000):
        user.may("topics", "read", b"%d" % number)
    assert len(user._known) <= 4096
    for number in range(100):  # a name can have as many bytes as a command
        assert user.may("topics", "read", b"a%d" % number + bytes(100_000))
    assert sum(len(name or b"") for _, _, name in user._known) < 1 << 22


def test_who_may_everything() -> None:
    assert EVERYBODY.may_everything and made("a", "*:admin").may_everything
    assert made("a", *(f"{engine}:admin" for engine in ENGINES)).may_everything
    assert not made("a", "*:write").may_everything and not made("a", "*:admin:?*").may_everything


# -- tokens -----------------------------------------------------------------------------------------------------------


def test_tokens_are_random_and_only_their_digest_fits() -> None:
    made = {tokens.make() for _ in range(100)}
    assert len(made) == 100
    for token in made:
        assert token.startswith("lam_") and len(token) == 47 and token.isascii()
        assert tokens.fits(token.encode(), tokens.digest(token))
        assert not tokens.fits(token[:-1].encode(), tokens.digest(token))
        assert not tokens.fits(token.encode(), None)


# -- the file ---------------------------------------------------------------------------------------------------------


def test_what_is_saved_is_loaded_and_only_for_its_owner(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    mask = os.umask(0)
    try:
        with users.changing(folder) as found:
            found["ann"] = made("ann", "jobs:write:mail.*", "topics:read", expires_ns=5 * SECOND)
            found["bob"] = made("bob", "*:admin", token=OTHER)
        with users.changing(folder) as found:
            assert list(found) == ["ann", "bob"]
            del found["bob"]
    finally:
        os.umask(mask)
    loaded = users.load(folder)
    assert loaded is not None and list(loaded) == ["ann"]
    assert loaded["ann"] == made("ann", "jobs:write:mail.*", "topics:read", expires_ns=5 * SECOND)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["users.json", "users.lock"]
    for path in (tmp_path / "data", *(tmp_path / "data").iterdir()):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_where_no_file_is_nobody_is_known(tmp_path: Path) -> None:
    assert users.load(str(tmp_path)) is None


def test_two_do_not_change_it_at_once(tmp_path: Path) -> None:
    with users.changing(str(tmp_path)), pytest.raises(LogLocked), users.changing(str(tmp_path)):
        pass


def test_a_change_that_fails_leaves_the_users_as_they_were() -> None:
    disk = MemoryFiles()
    users.save("data", {"ann": made("ann", "*:admin")}, disk)
    for operation in ("create", "append", "sync", "rename"):
        faulty = FaultyFiles(disk)
        faulty.fail(operation, error=28)  # no room
        with pytest.raises((DiskFull, DiskError)):
            users.save("data", {}, faulty)
        assert list(users.load("data", disk) or {}) == ["ann"]
    users.save("data", {}, disk)
    assert users.load("data", disk) == {}


GOOD: dict[str, Any] = {
    "name": "ann",
    "token_sha256": "ab" * 32,
    "allow": ["jobs:read"],
    "created": "2026-11-15T06:17:00Z",
    "expires": None,
}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1, column 1"),
        ('{\n "users": [}', "line 2, column 12"),
        ("[]", '"format"'),
        ('{"format": "other"}', '"format"'),
        ('{"format": "lamina users", "version": 2}', "newer lamina"),
        ('{"format": "lamina users", "version": 1}', '"users" is no list'),
        ("[" * 100_000, "no JSON"),
        (b"\xff{", "no JSON"),
        ([GOOD, 7], "user 2 is no object"),
        ([GOOD, GOOD], "user 2: there are two"),
        ([{**GOOD, "name": "a b"}], 'user 1: "name"'),
        ([{**GOOD, "name": "default"}], 'user 1: "name"'),
        ([{**GOOD, "name": 7}], 'user 1: "name"'),
        ([{**GOOD, "token_sha256": "ab"}], '"token_sha256" cannot'),
        ([{**GOOD, "allow": "jobs:read"}], '"allow" cannot'),
        ([{**GOOD, "allow": ["jobs:fly"]}], "'jobs:fly' is no right"),
        ([{**GOOD, "allow": [None]}], '"allow" cannot'),
        ([{**GOOD, "expires": "soon"}], '"expires"'),
        ([{**GOOD, "expire": "2026-11-15"}], 'nobody knows what "expire" is'),
        ([{key: value for key, value in GOOD.items() if key != "expires"}], '"expires" is missing'),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_the_place(text: Any, told: str) -> None:
    if isinstance(text, list):
        text = json.dumps({"format": "lamina users", "version": 1, "users": text})
    disk = MemoryFiles({"data/users.json": text if isinstance(text, bytes) else text.encode()})
    with pytest.raises((BadOption, WrongFormat)) as caught:
        users.load("data", disk)
    assert "data/users.json" in caught.value.message and told in caught.value.message
    assert "ab" * 32 not in str(caught.value)
    with pytest.raises((BadOption, WrongFormat)):
        Gate("data", files=disk)


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "users.json").symlink_to("/etc/hostname")
    with pytest.raises(DiskError):
        users.load(str(tmp_path))


# -- the gate ---------------------------------------------------------------------------------------------------------


def test_a_gate_without_users_and_password_is_open() -> None:
    gate = Gate()
    assert not gate.is_needed and gate.login(b"default", b"anything") is EVERYBODY
    assert gate.login(b"ann", b"") is None
    assert not gate.change(gate.read())


def test_who_knows_the_password_may_everything() -> None:
    gate = Gate(password=SESAME)
    assert gate.is_needed and gate.names == ["default"]
    assert gate.login(b"default", b"sesame") is EVERYBODY and gate.bearer(b"sesame") is EVERYBODY
    for wrong in (b"", b"sesam", b"sesame\0", b"SESAME"):
        assert gate.login(b"default", wrong) is None and gate.bearer(wrong) is None


def test_who_is_let_in_until_when() -> None:
    disk, clock = MemoryFiles(), ManualClock()
    ends = clock.now_ns() + 10 * SECOND
    users.save(
        "data", {"ann": made("ann", "jobs:read", expires_ns=ends), "bob": made("bob", "*:admin", token=OTHER)}, disk
    )
    gate = Gate("data", files=disk, clock=clock)
    assert gate.is_needed and gate.names == ["ann", "bob"]
    ann = gate.login(b"ann", b"t")
    assert ann is not None and ann.name == "ann" and gate.bearer(b"t") == ann
    assert gate.login(b"ann", b"u") is gate.login(b"carl", b"t") is gate.login(b"default", b"t") is None
    assert gate.login(b"\xff", b"t") is None and gate.bearer(b"v") is None
    clock.advance(10)
    assert gate.login(b"ann", b"t") is gate.bearer(b"t") is None
    assert gate.login(b"bob", b"u") is not None


def test_a_reload_tells_what_changed_and_who_stays() -> None:
    disk = MemoryFiles()
    gate = Gate("data", files=disk)
    told: list[Changes] = []
    gate.listen(told.append)
    assert not gate.change(gate.read()) and not told

    before = {name: made(name, "jobs:read") for name in ("ann", "bob", "carl", "dora")}
    users.save("data", before, disk)
    changes = gate.change(gate.read())
    assert changes.is_needed_now and changes.added == ("ann", "bob", "carl", "dora") and told == [changes]
    assert gate.stays(EVERYBODY, changes) is None, "who came when it was open has to log in"

    bob, carl = made("bob", "jobs:write"), made("carl", "jobs:read", token=OTHER)
    users.save("data", {"ann": before["ann"], "bob": bob, "carl": carl}, disk)
    changes = gate.change(gate.read())
    assert (changes.removed, changes.changed, changes.rotated) == (("dora",), ("bob",), ("carl",))
    assert str(changes) == "users: removed dora, changed bob, new token carl"
    stays = [gate.stays(before[name], changes) for name in ("ann", "bob", "carl", "dora")]
    assert stays == [before["ann"], bob, None, None]
    ann = gate.user("ann")
    users.save("data", {"ann": before["ann"], "emil": made("emil", "jobs:read")}, disk)
    assert gate.stays(ann, gate.change(gate.read())) is ann, "who is the very same is not sent away"
    users.save("data", {"ann": before["ann"], "bob": bob, "carl": carl}, disk)
    gate.change(gate.read())

    disk.remove("data/users.json")
    with pytest.raises(BadOption, match="gone"):
        gate.change(gate.read())
    assert gate.is_needed and gate.login(b"ann", b"t") is not None, "it does not become open by itself"


def test_a_bad_file_at_a_reload_changes_nothing() -> None:
    disk = MemoryFiles()
    users.save("data", {"ann": made("ann", "jobs:read")}, disk)
    gate = Gate("data", files=disk)
    disk.remove("data/users.json")
    file = disk.create("data/users.json")
    file.append([b"{"])
    file.close()
    with pytest.raises(BadOption):
        gate.change(gate.read())
    assert gate.login(b"ann", b"t") is not None


def test_taking_the_last_user_away_locks_the_door() -> None:
    disk = MemoryFiles()
    users.save("data", {}, disk)
    gate = Gate("data", files=disk)
    assert gate.is_needed and gate.login(b"default", b"") is None


def test_refusals_are_told_in_the_log_without_what_was_said(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate(password=SESAME)
    for _ in range(100):
        gate.login(b"eve", b"s3cret")
    assert len(caplog.messages) == 1
    assert "eve" not in caplog.text and "s3cret" not in caplog.text and "sesame" not in caplog.text


# -- what is open to whom ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "public"),
    [
        ("127.0.0.1:1", False),
        ("127.9.9.9:1", False),
        ("localhost:1", False),
        ("[::1]:1", False),
        ("unix:/tmp/s", False),
        ("off", False),
        ("0.0.0.0:1", True),
        (":1", True),
        ("*:1", True),
        ("[::]:1", True),
        ("10.0.0.1:1", True),
        ("127.0.0.1.example.com:1", True),
        ("localhost.example.com:1", True),
        ("[fe80::1%eth0]:1", True),
    ],
)
def test_what_other_machines_can_reach(where: str, public: bool) -> None:
    assert is_public(where) == public


def test_a_public_door_needs_a_login_and_tls() -> None:
    tls, gate = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), Gate(password=SESAME)
    there = [("workq", "127.0.0.1:1"), ("resp", "0.0.0.0:2")]
    check_exposure(there[:1], None, None, False)
    for its_gate, its_tls, word in (
        (None, tls, "authentication"),
        (Gate(), tls, "authentication"),
        (gate, None, "clear"),
    ):
        with pytest.raises(BadOption, match=word) as caught:
            check_exposure(there, its_gate, its_tls, False)
        assert "resp on 0.0.0.0:2" in caught.value.message and "--insecure" in caught.value.hint
        check_exposure(there, its_gate, its_tls, True)
    check_exposure(there, gate, tls, False)


def test_what_others_may_read_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    RealFiles().make_folder(str(folder / "jobs"))
    (folder / "jobs" / "a.lam").write_bytes(b"")
    (folder / "jobs" / "a.lam").chmod(0o644)
    assert open_to_others(str(folder)) == [], "nobody gets there"
    folder.chmod(0o755)
    first, second = open_to_others(str(folder))
    assert f"{folder} is open to others (mode 0755)" in first and "a.lam" in second and "chmod" in second
    for number in range(10):
        (folder / f"{number}").mkdir(mode=0o755)
    assert open_to_others(str(folder))[-1].startswith("and 7 more")
    assert open_to_others(str(tmp_path / "none")) == []


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_finds_the_folder_that_a_server_here_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("LAMINA_DATA", "LAMINA_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "lamina.toml").write_text('data = "elsewhere"')
    words = ["add", "ann", "--allow", "*:admin"]
    assert CliRunner().invoke(user_command, words, catch_exceptions=False).exit_code == 0
    assert [path.parent.name for path in tmp_path.glob("*/users.json")] == ["elsewhere"]
    monkeypatch.setenv("LAMINA_DATA", "third")
    assert CliRunner().invoke(user_command, words, catch_exceptions=False).exit_code == 0
    assert (tmp_path / "third" / "users.json").exists()


def test_the_command_makes_shows_renews_and_removes_users(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")

    def run(*words: str) -> dict[str, Any]:
        ended = CliRunner().invoke(user_command, [*words, "--data", folder, "--json"], catch_exceptions=False)
        assert ended.exit_code == 0, ended.output
        found: dict[str, Any] = json.loads(ended.output)
        return found

    assert run("list") == {"is_login_needed": False, "users": []}
    first = run("add", "ann", "--allow", "jobs:write:mail.*", "--allow", "topics:read", "--expires", "30d")
    assert first["allow"] == ["jobs:write:mail.*", "topics:read"] and first["expires"] > first["created"]
    gate = Gate(folder)
    assert gate.login(b"ann", first["token"].encode()) is not None
    assert first["token"] not in (tmp_path / "data" / "users.json").read_text()
    second = run("rotate", "ann", "--expires", "never")
    assert second["token"] != first["token"] and second["allow"] == first["allow"] and second["expires"] is None
    assert gate.change(gate.read()).rotated == ("ann",) and gate.login(b"ann", first["token"].encode()) is None
    listed = run("list")
    assert listed["is_login_needed"] and "token" not in json.dumps(listed) and len(listed["users"]) == 1
    for words in (["remove", "ann", "--dry-run"], ["remove", "ann", "--yes", "--dry-run"]):
        assert run(*words)["is_done"] is False and len(run("list")["users"]) == 1
    assert run("remove", "ann", "--yes")["users_left"] == 0
    assert run("list") == {"is_login_needed": True, "users": []}, "nobody gets in, rather than everybody"


@pytest.mark.parametrize(
    "words",
    [
        ["add", "ann", "--allow", "jobs:read"],
        ["add", "bob", "--allow", "jobs:fly"],
        ["add", "b b", "--allow", "jobs:read"],
        ["add", "bob", "--allow", "jobs:read", "--expires", "soon"],
        ["add", "bob", "--allow", "jobs:read", "--expires", "2001-01-01"],
        ["rotate", "bob"],
        ["remove", "bob", "--yes"],
    ],
)
def test_the_command_refuses_what_cannot_be_and_changes_nothing(tmp_path: Path, words: list[str]) -> None:
    users.save(str(tmp_path), {"ann": made("ann", "*:admin")})
    before = (tmp_path / "users.json").read_bytes()
    with pytest.raises(BadOption):
        CliRunner().invoke(user_command, [*words, "--data", str(tmp_path)], catch_exceptions=False)
    assert (tmp_path / "users.json").read_bytes() == before
