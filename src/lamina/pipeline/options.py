"""The options of a read or a stream, parsed in one place. Names are Kafka's where the meaning is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from lamina.errors import BadOption
from lamina.units import MIB, parse_bytes, parse_duration, parse_time

T = TypeVar("T")

READING: Final = {
    "path": "a data folder, or one log of it; a URI for shared storage",
    "view": "which table: records, jobs, job_state, topic ... (docs/reference/spark.md)",
    "topic": "only these topics: names or patterns, with commas between them",
    "startingTimestamp": "records from this time on",
    "endingTimestamp": "records before this time",
    "asOf": "for a state: as it was at this time",
    "mode": "what to do about damage: failfast or permissive",
    "minPartitions": "at least so many partitions, if there is enough to divide",
    "maxPartitionBytes": "at most about so many bytes in a partition",
    "filterPushdown": "let filters spare files and rows; for a DataFrame that is used once (decisions/0014-filters.md)",
}
STREAMING: Final = {
    "startingOffsets": "where a new stream begins: earliest, latest, or the JSON of an offset",
    "maxRecordsPerTrigger": "at most about so many records in a batch",
    "maxBytesPerTrigger": "at most about so many bytes in a batch",
    "failOnDataLoss": "whether it is an error that records were removed before the stream had read them",
    "consumer": "a name under which cleaning waits for this stream",
    "consumerExpiry": "how long cleaning waits after the last sign of life",
}
_OF_BATCHES: Final = ("asOf", "filterPushdown", "endingTimestamp")
_INSTEAD: Final = {
    "startingOffsets": "use startingTimestamp, or spark.readStream",
    "endingTimestamp": "a stream has no end: leave it out; trigger(availableNow=True) ends",
    "asOf": "read the state with spark.read, or begin the stream at a time with startingTimestamp",
}
_OF_SPARK: Final = {"paths", "checkpointLocation", "queryName"}
"""What Spark itself puts among the options."""

PERMISSIVE: Final = "permissive"
_MODES: Final = ("failfast", PERMISSIVE)
_MOST_DIGITS: Final = 18  # of a number of 64 bits
_FIRST_LIKELY_NS: Final = 10**17  # 1973: a smaller number was meant as milliseconds or seconds


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint: the known word that is most like this one, or all of them."""
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(word.lower(), by_lower, 1, 0.6)
    return f"did you mean {by_lower[close[0]]}?" if close else f"one of {', '.join(sorted(by_lower.values()))}"


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raises: BadOption for an option that nobody knows, with the nearest right spelling."""
    lower = {each.lower() for each in (*known, *_OF_SPARK)}
    for name in given:
        if name.lower() not in lower:
            raise BadOption(f"there is no option {name!r}", hint=nearest(name, known))


def check_use(given: Iterable[str], *, is_stream: bool) -> None:
    """Raises: BadOption for an option that would be passed over: one of streams in a batch read, or the opposite."""
    uses = "a batch read", "a stream"
    here, there = reversed(uses) if is_stream else uses
    others = _OF_BATCHES if is_stream else STREAMING
    known = {name.lower(): name for name in others}
    for name in given:
        if (spelt := known.get(name.lower())) is not None:
            about = {**READING, **STREAMING}[spelt]
            raise BadOption(
                f"{spelt} is for {there}, and this is {here}", hint=_INSTEAD.get(spelt, f"leave it out: {about}")
            )


def parse_moment(name: str, text: str) -> int:
    """Nanoseconds since 1970. Raises: BadOption."""
    moment = _named(name, parse_time, text)
    if text.strip().isdecimal() and 0 < moment < _FIRST_LIKELY_NS:
        raise BadOption(
            f"{name}: {text} nanoseconds is a moment of the early seventies",
            hint=f"numbers are nanoseconds since 1970; write {text}000000 if these are milliseconds, or a date",
        )
    return moment


def _named(name: str, parse: Callable[[str], T], text: str) -> T:
    """Raises: BadOption, naming the option."""
    try:
        return parse(text)
    except BadOption as error:
        raise BadOption(f"{name}: {error.message}", hint=error.hint) from None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What was asked for."""

    path: str
    view: str | None = None
    topics: tuple[str, ...] = ()
    """Patterns; none: all topics."""
    since_ns: int | None = None
    until_ns: int | None = None
    as_of_ns: int | None = None
    is_permissive: bool = False
    min_partitions: int = 8
    max_partition_bytes: int = 128 * MIB
    pushes_filters: bool = False
    starting: str = "earliest"
    max_records: int | None = None
    max_bytes: int | None = None
    fail_on_loss: bool = True
    consumer: str | None = None
    consumer_expiry_s: float = 7 * 86400.0

    def takes_topic(self, name: str) -> bool:
        return not self.topics or any(fnmatchcase(name, pattern) for pattern in self.topics)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Raises: BadOption, naming the option and what is right."""
        check_names(given, [*READING, *STREAMING])
        options = {name.lower(): value for name, value in given.items()}
        known = {name.lower(): name for name in (*READING, *STREAMING)}

        def moment(name: str) -> int | None:
            text = options.get(name)
            return None if text is None else parse_moment(known[name], text)

        def number(name: str, least: int = 1) -> int | None:
            text = options.get(name)
            if text is None:
                return None
            digits = text.strip()
            if not digits.isdecimal() or len(digits) > _MOST_DIGITS or int(digits) < least:
                raise BadOption(f"{known[name]}: {text!r} is no number of {least} or more", hint="give one in digits")
            return int(digits)

        def size(name: str) -> int | None:
            text = options.get(name)
            if text is None:
                return None
            found = _named(known[name], parse_bytes, text)
            if not found:
                raise BadOption(f"{known[name]}: {text!r} is nothing")
            return found

        def flag(name: str, default: bool) -> bool:
            text = options.get(name, str(default)).strip().lower()
            if text not in ("true", "false"):
                raise BadOption(f"{known[name]}: {text!r} is neither true nor false")
            return text == "true"

        path = options.get("path")
        if not path:
            raise BadOption("no path was given", hint='spark.read.format("lamina").load("data")')
        mode = options.get("mode", _MODES[0]).lower()
        if mode not in _MODES:
            raise BadOption(f"mode: there is no {mode!r}", hint=nearest(mode, _MODES))
        since, until = moment("startingtimestamp"), moment("endingtimestamp")
        if since is not None and until is not None and until < since:
            raise BadOption("endingTimestamp is before startingTimestamp", hint="exchange the two")
        if since is not None and "startingoffsets" in options:
            raise BadOption("startingTimestamp and startingOffsets both say where to begin", hint="leave one out")
        expiry = options.get("consumerexpiry")
        return cls(
            path=path,
            view=options.get("view"),
            topics=tuple(name.strip() for name in options.get("topic", "").split(",") if name.strip()),
            since_ns=since,
            until_ns=until,
            as_of_ns=moment("asof"),
            is_permissive=mode == PERMISSIVE,
            min_partitions=number("minpartitions") or 8,
            max_partition_bytes=size("maxpartitionbytes") or 128 * MIB,
            starting=options.get("startingoffsets", "earliest"),
            max_records=number("maxrecordspertrigger"),
            max_bytes=size("maxbytespertrigger"),
            pushes_filters=flag("filterpushdown", False),
            fail_on_loss=flag("failondataloss", True),
            consumer=options.get("consumer"),
            consumer_expiry_s=7 * 86400.0 if expiry is None else _named("consumerExpiry", parse_duration, expiry),
        )
