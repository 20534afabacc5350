"""What may be open to other machines: nothing that lets anybody in, and nothing that sends tokens in the clear."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable

from lamina.errors import BadOption
from lamina.server.security.gate import Gate

UNIX = "unix:"
OFF = "off"


def check_exposure(
    addresses: Iterable[tuple[str, object]], gate: Gate | None, tls: ssl.SSLContext | None, insecure: bool
) -> None:
    """``addresses``: each door with where it listens, which reads ``HOST:PORT``, ``unix:PATH`` or ``off``.

    Raises: BadOption for a door that other machines reach without logging in, or without TLS, unless ``insecure``.
    """
    if insecure:
        return
    for door, where in addresses:
        if not is_public(str(where)):
            continue
        if gate is None or not gate.is_needed:
            raise BadOption(
                f"{door} on {where} is open to other machines and there is no authentication",
                hint="listen on 127.0.0.1, make users (lamina user add) or set a password, "
                "or say --insecure if the network is yours",
                option=door,
            )
        if tls is None:
            raise BadOption(
                f"{door} on {where} is open to other machines and tokens would go there in the clear",
                hint="give tls_cert and tls_key (--tls-cert, --tls-key), listen on 127.0.0.1, "
                "or say --insecure if the network is yours",
                option=door,
            )


def is_public(where: str) -> bool:
    """Whether other machines can reach it. A name that is not ``localhost`` counts as public: it may become so."""
    if where == OFF or where.startswith(UNIX):
        return False
    host = where.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() != "localhost"
