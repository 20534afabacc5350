"""Commands about the server: its commands, its state, its settings, and what it does not have and need not refuse."""

from __future__ import annotations

import math
import os
import platform
import resource
from collections.abc import Callable, Iterable

from lamina.engines import loops
from lamina.server.resp import help_texts, info_sections, replies
from lamina.server.resp.dispatch import HANDLERS, Handler
from lamina.server.resp.glob import compile_glob
from lamina.server.resp.guard import may_see_server
from lamina.server.resp.help_texts import help_of
from lamina.server.resp.replies import Map, Set, Simple, Value, Verbatim, encode
from lamina.server.resp.session import Args, Refusal, Session, Wait
from lamina.server.resp.settings import REDIS_VERSION, whole_number
from lamina.server.resp.table import FACTS, Facts, look_up

_SYNTAX = "ERR syntax error"
_LONGEST_SLEEP_S = 86_400.0
_DAY_S = 86_400


# -- COMMAND -------------------------------------------------------------------------------------------------------


def command(session: Session, args: Args) -> bytes:
    return encode([_facts(facts) for facts in FACTS.values()], session.version)


def command_count(session: Session, args: Args) -> bytes:
    return replies.integer(len(FACTS))


def command_info(session: Session, args: Args) -> bytes:
    if len(args) == 2:
        return command(session, args)
    return encode([_facts(facts) if (facts := look_up(name)) else None for name in args[2:]], session.version)


def command_docs(session: Session, args: Args) -> bytes:
    """Names that are not known are left out."""
    found = [facts for name in args[2:] if (facts := look_up(name))] if len(args) > 2 else FACTS.values()
    return encode(_docs(found), session.version)


def command_list(session: Session, args: Args) -> bytes:
    """COMMAND LIST [FILTERBY (MODULE | ACLCAT | PATTERN) value]. Only a filter shows what is below a command."""
    if len(args) == 2:
        return encode(list(FACTS), session.version)
    if len(args) != 5 or args[2].lower() != b"filterby":
        raise Refusal(_SYNTAX)
    by, value = args[3].lower(), args[4]
    match by:
        case b"module":
            return replies.EMPTY_ARRAY
        case b"aclcat":
            found = [facts.name for facts in _every() if b"@" + value.lower() in facts.categories]
        case b"pattern":
            found = list(filter(compile_glob(value, ignore_case=True), (facts.name for facts in _every())))
        case _:
            raise Refusal(_SYNTAX)
    return encode(found, session.version)


def _every() -> Iterable[Facts]:
    return (each for facts in FACTS.values() for each in (facts, *facts.subcommands.values()))


def command_getkeys(session: Session, args: Args) -> bytes:
    words = args[2:]
    facts = FACTS.get(words[0].lower())
    if facts and facts.subcommands:
        facts = facts.subcommands.get(words[1].lower())
    if facts is None:
        raise Refusal("ERR Invalid command specified")
    if not facts.has_keys:
        raise Refusal("ERR The command has no key arguments")
    if not facts.fits(len(words)):
        raise Refusal("ERR Invalid number of arguments specified for command")
    keys = facts.keys_of(words)
    if not keys:
        raise Refusal("ERR Invalid arguments specified for command")
    return encode(keys, session.version)


def _facts(facts: Facts) -> Value:
    return [
        facts.name,
        facts.arity,
        Set([Simple(flag) for flag in facts.flags]),
        facts.first_key,
        facts.last_key,
        facts.step,
        Set([Simple(category) for category in facts.categories]),
        Set(facts.tips),
        Set(_key_places(facts)),
        [_facts(below) for below in facts.subcommands.values()] or Set(()),  # in Redis, too, only none are a set
    ]


