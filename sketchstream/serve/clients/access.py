"""Who may ask: bearer tokens from a file, sessions of browsers, and the host names that a request may use.

In: a file of tokens, a request's headers. Out: the token that a request has, or none. Touches: the file, which is read
again when it changes.

Tokens are compared by their digests, in constant time. Neither a token nor its digest is written anywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from sketchstream.config.bounded_toml import read_toml
from sketchstream.errors import ConfigError, SketchstreamError, StoreError
from sketchstream.files import read_file, require_private
from sketchstream.log_events import EventLog
from sketchstream.serve.clients.clients import Guesses

event_log = EventLog("sketchstream.serve")

MIN_TOKEN_CHARACTERS: Final = 16
"""Fewest characters of a token. Shorter ones are refused where they are written; a digest of one is never matched."""
MAX_TOKEN_FILE_BYTES: Final = 1 << 20
"""Most bytes of the file of tokens."""
COOKIE: Final = "sketchstream_session"
"""Name of the cookie that holds the session of somebody who has signed in with a browser."""
SESSION_S: Final = 12 * 3600
"""Seconds for which a session lasts."""
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
HOST: Final = re.compile(r"([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
"""A Host header, in lower case: a name or an address, and a port."""
LOOK_S: Final = 1.0
"""Seconds between two looks at the file of tokens."""
# Answers ask this variable: an argument is what a caller could forget to pass.
VIEWER: Final[ContextVar[frozenset[str] | None]] = ContextVar("viewer", default=None)
"""The sketches that the client may see; None: all. Set for each request, and passed on to the threads it uses."""


def may_see(sketch: str) -> bool:
    """Whether the client may see a sketch."""
    sketches = VIEWER.get()
    return sketches is None or sketch in sketches


def may_see_all() -> bool:
    """Whether the client may see every sketch, and so what speaks of all of them together, or of files."""
    return VIEWER.get() is None


@dataclass(frozen=True)
class Token:
    """One token.

    Args:
        name: name of its owner, for the request log.
        digest: SHA-256 of the token.
        sketches: sketches that the token may see; None: all.
        expires: end of its life, seconds since 1970; None: never.
    """

    name: str
    digest: bytes = field(repr=False)
    sketches: frozenset[str] | None
    expires: float | None = None

    @property
    def valid(self) -> bool:
        """Whether the token has not expired."""
        return self.expires is None or time.time() < self.expires


class Access:
    """Who may ask.

    Args:
        tokens: accepted tokens; without any, everyone who can reach the address has access.
        hosts: names that a request may call this service by; None: any. Without tokens this keeps pages of other
            hosts in a visitor's browser from reading answers (DNS rebinding).
        file: file that the tokens come from; `reload` reads it again.
    """

    def __init__(
        self, tokens: Sequence[Token] = (), hosts: frozenset[str] | None = LOOPBACK, file: TokenFile | None = None
    ) -> None:
        self.tokens, self.hosts, self._file = tuple(tokens), hosts, file
        self.needed = bool(tokens)
        """Whether a token is needed. This stays as it was at the start, whatever becomes of the file."""
        self.guesses = Guesses()
        """Limits on wrong tokens."""
        # Not kept: a restart ends all sessions. A session cannot be made from the file of tokens, or from a backup.
        self._secret = secrets.token_bytes(32)

    def find(self, authorization: str | None) -> Token | None:
        """The accepted token in an Authorization header; None if there is none."""
        scheme, _, token = (authorization or "").partition(" ")
        return self.match(token) if scheme.lower() == "bearer" else None

    def match(self, text: str) -> Token | None:
        """Find the accepted token that equals a given one; None if there is none, or it has expired."""
        text = text.strip()
        if len(text) < MIN_TOKEN_CHARACTERS or not text.isascii():
            return None  # no digest in the file is worth more than the text that it belongs to
        digest = hashlib.sha256(text.encode()).digest()
        return self._valid_token(lambda token: hmac.compare_digest(token.digest, digest))

    def _valid_token(self, matches: Callable[[Token], bool]) -> Token | None:
        """The token that matches, if it has not expired."""
        matching = [token for token in self.tokens if matches(token)]  # all are compared, whichever it is
        return matching[-1] if matching and matching[-1].valid else None

    def session(self, token: Token) -> str:
        """A value for the cookie of somebody who has shown a token. It ends with the token, and after some hours."""
        until = time.time() + SESSION_S
        ends = int(until if token.expires is None else min(until, token.expires))
        return f"{ends}.{self._signature(token, ends)}"

    def resume(self, session: str) -> Token | None:
        """The token of a session; None if the session has ended, or was not begun by this service."""
        match = re.fullmatch(r"([0-9]{1,12})\.([0-9a-f]{64})", session, re.ASCII)
        if match is None or int(match[1]) <= time.time():
            return None
        ends, signature = int(match[1]), match[2]
        return self._valid_token(lambda token: hmac.compare_digest(self._signature(token, ends), signature))

    def _signature(self, token: Token, ends: int) -> str:
        return hmac.new(self._secret, token.digest + ends.to_bytes(8, "big"), hashlib.sha256).hexdigest()

    def knows_host(self, host: str | None) -> bool:
        """Whether a request may use this host name of the service."""
        if self.hosts is None:
            return True
        match = HOST.fullmatch((host or "").lower())
        return match is not None and match[1] in self.hosts

    def reload(self, *, always: bool = True) -> bool:
        """Read the file of tokens again; one that cannot be used changes nothing, and is reported.

        Args:
            always: read it even if it looks as it did before.

        Returns:
            Whether the tokens are those of the file.
        """
        if self._file is None or not (always or self._file.changed):
            return True
        try:
            self.tokens = self._file.read()
        except SketchstreamError as error:
            event_log.error("tokens_kept", reason=error)
            return False
        event_log.info("tokens_read", tokens=len(self.tokens))
        return True

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Read the file of tokens again whenever it changes."""
        stop = threading.Event()

        def watch() -> None:
            while not stop.wait(LOOK_S):
                self.reload(always=False)

        thread = threading.Thread(target=watch, name="sketchstream-tokens", daemon=True)
        if self._file is not None:
            thread.start()
        try:
            yield
        finally:
            stop.set()


