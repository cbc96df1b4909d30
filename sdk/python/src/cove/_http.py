"""Makes httpx clients for a daemon. httpx is imported when the first client is made, so that `import cove` stays quick."""

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from ._settings import (
    CONNECT_SECONDS,
    IDLE_CONNECTION_SECONDS,
    KEEPALIVE_IDLE_SECONDS,
    KEEPALIVE_INTERVAL_SECONDS,
    KEEPALIVE_PROBES,
    MAX_CONNECTIONS,
    MAX_IDLE_CONNECTIONS,
    REQUEST_SECONDS,
)
from ._version import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from ._find import Endpoint

pid = os.getpid


def _options(endpoint: Endpoint) -> tuple[dict[str, Any], dict[str, Any]]:
    import httpx

    # A peer that vanished without a word is noticed by the kernel, also while a request waits for its answer.
    keepalive = [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPIDLE", 0), KEEPALIVE_IDLE_SECONDS),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPINTVL", 0), KEEPALIVE_INTERVAL_SECONDS),
        (socket.IPPROTO_TCP, getattr(socket, "TCP_KEEPCNT", 0), KEEPALIVE_PROBES),
    ]
    of_transport = {
        # Reading certificates takes longer than a command, and plain HTTP needs none.
        "verify": ssl.create_default_context() if endpoint.is_tls else False,
        "limits": httpx.Limits(
            max_connections=MAX_CONNECTIONS,
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_CONNECTION_SECONDS,
        ),
        "uds": endpoint.socket,
        "socket_options": None if endpoint.socket else [option for option in keepalive if option[1]],
    }
    of_client = {
        "headers": {"Authorization": f"Bearer {endpoint.key}", "User-Agent": f"cove-python/{VERSION}"},
        "timeout": httpx.Timeout(REQUEST_SECONDS, connect=CONNECT_SECONDS, pool=CONNECT_SECONDS),
        "trust_env": False,  # a proxy of the environment must not get requests to this machine
        "follow_redirects": False,
    }
    return of_transport, of_client


def async_client(endpoint: Endpoint) -> httpx.AsyncClient:
    import httpx

    of_transport, of_client = _options(endpoint)
    return httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(**of_transport), **of_client)


def sync_client(endpoint: Endpoint) -> httpx.Client:
    import httpx

    of_transport, of_client = _options(endpoint)
    return httpx.Client(transport=httpx.HTTPTransport(**of_transport), **of_client)


def segment(text: str) -> str:
    """One part of a path. `.` and `..` would be resolved on the way if they were not encoded."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def file_path(path: str) -> str:
    """The path of a file below `…/files/`. An absolute one keeps its slash."""
    if not path or "\0" in path:
        raise ValueError(f"{path!r} is no path of a file")
    return "/".join(segment(part) for part in path.split("/"))


def query(parameters: Mapping[str, Any]) -> str:
    """The query of an address, without what is None. A flag is 1 or 0; a list is repeated."""
    pairs: list[tuple[str, str]] = []
    for name, value in parameters.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None:
                pairs.append((name, str(int(one)) if isinstance(one, bool) else str(one)))
    return "?" + urlencode(pairs, quote_via=quote) if pairs else ""


def given(**fields: Any) -> dict[str, Any]:
    """The fields of a request that have a value."""
    return {name: value for name, value in fields.items() if value is not None}
