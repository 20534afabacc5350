"""The commands of the store about its epochs and files that others ask for: ``S.SNAPSHOT``, ``S.WAIT``, ``S.SWITCH``,
``S.CLEAN``."""

from __future__ import annotations

from lamina.server.resp import replies
from lamina.server.resp.dispatch import Handler
from lamina.server.resp.replies import Map
from lamina.server.resp.session import Args, Refusal, Session, Wait
from lamina.server.resp.store_commands import house_of, in_64_bits, later, not_in_exec
from lamina.server.resp.store_words import SYNTAX, looked_at, number, waited


def snapshot(session: Session, args: Args) -> bytes | Wait:
    """S.SNAPSHOT [ASOF moment]: the epoch of what can be read now, or could then; kept for those who page through it.

    Raises: TooOld; BadEntry for a moment that is yet to come.
    """
    house = house_of(session)
    moment, is_full = looked_at(args, 1)
    if is_full:
        raise Refusal(SYNTAX)
    not_in_exec(session, b"S.SNAPSHOT")

    async def keep() -> bytes:
        await house.sees_its_own(session)
        epoch = await (house.past.pin() if moment is None else house.past.found(moment))
        return replies.encode(in_64_bits(epoch), session.version)

    return later(session, keep)


def wait(session: Session, args: Args) -> bytes | Wait:
    """S.WAIT epoch [BLOCK milliseconds]: 1 when everything up to the epoch is durable, nil if the time was up before.

    Ends the epoch if it is the present one. Raises: what kept it from being durable.
    """
    house = house_of(session)
    epoch, seconds = number(args[1]), waited(args, 2)
    not_in_exec(session, b"S.WAIT")

    async def reached() -> bytes:
        await house.durable.reached(epoch)
        return replies.integer(1)

    return later(session, reached, seconds, must_finish=False)


def switch(session: Session, args: Args) -> bytes:
    """S.SWITCH [epoch]: end the present epoch; the next one. Raises: BadEntry if ``epoch`` is not larger."""
    house = house_of(session)
    if len(args) > 2:
        raise Refusal(SYNTAX)
    following = house.store.switch_epoch(number(args[1]) if len(args) == 2 else None)
    return replies.encode(in_64_bits(following), session.version)


def clean(session: Session, args: Args) -> bytes | Wait:
    """S.CLEAN [KEEP epoch]: remove the files that compactions made obsolete: what went, and what had to stay."""
    house = house_of(session)
    if len(args) not in (1, 3) or (len(args) == 3 and args[1].lower() != b"keep"):
        raise Refusal(SYNTAX)
    keep = number(args[2]) if len(args) == 3 else None
    not_in_exec(session, b"S.CLEAN")

    async def clean() -> bytes:
        done = await house.compact(lambda: house.store.clean_up(keep))
        house.past.forget()
        facts = Map(
            [
                (b"removed", [name.encode() for name in done.removed]),
                (b"removed-bytes", done.bytes),
                (b"kept", [name.encode() for name in done.kept]),
                (b"generation", done.catalog.generation),
                (b"epoch", in_64_bits(done.catalog.epoch)),
            ]
        )
        return replies.encode(facts, session.version)

    return later(session, clean)


COMMANDS: dict[bytes, Handler] = {b"s.snapshot": snapshot, b"s.wait": wait, b"s.switch": switch, b"s.clean": clean}