class TokenFile:
    """A TOML file of tokens: one `[[token]]` each, with `name`, `token` or `sha256`, `sketches`, perhaps `expires`.

    Args:
        path: path of the file.
        sketches: names that there are.
    """

    def __init__(self, path: Path, sketches: Sequence[str]) -> None:
        self._path, self._sketches = path, sketches
        self._mark: object = None

    @property
    def changed(self) -> bool:
        """Whether the file is another one than was read last."""
        return self._look() != self._mark

    def _look(self) -> object:
        try:
            about = self._path.stat()
        except OSError as error:
            return error.errno
        return about.st_ino, about.st_mtime_ns, about.st_size, about.st_mode

    def read(self) -> tuple[Token, ...]:
        """The tokens.

        Raises:
            ConfigError: the file cannot be read, others can read it, or an entry cannot be used.
        """
        self._mark = self._look()  # before it is read: what changes meanwhile is read again
        return read_tokens(self._path, self._sketches)


def read_tokens(path: Path, sketches: Sequence[str]) -> tuple[Token, ...]:
    """The tokens of a file; see `TokenFile`.

    Args:
        path: path of the file.
        sketches: names that there are.

    Raises:
        ConfigError: the file cannot be read, others can read it, or an entry cannot be used.
    """
    try:
        text, mode = read_file(path, MAX_TOKEN_FILE_BYTES)
        require_private(mode, f"serve.tokens {path}", "chmod 600 it")
        data = read_toml(text.decode())
    except StoreError as error:
        raise ConfigError(str(error)) from None
    except ValueError:
        # the parser's own text may show the line, and so a token
        raise ConfigError(f"serve.tokens {path} is not valid TOML") from None
    entries = data.get("token")
    if not isinstance(entries, list) or not entries or data.keys() != {"token"}:
        raise ConfigError(f"serve.tokens {path} must hold one [[token]] for each token, and nothing else")
    tokens = tuple(_token(entry, number, path, sketches) for number, entry in enumerate(entries, 1))
    for what in ("name", "digest"):
        if len({getattr(token, what) for token in tokens}) < len(tokens):
            same = "name" if what == "name" else "token"
            raise ConfigError(f"serve.tokens {path}: two entries have the same {same}, and each needs its own")
    return tokens


def _token(entry: object, number: int, path: Path, sketch_names: Sequence[str]) -> Token:
    where = f"token {number} of {path}"
    if not isinstance(entry, Mapping) or not entry.keys() <= {"name", "token", "sha256", "sketches", "expires"}:
        raise ConfigError(f"{where} takes name, sketches, expires, and one of token and sha256")
    name, secret, digest = entry.get("name"), entry.get("token"), entry.get("sha256")
    if not isinstance(name, str) or not name.isprintable() or not name or " " in name:
        raise ConfigError(f"{where} needs a name without spaces, by which the request log speaks of it")
    if (secret is None) == (digest is None):
        raise ConfigError(f"{where} needs either token or sha256")
    if secret is not None:
        if not isinstance(secret, str) or not re.fullmatch(rf"[!-~]{{{MIN_TOKEN_CHARACTERS},}}", secret):
            raise ConfigError(f"{where}: a token is at least {MIN_TOKEN_CHARACTERS} ASCII characters without spaces")
        token_digest = hashlib.sha256(secret.encode()).digest()
    else:
        token_digest = _digest(digest, where)
    expires = _expires(entry.get("expires"), where)
    sketches = entry.get("sketches")
    if sketches == "*":
        return Token(name, token_digest, None, expires)
    if not isinstance(sketches, list) or not all(isinstance(sketch, str) for sketch in sketches):
        raise ConfigError(f'{where}: sketches must be a list of names, or "*" for all')
    unknown = [sketch for sketch in sketches if sketch not in sketch_names]
    if unknown:
        raise ConfigError(f"{where}: no sketch is named {unknown[0]!r:.60} (there are: {', '.join(sketch_names)})")
    return Token(name, token_digest, frozenset(sketches), expires)


def _digest(written: object, where: str) -> bytes:
    """A digest in hexadecimal digits.

    Raises:
        ConfigError: it is not a digest, or is that of a text that shells make of a variable without a value.
    """
    if not isinstance(written, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", written):
        raise ConfigError(f"{where}: sha256 must be 64 hexadecimal digits (`printf %s TOKEN | sha256sum`)")
    digest = bytes.fromhex(written)
    for text in ("", "\n", " ", '""', "''", "TOKEN", "$TOKEN", "TOKEN\n", "$TOKEN\n"):
        if digest == hashlib.sha256(text.encode()).digest():
            raise ConfigError(f"{where}: sha256 is the digest of {text!r}, which is no token: was a variable empty?")
    return digest


def _expires(written: object, where: str) -> float | None:
    """When a token ends, seconds since 1970; a day without a time ends at its beginning in UTC."""
    if written is None:
        return None
    if isinstance(written, datetime) and written.tzinfo is not None:
        return written.timestamp()
    if isinstance(written, date) and not isinstance(written, datetime):
        return datetime(written.year, written.month, written.day, tzinfo=UTC).timestamp()
    raise ConfigError(
        f"{where}: expires must be a day or a time with an offset, such as 2027-01-31 or 2027-01-31T12:00:00Z"
    )
