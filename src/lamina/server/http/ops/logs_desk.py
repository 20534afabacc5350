"""What is remembered about the logs of a server between two requests: sizes, what was measured, work that goes on."""

from __future__ import annotations

from functools import partial
from weakref import WeakKeyDictionary

import msgspec

from lamina.server.http.ops import logs_jobs, logs_queues, logs_store, logs_topics
from lamina.server.http.ops import logs_names as names
from lamina.server.http.ops import logs_segments as files
from lamina.server.http.ops.logs_measure import Measure, Measured, Measures, apply
from lamina.server.http.ops.logs_model import ACTIVE, Damage, LogFacts, Segment, totals_of
from lamina.server.http.ops.logs_names import Ref
from lamina.server.http.ops.logs_sizes import Sizes
from lamina.server.http.ops.logs_works import Works
from lamina.server.inside import Inside


class Desk:
    """Of one server."""

    def __init__(self, inside: Inside) -> None:
        self.sizes = Sizes(inside)
        self.measures = Measures()
        self.works = Works(lambda: inside.audit)

    def was_changed(self, ref: Ref) -> None:
        """By something that was done to the log: who looks next is to see it."""
        self.sizes.forget()
        self.measures.forget(ref.name)


_desks: WeakKeyDictionary[Inside, Desk] = WeakKeyDictionary()


def desk_of(inside: Inside) -> Desk:
    found = _desks.get(inside)
    if found is None:
        found = _desks.setdefault(inside, Desk(inside))
    return found


def measure_of(inside: Inside, ref: Ref) -> Measure | None:
    """How it is found out what of a log is alive; None: nothing is ever taken away from it."""
    by_kind = {
        names.JOBS: logs_jobs.measure,
        names.TOPIC: logs_topics.measure,
        names.GROUPS: logs_topics.measure,
        names.QUEUES: logs_queues.measure,
        names.JOURNALS: logs_queues.measure_journals,
        names.STORE: logs_store.measure,
    }
    found = by_kind.get(ref.kind)
    return None if found is None else partial(found, inside, ref)


def can(inside: Inside, ref: Ref) -> list[str]:
    """Actions that there are for a log."""
    actions = {
        names.JOBS: ["rotate", "clean", "verify", "measure"],
        names.TOPIC: ["rotate", "clean", "verify", "measure"],
        names.GROUPS: ["rotate", "compact", "verify"],
        names.QUEUES: ["clean", "verify"],
        names.JOURNALS: ["clean", "verify"],
        names.STORE: ["rotate", "clean", "compact", "verify"],
        names.PLAIN: ["verify"],
    }[ref.kind]
    if ref.kind == names.PLAIN and names.log_of(inside, ref) is not None:
        return ["rotate", *actions]
    return actions


def facts(inside: Inside, ref: Ref, limit: int, after: str = "") -> LogFacts:
    """Everything about one log. For a worker thread. Raises: NotThere; BadOption."""
    desk = desk_of(inside)
    works = [work.shown() for work in desk.works.of(ref.name)]
    damage = next((work.damage for work in works if work.action == "verify" and work.outcome == "done"), [])
    found: Measured | None = None
    is_measuring = False
    measure = measure_of(inside, ref)
    if measure is not None:
        found, is_measuring = desk.measures.ask(ref.name, measure)
    if ref.kind == names.JOURNALS:
        listed = files.Listed(segments=found.rows if found is not None else [])
        segments, size = listed.segments, found.bytes if found is not None else 0
    else:
        listed = files.list_files(inside, ref)
        segments = apply(listed.segments, found) if measure is not None else _all_live(listed.segments)
        size = sum(each.bytes for each in segments)
    segments = _with_damage(segments, damage)
    shown = segments if ref.kind == names.JOURNALS else segments[::-1]
    start = next((at + 1 for at, one in enumerate(shown) if one.file == after), len(shown)) if after else 0
    page = shown[start : start + limit]
    return LogFacts(
        name=ref.name,
        kind=ref.kind,
        bytes=size,
        other_bytes=listed.other_bytes,
        others=files.show_others(listed.others),
        segments=page,
        segment_count=len(segments),
        totals=totals_of(segments),
        holders=found.holders if found is not None else [],
        answer=(found.problem or found.answer) if found is not None else "",
        measured_ns=found.at_ns if found is not None else None,
        is_measuring=is_measuring,
        is_partial=found is not None and found.is_partial,
        can=can(inside, ref),
        works=works,
        damage=damage,
        next=page[-1].file if start + limit < len(shown) else "",
    )


def _all_live(segments: list[Segment]) -> list[Segment]:
    """Of a log from which nothing is ever taken away."""
    return [
        one if one.state == ACTIVE else msgspec.structs.replace(one, live_bytes=one.bytes, dead_bytes=0, pinned_bytes=0)
        for one in segments
    ]


def _with_damage(segments: list[Segment], damage: list[Damage]) -> list[Segment]:
    if not damage:
        return segments
    by_file: dict[str, list[Damage]] = {}
    for one in damage:
        by_file.setdefault(one.file, []).append(one)
    return [msgspec.structs.replace(one, damage=by_file.get(one.file, [])) for one in segments]
