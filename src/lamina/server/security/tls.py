"""Certificates: one context for all doors, TLS 1.2 or newer, and a renewed certificate without a restart.

What is wrong with the files is told by the option that named them, in one line, before a door opens.
"""

from __future__ import annotations

import logging
import ssl
import time
from pathlib import Path
from typing import Any, Final

from lamina.errors import BadOption

logger = logging.getLogger("lamina.security")

HANDSHAKE_S: Final = 5.0
"""How long a client may take to agree on a key: give it to ``create_server`` as ``ssl_handshake_timeout``."""
_SOON_S: Final = 14 * 86400


class ServerContext(ssl.SSLContext):
    """What connections begin with. One that doors use is not changed: their threads would have to be held up."""

    renewed: ssl.SSLContext | None = None
    """Whose certificate is shown to whoever comes from now on; None: its own."""


def _latest(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
    """At the beginning of each handshake."""
    if isinstance(context, ServerContext) and context.renewed is not None:
        connection.context = context.renewed


def server_context(cert: str, key: str, client_ca: str | None = None) -> ServerContext:
    """``cert``: the certificate and those between it and the root, PEM. ``client_ca``: clients have to show one of it.

    A certificate that is over, or soon will be, is used all the same; the log says so.
    Raises: BadOption for a file that is missing, cannot be read, is no PEM, or does not fit the other.
    """
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = _latest
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, cert, key)
    if client_ca is not None:
        _readable(client_ca, "tls_client_ca")
        try:
            context.load_verify_locations(cafile=client_ca)
        except ssl.SSLError:
            raise _bad(client_ca, "there is no certificate in it", "tls_client_ca", _PEM) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


_PEM: Final = "give a PEM file, which begins with -----BEGIN"


def _load(context: ssl.SSLContext, cert: str, key: str) -> None:
    certificate = _readable(cert, "tls_cert")
    secret = _readable(key, "tls_key")
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        raise _bad(cert, "there is no certificate in it", "tls_cert", _PEM)
    if b"PRIVATE KEY-----" not in secret:
        raise _bad(key, "there is no private key in it", "tls_key", _PEM)
    if b"ENCRYPTED" in secret:
        raise _bad(key, "a passphrase is needed for it", "tls_key", "store the key without one, readable by its owner")
    try:
        context.load_cert_chain(cert, key, password=b"")
    except ssl.SSLError as error:
        if "MISMATCH" in (error.reason or ""):
            raise _bad(
                key, f"this key does not belong to {cert}", "tls_key", "give the key the certificate was made for"
            ) from None
        why = (error.reason or str(error)).lower().replace("_", " ")
        raise _bad(cert, f"the certificate or {key} cannot be used: {why}", "tls_cert", _PEM) from None
    except OSError as error:
        raise _bad(cert, error.strerror or str(error), "tls_cert", "let the server read it") from None
    _warn_of_end(cert)


def _readable(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise _bad(path, "there is no such file", option, "check the path") from None
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}", option, "let the server read it") from None


def _bad(path: str, reason: str, option: str, hint: str) -> BadOption:
    return BadOption(f"{option} {path}: {reason}", hint=hint, option=option)


def _warn_of_end(cert: str) -> None:
    ends = not_after(cert)
    if ends is None:
        return
    left_s = ends - time.time()
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ends))
    if left_s <= 0:
        logger.warning("the certificate %s is over since %s: clients will refuse it, renew it", cert, when)
    elif left_s < _SOON_S:
        logger.warning("the certificate %s ends %s: renew it, then send SIGHUP", cert, when)


def not_after(cert: str) -> float | None:
    """Until when the first certificate of a file is good, seconds since 1970; None if nobody can tell."""
    decode: Any = getattr(getattr(ssl, "_ssl", None), "_test_decode_cert", None)
    if decode is None:  # of other makers of Python
        return None
    try:
        return float(ssl.cert_time_to_seconds(decode(cert)["notAfter"]))
    except (ssl.SSLError, OSError, KeyError, ValueError):
        return None
