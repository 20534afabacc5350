"""Scenes of a store's life in which each operation is looked at closely (test_store_power_loss.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from crash.store_story import Story


def scripts() -> Iterator[tuple[str, Callable[[Story], int]]]:
    """Scenes in which each operation is looked at closely. Each returns from which operation on."""

    def writing(story: Story) -> int:
        since = story.disk.points
        for number in range(3):
            story.put(0, a=f"a{number}", b="b" * 600)
            story.put(1, c=f"c{number}", a=None if number == 1 else "x")
            story.switch()
        story.put(2, d="never durable")
        return since

    def two_rotations(story: Story) -> int:
        story.put(0, a="1")
        story.switch()
        story.put(0, d="1")
        since = story.disk.points
        story.begin(1).put(1, b"late", b"of the old epoch")
        story.rotate()
        story.rotate()
        story.put(0, b="2")
        story.write_out(0)
        story.end(1)
        story.put(2, c="3")
        story.switch()
        story.put(1, a=None)
        story.switch()
        return since

    def compaction(story: Story) -> int:
        for number in range(4):
            story.put(0, **{f"k{number}": "v" * 700, "gone": "x", "stays": f"{number}"})
            story.put(1, gone=None)
            story.switch()
        story.compact()
        story.put(0, k1="new", stays=None)
        story.put(1, gone="again")
        story.switch()
        since = story.disk.points
        story.compact(lambda: story.put(2, meanwhile="1"))
        story.switch()
        return since

    def cleaning(story: Story) -> int:
        for number in range(3):
            story.put(0, **{f"k{number}": "v" * 700, "gone": "x"})
            story.put(1, gone=None)
            story.compact()
        story.put(0, later="1")
        story.switch()
        since = story.disk.points
        story.clean_up(2)
        story.clean_up()
        story.put(0, later=None)
        story.switch()
        return since

    def cleaning_recent(story: Story) -> int:
        for number in range(4):
            story.put(0, **{f"k{number % 2}": "v" * 700, "gone": f"{number}"})
            story.put(1, gone=None)
            story.clock.advance(1)
            story.compact()
        since = story.disk.points
        for keep_s in (2.5, 1.5, 0):
            story.clean_up_recent(keep_s)
            story.put(0, later=f"{keep_s}")
        story.switch()
        return since

    def opening(story: Story) -> int:
        story.put(0, a="1")
        story.switch()
        story.compact()
        story.put(0, b="2", a=None)
        story.put(1, c="3")
        story.switch()
        story.put(1, never="durable")
        story.put(0, a="never")
        story.write_out(0)
        story.write_out(1)
        since = story.disk.points
        story.kill()
        story.put(2, d="4")
        story.switch()
        story.kill()
        return since

    def opening_on_a_full_disk(story: Story) -> int:
        story.put(0, a="1")
        story.switch()
        story.put(1, c="3")
        story.put(0, never="durable")
        story.write_out(0)
        since = story.disk.points
        for number in range(2):
            story.disk.size = 0  # nothing is free
            story.kill()
            story.put(2, refused=f"{number}")
            story.switch()
        story.disk.size = None
        story.put(1, d="4")
        story.switch()
        story.put(2, refused=None)
        story.write_out(2)
        story.kill()
        story.put(0, e="5")
        story.switch()
        return since

    def closing(story: Story) -> int:
        story.put(0, a="1")
        story.switch(9)
        story.begin(1).put(1, b"open", b"given up")
        since = story.disk.points
        story.put(0, b="2")
        story.close()
        story.open()
        story.switch(20)
        story.close()
        story.open()
        return since

    def backing_up(story: Story) -> int:
        story.put(0, a="1", b="x" * 700)
        story.compact()
        story.put(1, c="2", a=None)
        story.switch()
        since = story.disk.points
        story.back_up()
        story.put(0, d="3")
        story.compact()
        story.clean_up()
        return since

    scenes = (writing, two_rotations, compaction, cleaning, cleaning_recent, opening, opening_on_a_full_disk)
    for scene in (*scenes, closing, backing_up):
        yield scene.__name__, scene