def _key_places(facts: Facts) -> list[Value]:
    """Where the keys are, in the words of Redis 7: how to find the first one, and the others from there."""
    if facts.streams_from:
        start: Value = Map([(b"keyword", b"STREAMS"), (b"startfrom", facts.streams_from)])
        return [_key_place(facts.access[0], b"keyword", start, last=-1, limit=2)]
    if len(facts.access) > 1:
        firsts = range(facts.first_key, facts.last_key + 1, facts.step)
        return [
            _key_place(access, b"index", Map([(b"index", first)]), last=0)
            for access, first in zip(facts.access, firsts, strict=True)
        ]
    last = facts.last_key - facts.first_key if facts.last_key > 0 else facts.last_key
    start = Map([(b"index", facts.first_key)])
    return [_key_place(access, b"index", start, last=last, step=facts.step) for access in facts.access]


def _key_place(
    access: tuple[bytes, ...], by: bytes, start: Value, *, last: int, step: int = 1, limit: int = 0
) -> Value:
    steps: Value = Map([(b"lastkey", last), (b"keystep", step), (b"limit", limit)])
    return Map(
        [
            (b"flags", Set([Simple(flag) for flag in access])),
            (b"begin_search", Map([(b"type", by), (b"spec", start)])),
            (b"find_keys", Map([(b"type", b"range"), (b"spec", steps)])),
        ]
    )


def _docs(found: Iterable[Facts]) -> Map:
    return Map([(facts.name, _doc(facts)) for facts in found])


def _doc(facts: Facts) -> Map:
    pairs: list[tuple[Value, Value]] = [
        (b"summary", facts.summary),
        (b"since", facts.since),
        (b"group", facts.group),
    ]
    if facts.subcommands:
        pairs.append((b"subcommands", _docs(facts.subcommands.values())))
    return Map(pairs)


# -- INFO ----------------------------------------------------------------------------------------------------------


def info(session: Session, args: Args) -> bytes:
    """INFO [section ...]. A section that is not known is empty; those of the engines have to be asked for."""
    asked = {word.lower() for word in args[1:]} or {b"default"}
    if asked & {b"default", b"all", b"everything"}:
        asked |= _SECTIONS.keys()
    if not asked <= _SECTIONS.keys() | {b"default", b"all", b"everything"}:
        loops.must_wait()  # those of the engines look at much, some at the disk
    sections = _SECTIONS | info_sections.SECTIONS | session.house.settings.sections
    shown = [_section(title, facts(session)) for name, (title, facts) in sections.items() if name in asked]
    return encode(Verbatim(b"\r\n".join(shown)), session.version)


def _section(title: bytes, facts: dict[str, object]) -> bytes:
    return b"# %b\r\n%b" % (title, "".join(f"{name}:{value}\r\n" for name, value in facts.items()).encode())


def _of_server(session: Session) -> dict[str, object]:
    house = session.house
    now_ns = house.clock.now_ns()
    up_s = max(now_ns - house.started_ns, 0) // 10**9
    return {
        "redis_version": REDIS_VERSION,
        "lamina_version": house.settings.version,
        "redis_mode": "standalone",
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "arch_bits": 64,
        "process_id": os.getpid(),
        "run_id": house.settings.run_id,
        "tcp_port": _port(session),
        "server_time_usec": now_ns // 1000,
        "uptime_in_seconds": up_s,
        "uptime_in_days": up_s // _DAY_S,
    }


def _port(session: Session) -> int:
    """That this client came to, whatever the settings say (0: any that is free); 0: no port but a file."""
    port = session.local_address.rpartition(b":")[2]
    return int(port) if port.isdigit() else 0


def _of_clients(session: Session) -> dict[str, object]:
    sessions = session.house.sessions.values()
    return {
        "connected_clients": len(sessions),
        "cluster_connections": 0,
        "maxclients": session.house.settings.max_connections,
        "blocked_clients": sum(each.is_waiting for each in sessions),
        "tracking_clients": 0,
    }


