"""Addresses: host, port, and whether they are reachable only from this machine.

In: text. Out: a host and a port. Touches: nothing.
"""

from __future__ import annotations

import ipaddress
import re

from sketchstream.errors import ConfigError


def address(text: str, name: str) -> tuple[str, int]:
    """Parse host and port of "127.0.0.1:9400" or "[::1]:9400".

    Raises:
        ConfigError: the text is not an address; names the setting.
    """
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\s]+):(\d{1,5})", text)
    if match is None or int(match[2]) > 65535:
        raise ConfigError(f"{name} must be HOST:PORT, for example '127.0.0.1:9400', found {text!r:.60}")
    return match[1].strip("[]"), int(match[2])


def is_loopback(host: str) -> bool:
    """Whether a local address can be reached only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
