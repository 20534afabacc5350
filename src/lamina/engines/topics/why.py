"""Why a topic is as large as it is: what its limits would let go, and which group, or which consumer of its log, keeps
it from going.

Plain values only, so that ``dataclasses.asdict`` gives JSON.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import takewhile

from lamina.engines.topics import group_lag, ids
from lamina.engines.topics.compaction import Waste
from lamina.engines.topics.holding import Holder
from lamina.engines.topics.retention import Retention
from lamina.engines.topics.shedding import DEAD, Shedder, Verdict
from lamina.engines.topics.topic import Topic
from lamina.log.consumer_file import NEVER, Consumer
from lamina.log.naming import TIMED
from lamina.units import show_bytes, show_time


@dataclass(frozen=True, slots=True)
class LimitReport:
    """What one limit alone would let go, if no group held anything."""

    limit: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class HolderReport:
    """A group that needs entries of the oldest file."""

    group: str
    holds: bool
    """False: nobody of it was seen for so long that it does not count."""
    pending: int
    """Entries that were delivered and not acknowledged."""
    unread: int | None
    """Entries that were not delivered yet; None: that cannot be known."""
    oldest_needed: str
    consumers: int
    idle_s: int
    """Seconds since somebody of it was seen; if nobody ever was, since this process first saw the group."""
    advice: str


@dataclass(frozen=True, slots=True)
class LogConsumerReport:
    """One that reads the log from outside, and has yet to read records of the oldest file."""

    consumer: str
    position: str | None
    """The time of the last record it has read; None: its position cannot be read, so it holds everything for now."""
    expires: str | None
    """When it stops holding them; None: that is not known yet."""
    advice: str


@dataclass(frozen=True, slots=True)
class WhyReport:
    """Of one topic."""

    retention: str
    bytes: int
    files: int
    length: int
    oldest_entry: str | None
    oldest_written: str | None
    """When the oldest file was begun."""
    newest_sealed: str | None
    """The newest file that may go at all: the one that grows never does."""
    limits: list[LimitReport]
    goes_files: int
    """What goes at the next look."""
    goes_bytes: int
    holders: list[HolderReport]
    answer: str
    """All of it in one sentence."""
    log_consumers: list[LogConsumerReport] = field(default_factory=list)
    dead_files: int = 0
    """Files that are written anew at the next look, without what is dead in them."""
    dead_bytes: int = 0
    """What that gives back, about."""
    past_files: int = 0
    """Files that stay, or stay as they are, for the recent past."""
    past_bytes: int = 0
    """What they would give back, about."""


def why(topic: Topic, retention: Retention, now_ns: int, *, shedder: Shedder | None = None) -> WhyReport:
    """``shedder``: the one that looks after the topic, if there is one; it knows since when groups are idle.

    Changes nothing. Raises: Corruption, DiskError.
    """
    shedder = shedder or Shedder(topic)
    with topic.at_work:
        consumers = shedder.consumers()
        wastes = shedder.wastes(holding=consumers)
        past = shedder.past(retention, consumers, wastes)
        verdicts = list(shedder.verdicts(retention, holding=consumers, past=past))
        limits = [_report_limit(shedder, limit) for limit in _one_by_one(retention)]
        holders = shedder.holders()
        sealed, grows = shedder.files.names()
        size = shedder.files.size()
        oldest = shedder.files.facts(sealed[0]) if sealed else None
    going = list(takewhile(lambda verdict: verdict.goes, verdicts))
    last_id = oldest.last_id if oldest is not None else None
    newest_ns = oldest.newest_ns if oldest is not None else 0
    names_going = {verdict.name for verdict in going}
    dead = [waste for waste in wastes if waste.name not in names_going and waste.name.name not in past]
    kept = {verdict.name: verdict.facts.bytes for verdict in verdicts if verdict.is_past}
    kept |= {waste.name: waste.bytes for waste in wastes if waste.name.name in past}
    reports = [
        _report_holder(topic, one, now_ns, holds=one.holds(last_id, newest_ns, retention.hold_s, now_ns))
        for one in holders
        if one.needs(last_id)
    ]
    first = topic.first_id()
    names = [*sealed, *([grows] if grows is not None else [])]
    return WhyReport(
        retention=str(retention),
        bytes=size,
        files=len(names),
        length=topic.state.length,
        oldest_entry=None if first is None else ids.show(first).decode(),
        oldest_written=show_time(names[0].number) if names else None,
        newest_sealed=sealed[-1].name if sealed else None,
        limits=limits,
        goes_files=len(going),
        goes_bytes=_size_of(going),
        holders=reports,
        answer=_answer(
            retention, verdicts, going, has_sealed=bool(sealed), size=size, dead=dead, past_bytes=sum(kept.values())
        ),
        log_consumers=[_report_consumer(one) for one in consumers if newest_ns > one.position_in(TIMED.name)],
        dead_files=len(dead),
        dead_bytes=sum(waste.bytes for waste in dead),
        past_files=len(kept),
        past_bytes=sum(kept.values()),
    )


def _one_by_one(retention: Retention) -> Iterable[Retention]:
    nothing = Retention()
    for name in ("age_s", "bytes", "length", "acknowledged"):
        value = getattr(retention, name)
        if value not in (None, False):
            yield replace(nothing, **{name: value})


def _report_limit(shedder: Shedder, limit: Retention) -> LimitReport:
    going = [verdict for verdict in shedder.verdicts(limit, with_holders=limit.acknowledged) if verdict.goes]
    return LimitReport(str(limit), len(going), _size_of(going))


def _size_of(verdicts: Iterable[Verdict]) -> int:
    return sum(verdict.facts.bytes for verdict in verdicts)


def _report_holder(topic: Topic, holder: Holder, now_ns: int, *, holds: bool) -> HolderReport:
    with topic.lock:
        group = topic.groups.state.groups.get(holder.name)
        pending = 0 if group is None else len(group.pending)
        consumers = 0 if group is None else len(group.consumers)
        unread = None if group is None else group_lag.lag(topic, group)
    name = show_name(holder.name)
    idle_s = max(now_ns // 1_000_000 - holder.seen_ms, 0) // 1000
    if not holds:
        advice = "it does not hold them any more: read them soon, or they are gone"
    elif not consumers:
        advice = f"nobody reads for it: start a consumer, or destroy the group {name!r} if it is not needed"
    elif pending:
        advice = "let its consumers acknowledge what they got, or claim it for another consumer"
    else:
        advice = "let its consumers read on: they are behind"
    needed = ids.show(holder.needed).decode()
    return HolderReport(name, holds, pending, unread, needed, consumers, idle_s, advice)


def _report_consumer(one: Consumer) -> LogConsumerReport:
    remove = f'or remove it with "lamina log consumers DIR --remove {one.name}" if it is not needed'
    expires = None if one.expires_ns == NEVER else show_time(one.expires_ns)
    if one.damage is not None:
        advice = f"its position cannot be read ({one.damage}): let it save another, {remove}"
        return LogConsumerReport(one.name, None, expires, advice)
    advice = f"let it read on, for it is behind, {remove}"
    return LogConsumerReport(one.name, show_time(one.position_in(TIMED.name)), expires, advice)


def show_name(name: bytes) -> str:
    """For people, and for JSON."""
    return name.decode("utf-8", "backslashreplace")


def _answer(
    retention: Retention,
    verdicts: list[Verdict],
    going: list[Verdict],
    *,
    has_sealed: bool,
    size: int,
    dead: list[Waste],
    past_bytes: int,
) -> str:
    stays = next((verdict for verdict in verdicts if not verdict.goes), None)
    if going:
        more = "" if all(verdict.reason == DEAD for verdict in going) else "they are past a limit, or "
        return f"{show_bytes(_size_of(going))} go at the next look: {more}nothing in them is alive"
    if stays is not None and stays.holders and stays.reason is not None:
        names = ", ".join(show_name(one.name) for one in stays.holders)
        hold = "" if retention.hold_s is not None else " (with hold:30d, say, idle groups do not hold for ever)"
        return f"held by {names}: the limit on {stays.reason} would let the oldest file go{hold}"
    if stays is not None and stays.consumers and stays.reason is not None:
        names = ", ".join(one.name for one in stays.consumers)
        past = "nothing in it is alive" if stays.reason == DEAD else f"the limit on {stays.reason} would let it go"
        return f"the oldest file is kept for who has yet to read the log, {names}: {past}"
    if dead:
        freed = show_bytes(sum(waste.bytes for waste in dead))
        return f"about {freed} go at the next look: {len(dead)} files are written anew without what is dead in them"
    if past_bytes:
        return f"about {show_bytes(past_bytes)} are dead and stay for the recent past"
    if not has_sealed:
        return f"all {show_bytes(size)} are in the newest file, which never goes"
    if not retention.has_limits:
        return "no limit is set: all that is alive is kept"
    return f"nothing is past a limit ({retention})"
