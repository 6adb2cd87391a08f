"""Who may ask: bearer tokens from a file, and the host names that a request without a token may use.

In: a file of tokens, a request's headers. Out: the sketches that it may see, or a refusal. Touches: the file.

Tokens are compared by their digests, in constant time. Neither a token nor its digest is written anywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sketchstream.errors import ConfigError

SHORTEST: Final = 16
"""Characters of a token."""
COOKIE: Final = "sketchstream_token"
"""Holds the token of somebody who has signed in with a browser."""
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Token:
    """One token.

    Args:
        name: name of its owner, for the request log.
        digest: SHA-256 of the token.
        sketches: that it may see; None: all.
    """

    name: str
    digest: bytes = field(repr=False)
    sketches: frozenset[str] | None


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Args:
        tokens: accepted tokens; without any, everyone who can reach the address has access.
        hosts: names that a request may call this service by; None: any. Without tokens this keeps pages of other
            hosts in a visitor's browser from reading answers (DNS rebinding).
    """

    tokens: tuple[Token, ...] = ()
    hosts: frozenset[str] | None = LOOPBACK

    def find(self, authorization: str | None) -> Token | None:
        """The token of an Authorization header; None if it is none of ours."""
        scheme, _, given = (authorization or "").partition(" ")
        return self.match(given) if scheme.lower() == "bearer" else None

    def match(self, given: str) -> Token | None:
        """Find the accepted token that equals a given one; None if there is none."""
        digest = hashlib.sha256(given.strip().encode("latin-1", "replace")).digest()
        found = None
        for token in self.tokens:  # all of them, whichever it is
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    def knows_host(self, host: str | None) -> bool:
        """Whether a request may call this service so."""
        if self.hosts is None:
            return True
        name = (host or "").strip().lower()
        name = name[1 : name.find("]")] if name.startswith("[") else name.rsplit(":", 1)[0]
        return name in self.hosts


def read_tokens(path: Path, sketches: Sequence[str]) -> tuple[Token, ...]:
    """The tokens of a TOML file: one `[[token]]` each, with `name`, `token` or `sha256`, and `sketches`.

    Args:
        path: of the file.
        sketches: names that there are.

    Raises:
        ConfigError: the file cannot be read, or an entry cannot be used.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"cannot read serve.tokens {path}: {error.strerror}"
        raise ConfigError(msg) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # the parser's own text may show the line, and so a token
        msg = f"serve.tokens {path} is not valid TOML"
        raise ConfigError(msg) from None
    entries = data.get("token")
    if not isinstance(entries, list) or not entries or data.keys() != {"token"}:
        msg = f"serve.tokens {path} must hold one [[token]] for each token, and nothing else"
        raise ConfigError(msg)
    return tuple(_token(entry, number, path, sketches) for number, entry in enumerate(entries, 1))


def _token(entry: object, number: int, path: Path, known: Sequence[str]) -> Token:
    where = f"token {number} of {path}"
    if not isinstance(entry, Mapping) or not entry.keys() <= {"name", "token", "sha256", "sketches"}:
        msg = f"{where} takes name, sketches, and one of token and sha256"
        raise ConfigError(msg)
    name, given, digest = entry.get("name"), entry.get("token"), entry.get("sha256")
    if not isinstance(name, str) or not name.isprintable() or not name or " " in name:
        msg = f"{where} needs a name without spaces, by which the request log speaks of it"
        raise ConfigError(msg)
    if (given is None) == (digest is None):
        msg = f"{where} needs either token or sha256"
        raise ConfigError(msg)
    if given is not None:
        if not isinstance(given, str) or len(given) < SHORTEST or not given.isascii() or " " in given:
            msg = f"{where}: a token is at least {SHORTEST} ASCII characters without spaces"
            raise ConfigError(msg)
        found = hashlib.sha256(given.encode()).digest()
    else:
        try:
            found = bytes.fromhex(str(digest))
        except ValueError:
            found = b""
        if len(found) != hashlib.sha256().digest_size:
            msg = f"{where}: sha256 must be 64 hexadecimal digits (`printf %s TOKEN | sha256sum`)"
            raise ConfigError(msg)
    sketches = entry.get("sketches")
    if sketches == "*":
        return Token(name, found, None)
    if not isinstance(sketches, list) or not all(isinstance(one, str) for one in sketches):
        msg = f'{where}: sketches must be a list of names, or "*" for all'
        raise ConfigError(msg)
    unknown = [one for one in sketches if one not in known]
    if unknown:
        msg = f"{where}: no sketch is named {unknown[0]!r:.60} (there are: {', '.join(known)})"
        raise ConfigError(msg)
    return Token(name, found, frozenset(sketches))
