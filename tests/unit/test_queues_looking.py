"""Looking at queues: all of them, by handle, without a change, also while somebody writes. And tending them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest

from lamina.engines.queues import ids, store_files
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.looking import Looked, QueueView, look
from lamina.engines.queues.message import Message, Queue
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.peeking import MISSING, NO_STATE, OLD_STATE, UNREADABLE
from lamina.engines.queues.tending import move, open_to_tend, purge, would_purge
from lamina.engines.queues.upkeep import Upkeep
from lamina.errors import BadOption, Corruption, LogLocked, QuotaMet
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles

FOLDER = "data/queues"
NOW_S = 1_700_000_000
STORES = ["memory", "journal"]


class World:
    """A folder of queues that a server has open."""

    def __init__(self, store: str, **options: object) -> None:
        self.store, self.files, self.clock = store, MemoryFiles(), ManualClock()
        self.random = random.Random(5).randbytes
        self.options = QueueOptions(store=store, **options)  # type: ignore[arg-type]
        self.engine = self.served()

    def served(self) -> QueueEngine:
        return open_engine(
            FOLDER, options=self.options, files=self.files, clock=self.clock, random=self.random, threaded=False
        )

    def queue(self, *bodies: bytes, **more: object) -> Queue:
        queue, position = self.engine.create(**more)  # type: ignore[arg-type]
        self.engine.settle(position)
        self.send(queue, *bodies)
        return queue

    def send(self, queue: Queue, *bodies: bytes) -> None:
        for body in bodies:
            self.engine.keeper.settle(self.engine.send(queue, body)[1])
            self.clock.advance(1)

    def receive(self, queue: Queue, count: int) -> None:
        for _ in range(count):
            head = self.engine.head(queue)
            assert head is not None
            self.engine.keeper.settle(self.engine.acknowledge(queue, head.id))

    def look(self) -> Looked:
        return look(self.files, FOLDER)

    def view(self, queue: Queue) -> QueueView:
        looked = self.look()
        return looked.view(looked.find(ids.handle(queue.rid)))

    def bodies(self, queue: Queue) -> list[bytes | None]:
        looked = self.look()
        return [message.body for message in looked.messages(looked.find(ids.handle(queue.rid)))]

    def tended(self, **more: object) -> QueueEngine:
        self.engine.close()
        self.engine = open_to_tend(
            FOLDER,
            files=self.files,
            clock=self.clock,
            random=self.random,
            threaded=False,
            **more,  # type: ignore[arg-type]
        )
        return self.engine

    def path(self, queue: Queue, ending: str) -> str:
        """The only file of the queue's folder with such a name."""
        start = f"{FOLDER}/messages/" + "/".join(
            [*(ids.show(queue.rid)[at : at + 2] for at in range(0, 8, 2)), ids.show(queue.rid)[8:]]
        )
        (path,) = (path for path in self.files.contents() if path.startswith(f"{start}/{ending}"))
        return path


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(request.param)
    yield world
    world.engine.close()