def _of_memory(session: Session) -> dict[str, object]:
    """Of the whole process: nothing smaller is counted."""
    page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    with open("/proc/self/statm", "rb") as file:
        now = int(file.read().split()[1]) * page
    peak = max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, now)
    return {
        "used_memory": now,
        "used_memory_human": _human(now),
        "used_memory_rss": now,
        "used_memory_rss_human": _human(now),
        "used_memory_peak": peak,
        "used_memory_peak_human": _human(peak),
        "total_system_memory": page * pages,
        "total_system_memory_human": _human(page * pages),
        "maxmemory": 0,
        "maxmemory_human": "0B",
        "maxmemory_policy": "noeviction",
    }


def _human(count: int) -> str:
    """As Redis shortens it: 1048576 → ``1.00M``."""
    for power, unit in enumerate("KMGTP", 1):
        if count < 1024 ** (power + 1):
            return f"{count / 1024**power:.2f}{unit}" if count >= 1024 else f"{count}B"
    return f"{count}B"


def _of_persistence(session: Session) -> dict[str, object]:
    settings = session.house.settings
    return {
        "loading": 0,
        "rdb_bgsave_in_progress": 0,
        "aof_enabled": 1,
        "aof_rewrite_in_progress": 0,
        "lamina_sync": settings.sync,
        "lamina_folder": settings.folder if may_see_server(session) else "",
    }


def _of_stats(session: Session) -> dict[str, object]:
    house = session.house
    return {
        "total_connections_received": house.connections,
        "total_commands_processed": house.commands,
        "expired_keys": 0,
        "evicted_keys": 0,
        "pubsub_channels": 0,
        "pubsub_patterns": 0,
    }


def _of_replication(session: Session) -> dict[str, object]:
    return {
        "role": "master",
        "connected_slaves": 0,
        "master_failover_state": "no-failover",
        "master_replid": session.house.settings.run_id,
        "master_repl_offset": 0,
    }


def _of_cpu(session: Session) -> dict[str, object]:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "used_cpu_sys": f"{own.ru_stime:.6f}",
        "used_cpu_user": f"{own.ru_utime:.6f}",
        "used_cpu_sys_children": f"{children.ru_stime:.6f}",
        "used_cpu_user_children": f"{children.ru_utime:.6f}",
    }


def _of_cluster(session: Session) -> dict[str, object]:
    return {"cluster_enabled": 0}


def _of_keyspace(session: Session) -> dict[str, object]:
    """DBSIZE counts; what it says is the one number of keys there is."""
    answer = HANDLERS[b"dbsize"](session, [b"dbsize"])
    assert isinstance(answer, bytes)
    count = int(answer[1:])
    return {"db0": f"keys={count},expires=0,avg_ttl=0"} if count else {}


_SECTIONS: dict[bytes, tuple[bytes, Callable[[Session], dict[str, object]]]] = {
    b"server": (b"Server", _of_server),
    b"clients": (b"Clients", _of_clients),
    b"memory": (b"Memory", _of_memory),
    b"persistence": (b"Persistence", _of_persistence),
    b"stats": (b"Stats", _of_stats),
    b"replication": (b"Replication", _of_replication),
    b"cpu": (b"CPU", _of_cpu),
    b"cluster": (b"Cluster", _of_cluster),
    b"keyspace": (b"Keyspace", _of_keyspace),
}


# -- CONFIG --------------------------------------------------------------------------------------------------------


def config_get(session: Session, args: Args) -> bytes:
    """CONFIG GET pattern ...: each setting once. A plain name comes back in the letters it was asked in."""
    known = session.house.settings.shown(_port(session))
    found: dict[bytes, tuple[bytes, bytes]] = {}
    for pattern in args[2:]:
        if any(byte in b"[*?" for byte in pattern):
            fits = compile_glob(pattern, ignore_case=True)
            asked = [(name, name) for name in known if fits(name)]
        else:
            asked = [(pattern.lower(), pattern)]
        for name, shown in asked:
            if name in known:
                found.setdefault(name, (shown, known[name]))
    return encode(Map(list(found.values())), session.version)


