"""Who gets in: each door with no, wrong, right and old credentials, on loopback and beyond it, with TLS and without."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from integration.resp_wire import packed
from integration.secured_server import SecuredServer, Talk, certificates, lamina, make_users, refused
from integration.workq_server import HOST, add
from lamina.errors import BadOption
from lamina.server.security import tls
from lamina.server.security.strangers import MOST_FROM_ADDRESS

PEOPLE = {"ann": "*:admin", "bob": "topics:write:b* jobs:write:b*", "late": "*:admin"}
WRONG = {
    "resp": b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    "workq": b"-CLIENT-ERROR Authentication failed\r\n",
}
UNKNOWN = {
    "resp": b"-NOAUTH Authentication required.\r\n",
    "workq": b"-CLIENT-ERROR Authentication required\r\n",
}
DENIED = {
    "resp": b"-NOPERM this user has no permissions to access one of the keys used as arguments\r\n",
    "workq": b"-CLIENT-ERROR Permission denied\r\n",
}
DOORS = ("resp", "workq")
ANYWHERE = "0.0.0.0"  # noqa: S104
PATIENCE_S = 60.0


def login(door: str, name: str, token: str) -> bytes:
    return packed(["AUTH", name, token]) if door == "resp" else f"auth {name} {token}\r\n".encode()


def change(door: str, name: str) -> bytes:
    """A command that needs the right to write ``name``."""
    if door == "workq":
        return add(time.monotonic_ns() % (1 << 32), name)
    return packed(["XADD", name, "*", "f", "v"])


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def trust(made: dict[str, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(made["cert"]))


class Place:
    """A server on loopback, and how to reach it."""

    def __init__(self, server: SecuredServer, trust: ssl.SSLContext | None, folder: Path) -> None:
        self.server, self.trust, self.folder = server, trust, folder

    def talk(self, door: str) -> Talk:
        return Talk(self.server.ports[door], self.trust)


@pytest.fixture(scope="module", params=["plain", "tls"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("data") / "data"
    make_users(folder, **PEOPLE)
    flags: list[object] = []
    trusted: ssl.SSLContext | None = None
    if request.param == "tls":
        made = request.getfixturevalue("made")
        trusted = request.getfixturevalue("trust")
        flags = ["--tls-cert", made["cert"], "--tls-key", made["key"]]
    with SecuredServer(folder, *flags) as server:
        yield Place(server, trusted, folder)
        complaints = server.complaints()
        assert "Traceback" not in complaints and "lam_" not in complaints


# -- loopback ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("door", DOORS)
def test_no_credentials(place: Place, door: str) -> None:
    with place.talk(door) as talk:
        assert talk.ask(change(door, "b")) == UNKNOWN[door]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("name", "token"), [("ann", "bob"), ("nobody", "ann"), ("late", "late"), ("default", "ann")])
def test_wrong_and_old_credentials_give_the_same_bytes(place: Place, door: str, name: str, token: str) -> None:
    with place.talk(door) as talk:
        assert talk.ask(login(door, name, token)) == WRONG[door]
        assert talk.ask(change(door, "b")) == UNKNOWN[door]


@pytest.mark.parametrize("door", DOORS)
def test_right_credentials_and_what_they_are_for(place: Place, door: str) -> None:
    with place.talk(door) as talk:
        assert talk.ask(login(door, "bob", "bob")) == b"+OK\r\n"
        assert not talk.ask(change(door, "b")).startswith(b"-")
    with place.talk(door) as talk:
        talk.ask(login(door, "bob", "bob"))
        assert talk.ask(change(door, "a")) == DENIED[door]
    with place.talk(door) as talk:
        assert talk.ask(login(door, "ann", "ann")) == b"+OK\r\n"
        assert not talk.ask(change(door, "a")).startswith(b"-")


def test_a_client_of_redis_logs_in_as_it_does_there(place: Place) -> None:
    how: dict[str, Any] = {"username": "bob", "password": "bob", "port": place.server.ports["resp"], "host": HOST}
    if place.trust is not None:
        how |= {"ssl": True, "ssl_ca_data": ssl.DER_cert_to_PEM_cert(place.trust.get_ca_certs(binary_form=True)[0])}
    for protocol in (2, 3):
        with redis.Redis(**how, protocol=protocol) as client:
            assert client.acl_whoami() in ("bob", b"bob")  # by the version of the protocol
            assert client.xadd("b1", {"f": "v"})
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.xadd("a1", {"f": "v"})
            assert all(name.startswith(b"b") for name in client.keys("*"))
    with pytest.raises(redis.exceptions.AuthenticationError), redis.Redis(**how | {"password": "ann"}) as client:
        client.ping()


@pytest.mark.parametrize("door", DOORS)
def test_a_plain_client_gets_nothing_from_a_door_with_tls(place: Place, door: str) -> None:
    if place.trust is None:
        pytest.skip("this server has no TLS")
    with Talk(place.server.ports[door]) as talk, suppress(ConnectionError):
        assert not talk.ask(login(door, "ann", "ann")).startswith(b"+")
    with pytest.raises(ssl.SSLError), Talk(place.server.ports[door], ssl.create_default_context()):
        pass
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)), Talk(place.server.ports[door], old):
        pass


# -- strangers --------------------------------------------------------------------------------------------------------


def test_a_crowd_of_strangers_is_stopped_and_harms_nobody_who_is_in(place: Place) -> None:
    if place.trust is not None:
        pytest.skip("the same with TLS, and slower")
    with ExitStack() as opened:
        first: dict[str, socket.socket] = {}
        for door in DOORS:
            known = opened.enter_context(place.talk(door))
            known.ask(login(door, "ann", "ann"))
            where = HOST, place.server.ports[door]
            crowd = [
                opened.enter_context(socket.create_connection(where, PATIENCE_S)) for _ in range(MOST_FROM_ADDRESS + 1)
            ]
            assert b"not authenticated" in crowd[-1].recv(200)
            assert not known.ask(change(door, "a")).startswith(b"-")
            first[door] = crowd[0]
        for one in first.values():
            said = b""
            while more := one.recv(200):  # five seconds, then it is hung up on
                said += more
            assert b"took too long" in said


@pytest.mark.parametrize("door", DOORS)
def test_who_sends_much_before_the_login_is_hung_up_on(place: Place, door: str) -> None:
    much = bytes(5000)
    data = packed(["XADD", "b", "*", "f", much + much]) if door == "resp" else add(1, "b", much + much)
    with place.talk(door) as talk, suppress(ConnectionError):
        talk.socket.sendall(data[:6000])
        said = talk.rest()
        assert (b"unauthenticated" if door == "resp" else b"too much") in said


# -- beyond this machine ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("has_users", "has_tls", "told"),
    [(False, False, "no authentication"), (False, True, "no authentication"), (True, False, "in the clear")],
)
def test_a_public_door_without_login_or_tls_does_not_open(
    tmp_path: Path, made: dict[str, Path], has_users: bool, has_tls: bool, told: str
) -> None:
    folder = tmp_path / "data"
    if has_users:
        make_users(folder, ann="*:admin")
    flags = ["--tls-cert", made["cert"], "--tls-key", made["key"]] if has_tls else []
    code, complaint = refused(folder, *flags, host=ANYWHERE)
    assert code == 2 and told in complaint and "--insecure" in complaint and "Traceback" not in complaint
    assert not (folder / "topics").exists(), "nothing was touched"


def test_a_public_door_with_login_and_tls_opens(tmp_path: Path, made: dict[str, Path], trust: ssl.SSLContext) -> None:
    folder = tmp_path / "data"
    make_users(folder, **PEOPLE)
    with SecuredServer(folder, "--tls-cert", made["cert"], "--tls-key", made["key"], host=ANYWHERE) as server:
        for door in DOORS:
            with Talk(server.ports[door], trust) as talk:
                assert talk.ask(change(door, "b")) == UNKNOWN[door]
                assert talk.ask(login(door, "late", "late")) == WRONG[door]
                assert talk.ask(login(door, "ann", "ann")) == b"+OK\r\n"


def test_whoever_says_insecure_gets_it(tmp_path: Path) -> None:
    with SecuredServer(tmp_path / "data", "--insecure", host=ANYWHERE) as server:
        for door in DOORS:
            with Talk(server.ports[door]) as talk:
                assert not talk.ask(change(door, "b")).startswith(b"-")


def test_a_password_is_for_every_door(tmp_path: Path) -> None:
    with SecuredServer(tmp_path / "data", "--password", "sesame") as server:
        for door in DOORS:
            with Talk(server.ports[door]) as talk:
                assert talk.ask(change(door, "b")) == UNKNOWN[door]
                assert talk.ask(login(door, "default", "sesam")) == WRONG[door]
                assert talk.ask(login(door, "default", "sesame")) == b"+OK\r\n"
                assert not talk.ask(change(door, "b")).startswith(b"-")
        assert "sesame" not in server.complaints()


# -- changes while it runs --------------------------------------------------------------------------------------------


def test_users_and_certificates_change_at_sighup(tmp_path: Path, made: dict[str, Path]) -> None:
    folder, cert, key = tmp_path / "data", tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_bytes(made["cert"].read_bytes())
    key.write_bytes(made["key"].read_bytes())
    token = lamina("user", "add", "ann", "--allow", "*:admin", "--data", folder).strip()
    assert token.startswith("lam_")
    both = ssl.create_default_context(cafile=str(made["cert"]))
    both.load_verify_locations(made["other"])
    with SecuredServer(folder, "--tls-cert", cert, "--tls-key", key) as server:
        port = server.ports["resp"]
        with Talk(port, both) as ann, Talk(server.ports["workq"], both) as worker:
            assert ann.ask(login("resp", "ann", token)) == worker.ask(login("workq", "ann", token)) == b"+OK\r\n"
            new = lamina("user", "rotate", "ann", "--data", folder).strip()
            bob = lamina("user", "add", "bob", "--allow", "topics:read", "--data", folder).strip()
            cert.write_bytes(made["other"].read_bytes())
            key.write_bytes(made["other-key"].read_bytes())
            os.kill(server.pid, signal.SIGHUP)
            end = time.monotonic() + PATIENCE_S
            while ann.ask(packed(["PING"])) != UNKNOWN["resp"]:
                assert time.monotonic() < end
            assert worker.ask(change("workq", "b")) == UNKNOWN["workq"]
            assert ann.ask(login("resp", "ann", token)) == WRONG["resp"]
            assert ann.ask(login("resp", "ann", new)) == b"+OK\r\n"
        with Talk(port, ssl.create_default_context(cafile=str(made["other"]))) as talk:
            assert talk.ask(login("resp", "bob", bob)) == b"+OK\r\n"
        complaints = server.complaints()
    assert "new token ann" in complaints and "added bob" in complaints
    assert not any(secret in complaints for secret in (token, new, bob))


# -- certificates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cert", "key", "told"),
    [
        ("missing", "key", "tls_cert .*missing.pem: there is no such file"),
        ("cert", "missing", "tls_key .*missing.pem: there is no such file"),
        ("key", "key", "tls_cert .*: there is no certificate in it"),
        ("cert", "cert", "tls_key .*: there is no private key in it"),
        ("cert", "other-key", "tls_key .*: this key does not belong to .*cert.pem"),
        ("cert", "locked-key", "tls_key .*: a passphrase is needed"),
        ("torn", "key", "tls_cert .*torn.pem: the certificate or .* cannot be used"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_told(
    made: dict[str, Path], tmp_path: Path, cert: str, key: str, told: str
) -> None:
    (tmp_path / "torn.pem").write_bytes(made["cert"].read_bytes()[:200] + b"\n-----END CERTIFICATE-----\n")
    known = made | {"missing": tmp_path / "missing.pem", "torn": tmp_path / "torn.pem"}
    with pytest.raises(BadOption, match=told):
        tls.server_context(str(known[cert]), str(known[key]))


def test_a_certificate_that_is_over_is_used_and_told(made: dict[str, Path], caplog: pytest.LogCaptureFixture) -> None:
    tls.server_context(str(made["over"]), str(made["key"]))
    assert "is over since 2020-01-02" in caplog.text


def test_clients_can_be_asked_for_certificates(made: dict[str, Path], tmp_path: Path) -> None:
    context = tls.server_context(str(made["cert"]), str(made["key"]), str(made["other"]))
    assert context.verify_mode is ssl.CERT_REQUIRED and context.minimum_version is ssl.TLSVersion.TLSv1_2
    with pytest.raises(BadOption, match="tls_client_ca"):
        tls.server_context(str(made["cert"]), str(made["key"]), str(made["key"]))


# -- the folder -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queues", ["memory", "journal"])
def test_nothing_in_the_folder_is_for_others(tmp_path: Path, queues: str) -> None:
    folder = tmp_path / "data"
    with SecuredServer(folder, "--queues", queues, "--segment-bytes", "4096", umask=0) as server:
        with redis.Redis(port=server.ports["resp"]) as client, Talk(server.ports["workq"]) as worker:
            for number in range(40):
                client.xadd("orders", {"body": bytes(500)})
                assert worker.ask(add(number, "mail", bytes(500))) == b"+OK\r\n"
            client.xgroup_create("orders", "g", "0")
            client.xreadgroup("g", "c", {"orders": ">"}, count=5)
            _, sid = client.execute_command("Q.NEW")
            for _ in range(5):
                client.execute_command("Q.SEND", sid, bytes(500))
            client.execute_command("L.DUMP", "queues") if queues == "memory" else None
            for number in range(20):
                client.execute_command("S.WRITE", "1", "PUT", f"k{number}", bytes(500))
            client.execute_command("S.ROTATE")
            client.execute_command("S.COMPACT", "CLEAN")
        server.stop()
    found = [folder, *folder.rglob("*")]
    assert {path.name for path in folder.iterdir() if path.is_dir()} >= {"jobs", "topics", "queues", "store"}
    assert len(found) > 25
    open_ones = {str(path): oct(path.lstat().st_mode) for path in found if stat.S_IMODE(path.lstat().st_mode) & 0o077}
    assert open_ones == {}
