"""A real server, restarted: whoever watches it sees what waits though no client has come back yet."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families as parse

from integration.console_server import ConsoleServer, until
from integration.resp_wire import Wire

GROUP = "lamina_group_lag_entries{'group': 'packers', 'topic': 'orders'}"


def metrics(server: ConsoleServer) -> dict[str, float]:
    return {
        each.name + (str(dict(sorted(each.labels.items()))) if each.labels else ""): each.value
        for family in parse(server.get("/metrics").text)
        for each in family.samples
    }


def all_is_known(server: ConsoleServer) -> bool:
    found = metrics(server)
    return found.get("lamina_topics_unknown") == found.get("lamina_queues_unknown") == 0


def publish(wire: Wire, entries: int) -> None:
    for number in range(entries):
        wire.ask("XADD", "orders", "*", "item", f"tea {number}" * 20)


def test_what_waits_is_measured_after_an_orderly_stop_and_after_a_kill(tmp_path: Path) -> None:
    server = ConsoleServer(tmp_path / "data", "--sync", "os", "--queues", "journal")
    with server:
        with server.wire() as wire:
            publish(wire, 500)
            wire.ask("XGROUP", "CREATE", "orders", "packers", "0")
            wire.ask("XREADGROUP", "GROUP", "packers", "ann", "COUNT", 100, "STREAMS", "orders", ">")
            wire.ask("XADD", "plain", "*", "of", "no group")
        with server.remote() as remote:
            outgoing = remote.queue(remote.queues.create().sid)
            for number in range(7):
                outgoing.send(b"message %d" % number)
        assert metrics(server)[GROUP] == 400
        server.stop()
    for lag in (400, 450):
        with server:
            until(lambda: all_is_known(server), "it was never known what waits")
            check(server, lag)
            with server.wire() as wire:
                wire.ask("RENAME", "orders", "bills")
                renamed = GROUP.replace("orders", "bills")
                until(lambda: metrics(server).get(renamed) == lag, "the renamed topic is not known")  # noqa: B023
                wire.ask("RENAME", "bills", "orders")
                publish(wire, 50)
            server.kill()


def check(server: ConsoleServer, lag: int) -> None:
    found = metrics(server)
    assert found[GROUP] == lag
    assert found[GROUP.replace("lag_entries", "pending_entries")] == 100
    assert found[GROUP.replace("lag_entries", "lag_seconds")] > 0
    assert found["lamina_queues_messages"] == 7
    assert found["lamina_topics_open"] == 0, "nothing was opened for it"
    engines = {one["name"]: one for one in server.get("/api/v1/overview").json()["engines"]}
    for name, waiting in (("topics", lag), ("queues", 7)):
        assert (engines[name]["waiting"], engines[name]["is_at_least"]) == (waiting, False)