class TestLooking:
    def test_what_is_known_of_a_queue(self, world: World) -> None:
        queue = world.queue(b"one", b"two", sender_key=b"secret", ttl=3600)
        assert world.view(queue) == QueueView(
            handle=ids.handle(queue.rid),
            status="active",
            is_secured=True,
            waiting=2,
            is_closed=False,
            oldest_s=NOW_S,
            created_s=NOW_S // 86_400 * 86_400,
            ttl_s=3600,
        )
        assert world.look().store == (world.store if world.store == "journal" else "memory")

    def test_a_queue_that_is_off_and_empty(self, world: World) -> None:
        queue = world.queue()
        world.engine.settle(world.engine.suspend(queue))
        view = world.view(queue)
        assert (view.status, view.waiting, view.oldest_s, view.is_secured) == ("off", 0, None, False)

    def test_the_oldest_is_the_one_that_is_next(self, world: World) -> None:
        queue = world.queue(b"one", b"two", b"three")
        world.receive(queue, 1)
        view = world.view(queue)
        assert (view.waiting, view.oldest_s) == (2, NOW_S + 1)
        assert world.bodies(queue) == [b"two", b"three"]

    def test_a_queue_that_met_its_quota_is_closed_and_the_marker_is_no_message(self) -> None:
        for store in STORES:
            world = World(store, quota=2)
            queue = world.queue(b"one", b"two")
            with pytest.raises(QuotaMet) as met:
                world.engine.send(queue, b"three")
            world.engine.keeper.settle(met.value.position)
            view = world.view(queue)
            assert (view.waiting, view.is_closed) == (2, True)
            assert world.bodies(queue) == [b"one", b"two", None]
            world.engine.close()

    def test_many_messages_in_two_files_are_all_seen_in_order(self) -> None:
        world = World("journal", quota=3, max_file_messages=4)
        queue = world.queue(b"0", b"1", b"2")
        world.receive(queue, 2)
        world.send(queue, b"3", b"4")
        assert world.bodies(queue) == [b"2", b"3", b"4"]
        world.receive(queue, 1)
        world.send(queue, b"5")
        world.receive(queue, 1)
        assert world.bodies(queue) == [b"4", b"5"]
        assert world.view(queue).oldest_s == NOW_S + 4

    def test_nothing_is_changed_and_no_lock_is_needed(self, world: World) -> None:
        queue = world.queue(b"one")
        before, changes = world.files.contents(), world.files.changes
        looked = world.look()
        assert [view.waiting for view in looked.views()] == [1]
        assert looked.messages(looked.state.queues[queue.rid])
        assert world.files.contents() == before
        assert world.files.changes == changes
        world.send(queue, b"two")  # whoever writes there goes on
        assert world.bodies(queue) == [b"one", b"two"]

    def test_what_a_dump_has_is_seen_as_well(self, world: World) -> None:
        queue = world.queue(b"one")
        assert Upkeep(world.engine).dump() is not None
        world.send(queue, b"two")
        assert world.bodies(queue) == [b"one", b"two"]

    def test_what_has_expired_is_shown_until_it_is_gone(self, world: World) -> None:
        queue = world.queue(b"one", ttl=10)
        world.clock.advance(1000)
        assert world.bodies(queue) == [b"one"]

    def test_a_view_has_no_id_no_key_and_no_body(self, world: World) -> None:
        queue = world.queue(b"the body", key=b"the key")
        looked = world.look()
        shown = repr(looked.view(looked.state.queues[queue.rid])) + repr(looked.state.queues[queue.rid])
        for secret in (queue.rid, queue.sid):
            assert ids.show(secret) not in shown
            assert repr(secret)[2:-1] not in shown
        assert "the body" not in shown
        assert "the key" not in shown
        assert "rid" not in asdict(looked.view(looked.state.queues[queue.rid]))

    def test_a_file_that_a_dump_takes_away_meanwhile_is_no_error(self, world: World) -> None:
        queue = world.queue(b"one")
        plain_list, looks = world.files.list, 0

        def list_and_dump(folder: str) -> list[str]:
            nonlocal looks
            names = plain_list(folder)
            looks += 1
            if looks == 2:  # the names were read, the files not yet
                assert Upkeep(world.engine).dump() is not None
            return names

        world.files.list = list_and_dump  # type: ignore[method-assign]
        assert world.bodies(queue) == [b"one"]
        assert looks > 4, "it was looked again"

    def test_a_folder_without_queues_is_refused(self) -> None:
        files = MemoryFiles({f"{FOLDER}/other": b""})
        with pytest.raises(BadOption, match="holds no queues"):
            look(files, FOLDER)

    def test_damage_is_told_and_with_force_passed_over(self, world: World) -> None:
        world.queue(b"one")
        world.engine.close()
        contents = world.files.contents()
        name = f"{FOLDER}/{store_files.log_name(0).name}"
        data = bytearray(contents[name])
        data[60] ^= 1
        world.files.write(name, bytes(data))
        world.engine = world_after_damage(world)
        with pytest.raises(Corruption):
            world.look()
        assert look(world.files, FOLDER, force=True).warnings


def world_after_damage(world: World) -> QueueEngine:
    """Something to close at the end; it opens another folder."""
    return open_engine("elsewhere", files=world.files, clock=world.clock, threaded=False)


class TestHandles:
    def test_the_beginning_of_a_handle_is_enough_if_it_is_the_only_one(self, world: World) -> None:
        queues = [world.queue() for _ in range(40)]
        looked = world.look()
        for queue in queues:
            assert looked.find(ids.handle(queue.rid)).rid == queue.rid
            assert looked.find(ids.handle(queue.rid)[:10].upper()).rid == queue.rid
        letters = Counter(ids.handle(queue.rid)[0] for queue in queues)  # 40 queues, 32 letters
        with pytest.raises(BadOption, match="queues have a handle that begins with"):
            looked.find(letters.most_common(1)[0][0])

    @pytest.mark.parametrize("handle", ["", "nobody", "\N{SNOWMAN}"])
    def test_a_handle_that_no_queue_has(self, world: World, handle: str) -> None:
        world.queue()
        with pytest.raises(BadOption, match="no queue has the handle"):
            world.look().find(handle)