def config_set(session: Session, args: Args) -> bytes:
    """CONFIG SET name value ...: all or none."""
    if len(args) % 2:
        raise Refusal(_SYNTAX)
    settings, port = session.house.settings, _port(session)
    known = settings.shown(port)
    wanted: dict[bytes, tuple[bytes, bytes]] = {}
    for shown, value in zip(args[2::2], args[3::2], strict=True):
        name = shown.lower()
        if name not in known:
            raise Refusal(b"ERR Unknown option or number of arguments for CONFIG SET - '%b'" % shown)
        _refuse_if(settings.why_never(name) or ("duplicate parameter" if name in wanted else ""), shown)
        wanted[name] = shown, value
    for name, (shown, value) in wanted.items():  # values come after all names, as in Redis
        _refuse_if(settings.why_not(name, value, port), shown)
    for name, (_, value) in wanted.items():
        settings.change(name, value)
    return replies.OK


def _refuse_if(problem: str, shown: bytes) -> None:
    if problem:
        text = b"ERR CONFIG SET failed (possibly related to argument '%b') - %b"
        raise Refusal(text % (shown, problem.encode()))


def config_resetstat(session: Session, args: Args) -> bytes:
    session.house.commands = session.house.connections = 0
    return replies.OK


# -- others --------------------------------------------------------------------------------------------------------


def time(session: Session, args: Args) -> bytes:
    seconds, rest_ns = divmod(session.house.clock.now_ns(), 10**9)
    return encode([b"%d" % seconds, b"%d" % (rest_ns // 1000)], session.version)


def wait(session: Session, args: Args) -> bytes:
    """WAIT replicas timeout: there are none, and waiting brings none."""
    if whole_number(args[1]) is None:
        raise Refusal("ERR value is not an integer or out of range")
    timeout = whole_number(args[2])
    if timeout is None:
        raise Refusal("ERR timeout is not an integer or out of range")
    if timeout < 0:
        raise Refusal("ERR timeout is negative")
    return replies.integer(0)


def debug(session: Session, args: Args) -> bytes | Wait:
    """DEBUG SLEEP seconds: this client waits, no other does. Inside EXEC nobody can, so it does not."""
    below = args[1].lower()
    if below == b"help" and len(args) == 2:
        return help_of(b"debug")
    if below != b"sleep" or len(args) != 3:
        text = b"ERR unknown subcommand or wrong number of arguments for '%b'. Try DEBUG HELP."
        raise Refusal(text % args[1][:128])
    seconds = _float_or_0(args[2])
    if seconds <= 0 or session.is_in_exec:
        return replies.OK
    return Wait((), min(seconds, _LONGEST_SLEEP_S), lambda: None, replies.OK)


def _float_or_0(text: bytes) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(number) else number


def function_flush(session: Session, args: Args) -> bytes:
    if len(args) > 3:
        raise Refusal(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try FUNCTION HELP." % args[1][:128]
        )
    if len(args) == 3 and args[2].lower() not in (b"sync", b"async"):
        raise Refusal("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
    return replies.OK


def script_flush(session: Session, args: Args) -> bytes:
    if len(args) > 3 or (len(args) == 3 and args[2].lower() not in (b"sync", b"async")):
        raise Refusal("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    return replies.OK


COMMANDS: dict[bytes, Handler] = {
    b"command": command,
    b"command|count": command_count,
    b"command|list": command_list,
    b"command|info": command_info,
    b"command|docs": command_docs,
    b"command|getkeys": command_getkeys,
    b"info": info,
    b"config|get": config_get,
    b"config|set": config_set,
    b"config|resetstat": config_resetstat,
    b"time": time,
    b"wait": wait,
    b"debug": debug,
    b"function|flush": function_flush,
    b"script|flush": script_flush,
    **help_texts.COMMANDS,
}
