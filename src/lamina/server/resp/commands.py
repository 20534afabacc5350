"""All commands of the RESP door, by name in small letters."""

from __future__ import annotations

from typing import Final

from lamina.server.resp import (
    connection_commands,
    group_commands,
    key_commands,
    lamina_commands,
    queue_commands,
    server_commands,
    store_commands,
    store_epochs,
    stream_commands,
    transactions,
    waitaof,
)
from lamina.server.resp.dispatch import Handler

COMMANDS: Final[dict[bytes, Handler]] = {
    **connection_commands.COMMANDS,
    **server_commands.COMMANDS,
    **transactions.COMMANDS,
    **key_commands.COMMANDS,
    **stream_commands.COMMANDS,
    **group_commands.COMMANDS,
    **queue_commands.COMMANDS,
    **store_commands.COMMANDS,
    **store_epochs.COMMANDS,
    **waitaof.COMMANDS,
    **lamina_commands.COMMANDS,
}