class TestOddJournals:
    """What a server would heal is left as it is, and told."""

    @pytest.fixture
    def world(self) -> Iterator[World]:
        world = World("journal")
        yield world
        world.engine.close()

    def odd(self, world: World, queue: Queue, change: Callable[[], None]) -> tuple[int, str]:
        change()
        before = world.files.contents()
        view = world.view(queue)
        assert world.files.contents() == before
        return view.waiting, view.problem

    def test_a_missing_message_file(self, world: World) -> None:
        queue = world.queue(b"one")
        path = world.path(queue, "messages.")
        assert self.odd(world, queue, lambda: world.files.remove(path)) == (1, MISSING)
        assert world.bodies(queue) == []

    def test_a_torn_state_line_counts_for_nothing(self, world: World) -> None:
        queue = world.queue(b"one", b"two")
        path = world.path(queue, "queue.log")
        data = world.files.contents()[path]
        assert self.odd(world, queue, lambda: world.files.write(path, data[:-5])) == (1, "")
        assert world.bodies(queue) == [b"one"]

    def test_without_a_state_line_it_says_so(self, world: World) -> None:
        queue = world.queue(b"one")
        path = world.path(queue, "queue.log")
        assert self.odd(world, queue, lambda: world.files.remove(path)) == (0, NO_STATE)

    def test_the_state_of_an_older_copy_is_better_than_none(self, world: World) -> None:
        queue = world.queue(b"one")
        path = world.path(queue, "queue.log")
        data = world.files.contents()[path]

        def lose() -> None:
            world.files.remove(path)
            world.files.write(path.replace("queue.log", "queue.20231114T221320.000000Z.log"), data)

        assert self.odd(world, queue, lose) == (1, OLD_STATE)

    def test_a_line_with_five_fields_is_counted(self, world: World) -> None:
        queue = world.queue(b"one", b"two")
        path = world.path(queue, "queue.log")
        line = world.files.contents()[path].splitlines()[-1]
        short = line[: line.index(b" read_count=")] + b"\n"
        assert self.odd(world, queue, lambda: world.files.write(path, short)) == (2, "")

    def test_a_message_that_cannot_be_read_is_passed_over_and_told(self, world: World) -> None:
        queue = world.queue(b"one", b"two")
        path = world.path(queue, "messages.")
        data = bytearray(world.files.contents()[path])
        data[30] ^= 1
        assert self.odd(world, queue, lambda: world.files.write(path, bytes(data))) == (2, UNREADABLE)
        assert world.bodies(queue) == [b"two"]

    def test_a_file_that_the_server_takes_away_meanwhile_is_not_missing(self) -> None:
        """Its messages were received just now: the state that is read then says where to go on."""
        world = World("journal", quota=3, max_file_messages=4)
        queue = world.queue(b"0", b"1", b"2")
        world.receive(queue, 2)
        world.send(queue, b"3", b"4")
        world.receive(queue, 1)
        world.send(queue, b"5")  # the file that is read and the one that is written are two
        files = FaultyFiles(world.files)
        taken: list[str] = []

        def take_away(operation: str, path: str) -> None:
            if operation == "open" and "/messages." in path and not taken:
                taken.append(path)
                world.receive(queue, 1)

        files.before = take_away
        looked = look(files, FOLDER)
        messages = looked.messages(looked.state.queues[queue.rid])
        assert taken[0] not in world.files.contents(), "the server did not take it away"
        assert [message.body for message in messages] == [b"4", b"5"]
        assert not looked.warnings
        world.engine.close()


