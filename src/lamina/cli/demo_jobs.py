"""The jobs of ``lamina demo``: a real server, killed in the middle of its work, and what its clients then find."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from lamina.cli.demo_server import HOST, PATIENCE_S, Server
from lamina.cli.jobs_place import STATES, list_facts
from lamina.cli.jobs_work import stoppable
from lamina.client.workq import WorkqClient
from lamina.errors import Disconnected, DuplicateJob

JOBS: Final = 200
KILL_AFTER: Final = 80  # completed jobs
_BATCH: Final = 4


class JobServer(Server):
    """``lamina serve`` with its workq door."""

    def __init__(self, data: Path) -> None:
        super().__init__(data, "workq")

    def client(self) -> WorkqClient:
        return WorkqClient(HOST, self.port)


class Orders:
    """What is to be done, and what the server acknowledged of it."""

    def __init__(self) -> None:
        self.ids = [str(uuid4()) for _ in range(JOBS)]
        self.queue = f"orders-{self.ids[0][:8]}"  # a folder that was kept may hold those of the last time
        self.added: list[str] = []
        self.completed: list[str] = []
        self.are_under_way = threading.Event()

    def add(self, client: WorkqClient) -> None:
        """Add those that are not there. One whose acknowledgement was lost may be."""
        for number, id in enumerate(self.ids):
            if id not in self.added:
                with suppress(DuplicateJob):
                    client.add(self.queue, b"order %d" % number, id=id)
                self.added.append(id)

    def work(self, client: WorkqClient, wait_s: float) -> None:
        """Do all that there is."""
        while leased := client.lease_many(self.queue, most=_BATCH, wait=wait_s):
            for job in leased:
                client.complete(job.id, b"done: " + job.payload)
                self.completed.append(job.id)
                if len(self.completed) == KILL_AFTER:
                    self.are_under_way.set()

    def until_the_kill(self, server: JobServer, do: Callable[[WorkqClient], None]) -> None:
        try:
            with server.client() as client:
                do(client)
        except BaseException as error:
            self.are_under_way.set()  # whatever it is, nothing more will come
            if not isinstance(error, Disconnected):
                raise


def jobs_part(folder: Path, show: Callable[[str], None]) -> dict[str, int]:
    """Add and do jobs, kill the server in the middle of it, start it again, look, and do the rest."""
    orders = Orders()
    show("\nA job server, sync always: one client adds orders, another does them; we kill the server with SIGKILL ...")
    with stoppable():
        with ThreadPoolExecutor(2) as pool, JobServer(folder) as server:
            adding = pool.submit(orders.until_the_kill, server, orders.add)
            working = pool.submit(orders.until_the_kill, server, lambda client: orders.work(client, PATIENCE_S))
            orders.are_under_way.wait(PATIENCE_S)
            server.kill()
            for each in (adding, working):
                each.result()
        added, completed = len(orders.added), len(orders.completed)
        show(f"  acknowledged: {added} orders added, {completed} of them completed")
        started = time.perf_counter()
        with JobServer(folder) as server, server.client() as client:
            restarted_ms = round((time.perf_counter() - started) * 1000)
            places = {state: _ids(client, orders.queue, state) for state in STATES}
            found = Counter(id for ids in places.values() for id in ids)
            lost = [id for id in orders.added if not found[id]]
            twice = [id for id, times in found.items() if times > 1]
            undone = set(orders.completed).difference(places["completed"])
            again = f"{len(lost)} orders lost, {len(twice)} there twice, {len(undone)} completed ones undone"
            show(f"  started again on the same folder in {restarted_ms} ms: {again}")
            for id in places["leased"]:  # by the client whose connection broke
                client.release(id)
            orders.add(client)
            orders.work(client, 0)
            finished = _ids(client, orders.queue, "completed")
        show(f"  then the rest: {len(finished)} of {JOBS} orders completed")
    return {
        "jobs": JOBS,
        "acknowledged": added,
        "completed": completed,
        "restarted_ms": restarted_ms,
        "lost": len(lost),
        "twice": len(twice),
        "undone": len(undone),
        "finished": len(set(finished).intersection(orders.ids)),
    }


def _ids(client: WorkqClient, queue: str, state: str) -> list[str]:
    return [facts["id"] for facts in list_facts(client, queue, state, 2 * JOBS)]
