"""What the HELP below a command says: each command on a line, and on the next ones, further in, what it is for."""

from __future__ import annotations

from lamina.server.resp.dispatch import Handler
from lamina.server.resp.replies import array, simple
from lamina.server.resp.session import Args, Session

_TEXTS: dict[bytes, tuple[tuple[str, str], ...]] = {
    b"client": (
        ("GETNAME", "The name of this connection."),
        ("ID", "The number of this connection."),
        ("INFO", "What is known of this connection."),
        ("KILL <ip:port>", "Close the connection that came from there."),
        (
            "KILL <option> <value> [<option> <value> ...]",
            "Close all that fit ID <number>, ADDR, LADDR <ip:port>, TYPE <type>, USER <name>, MAXAGE <seconds>.",
        ),
        (
            "    SKIPME (YES|NO)",
            "    Whether to spare this connection: YES if not said.",
        ),
        ("LIST [TYPE <type> | ID <number> ...]", "What is known of all connections, or of these."),
        ("NO-EVICT (ON|OFF)", "Taken note of; no connection is given up for memory."),
        ("NO-TOUCH (ON|OFF)", "Taken note of; reading does not change keys."),
        ("REPLY (ON|OFF|SKIP)", "Answer commands, do not, or do not answer the next one."),
        ("SETINFO (LIB-NAME|LIB-VER) <value>", "Say which library the client is."),
        ("SETNAME <name>", "Give this connection a name; an empty one takes it away."),
    ),
    b"command": (
        ("(nothing)", "The facts of all commands."),
        ("COUNT", "How many commands there are."),
        ("DOCS [<name> ...]", "What commands are for."),
        ("GETKEYS <command>", "The keys among the words of a command."),
        ("INFO [<name> ...]", "The facts of these commands, or of all."),
        ("LIST [FILTERBY (MODULE|ACLCAT|PATTERN) <value>]", "The names of all commands, or of these."),
    ),
    b"config": (
        ("GET <pattern> [<pattern> ...]", "The settings whose names fit, and their values."),
        ("RESETSTAT", "Count from 0 again."),
        ("SET <name> <value> [<name> <value> ...]", "Change settings. Most are fixed when the server starts."),
    ),
    b"debug": (("SLEEP <seconds>", "Answer after a while. Other connections do not wait."),),
    b"object": (("ENCODING <key>", "How the value of a key is kept."),),
    b"xgroup": (
        (
            "CREATE <key> <group> <id|$> [MKSTREAM] [ENTRIESREAD <count>]",
            "Make a group that reads what is behind the id. MKSTREAM: make the topic, too, if there is none.",
        ),
        ("CREATECONSUMER <key> <group> <consumer>", "Make a consumer."),
        ("DELCONSUMER <key> <group> <consumer>", "Delete a consumer, and what it was given with it."),
        ("DESTROY <key> <group>", "Delete a group."),
        ("SETID <key> <group> <id|$> [ENTRIESREAD <count>]", "Have a group read on from another id."),
    ),
    b"xinfo": (
        ("CONSUMERS <key> <group>", "The consumers of a group."),
        ("GROUPS <key>", "The groups of a topic."),
        ("STREAM <key> [FULL [COUNT <count>]]", "The topic; FULL: with its entries, groups and what they were given."),
    ),
}


def help_of(name: bytes) -> bytes:
    """The answer to ``name`` HELP."""
    lines = [f"{name.decode().upper()} <subcommand> [<argument> ...]. Subcommands are:"]
    for words, meaning in (*_TEXTS[name], ("HELP", "This text.")):
        lines += [words, *(f"    {line}" for line in meaning.split("\n"))]
    return array([simple(line.encode()) for line in lines])


def _handler(name: bytes) -> Handler:
    answer = help_of(name)

    def handler(session: Session, args: Args) -> bytes:
        return answer

    return handler


COMMANDS: dict[bytes, Handler] = {b"%b|help" % name: _handler(name) for name in _TEXTS if name != b"debug"}
"""DEBUG has one handler for all that is below it, as in Redis."""
