"""The commands about the entries of a topic. Those about its groups are in group_commands."""

from __future__ import annotations

from lamina.server.resp.dispatch import Handler
from lamina.server.resp.stream_adding import xadd, xdel, xsetid, xtrim
from lamina.server.resp.stream_info import info_stream
from lamina.server.resp.stream_reading import xlen, xrange, xread, xrevrange

COMMANDS: dict[bytes, Handler] = {
    b"xadd": xadd,
    b"xlen": xlen,
    b"xrange": xrange,
    b"xrevrange": xrevrange,
    b"xread": xread,
    b"xdel": xdel,
    b"xtrim": xtrim,
    b"xsetid": xsetid,
    b"xinfo|stream": info_stream,
}