class TestPurge:
    def test_what_is_older_goes_from_the_head_and_the_rest_stays(self, world: World) -> None:
        queue, young = world.queue(b"0", b"1", b"2"), world.queue(b"young")
        wanted = would_purge(world.look(), world.look().state.queues.values(), NOW_S + 2)
        assert [(one.handle, one.messages, one.left) for one in wanted] == [(ids.handle(queue.rid), 2, 1)]
        engine = world.tended()
        assert purge(engine, engine.state.queues.values(), NOW_S + 2) == wanted
        assert (world.bodies(queue), world.bodies(young)) == ([b"2"], [b"young"])

    def test_it_is_there_to_stay(self, world: World) -> None:
        queue = world.queue(b"0", b"1")
        engine = world.tended()
        purge(engine, engine.state.queues.values(), NOW_S + 1)
        world.tended()
        assert world.bodies(queue) == [b"1"]

    def test_the_marker_of_the_quota_stays(self) -> None:
        for store in STORES:
            world = World(store, quota=2)
            queue = world.queue(b"one", b"two")
            with pytest.raises(QuotaMet) as met:
                world.engine.send(queue, b"three")
            world.engine.keeper.settle(met.value.position)
            engine = world.tended()
            (one,) = purge(engine, engine.state.queues.values(), NOW_S + 100)
            assert (one.messages, one.left, world.bodies(queue)) == (2, 1, [None])
            engine.close()

    def test_a_server_that_has_the_folder_keeps_it(self, world: World) -> None:
        with pytest.raises(LogLocked):
            open_to_tend(FOLDER, files=world.files, clock=world.clock, threaded=False)

    def test_a_ttl_that_only_the_server_knows_lets_nothing_go(self, world: World) -> None:
        queue = world.queue(b"one")
        world.clock.advance(400 * 86_400)
        world.tended()
        assert world.bodies(queue) == [b"one"]


class TestMove:
    def ends(self, world: World, source: Queue, target: Queue, **more: object) -> tuple[QueueEngine, Queue, Queue]:
        engine = world.tended(**more)
        return engine, engine.state.queues[source.rid], engine.state.queues[target.rid]

    def ids_of(self, world: World, queue: Queue) -> list[bytes]:
        looked = world.look()
        return [message.id for message in looked.messages(looked.state.queues[queue.rid])]

    def test_messages_come_behind_those_that_are_there_in_order_with_their_ids(self, world: World) -> None:
        source, target = world.queue(b"1", b"2"), world.queue(b"0")
        moved_ids = self.ids_of(world, source)
        engine, *ends = self.ends(world, source, target)
        moved = move(engine, *ends)
        assert (moved.messages, moved.were_there) == (2, 0)
        assert (world.bodies(source), world.bodies(target)) == ([], [b"0", b"1", b"2"])
        assert self.ids_of(world, target)[1:] == moved_ids

    def test_broken_off_in_between_some_are_in_both_and_run_again_in_one(self, world: World) -> None:
        source, target = world.queue(b"1", b"2"), world.queue(b"0")
        engine, *ends = self.ends(world, source, target)

        def stop(name: str) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            move(engine, *ends, step=stop)
        assert (world.bodies(source), world.bodies(target)) == ([b"1", b"2"], [b"0", b"1", b"2"])
        engine, *ends = self.ends(world, source, target)
        assert move(engine, *ends).were_there == 2
        assert (world.bodies(source), world.bodies(target)) == ([], [b"0", b"1", b"2"])

    def test_more_than_the_quota_is_refused_and_nothing_is_changed(self, world: World) -> None:
        source, target = world.queue(b"1", b"2"), world.queue(b"0")
        engine, *ends = self.ends(world, source, target, quota=2)
        with pytest.raises(BadOption, match="its quota is 2"):
            move(engine, *ends)
        assert (world.bodies(source), world.bodies(target)) == ([b"1", b"2"], [b"0"])
        engine, *ends = self.ends(world, source, target, quota=3)
        assert move(engine, *ends).messages == 2

    def test_a_queue_that_is_off_takes_none(self, world: World) -> None:
        source, target = world.queue(b"1"), world.queue()
        world.engine.settle(world.engine.suspend(target))
        engine, *ends = self.ends(world, source, target)
        with pytest.raises(BadOption, match="is off"):
            move(engine, *ends)
        assert world.bodies(source) == [b"1"]

    def test_a_queue_cannot_be_moved_to_itself(self, world: World) -> None:
        queue = world.queue(b"1")
        engine, *ends = self.ends(world, queue, queue)
        with pytest.raises(BadOption, match="the same queue"):
            move(engine, *ends)

    def test_the_marker_of_the_quota_stays_where_it_is(self) -> None:
        for store in STORES:
            world = World(store, quota=1)
            source, target = world.queue(b"1"), world.queue()
            with pytest.raises(QuotaMet) as met:
                world.engine.send(source, b"2")
            world.engine.keeper.settle(met.value.position)
            engine, *ends = self.ends(world, source, target)
            assert move(engine, *ends).messages == 1
            assert (world.bodies(source), world.bodies(target)) == ([None], [b"1"])
            engine, *ends = self.ends(world, target, source)
            with pytest.raises(BadOption, match="met its quota"):
                move(engine, *ends)
            engine.close()


def test_a_message_shows_nothing_of_itself() -> None:
    assert repr(Message(b"i" * 24, 5, b"f", b"secret")) == "<message of 5>"
