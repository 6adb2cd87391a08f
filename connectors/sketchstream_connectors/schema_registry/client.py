"""Reads schemas from a registry with the interface of Confluent's: by id, with the schemas that they refer to.

In: ids. Out: texts of schemas, or the fact that an id does not exist. Touches: the registry (two kinds of GET, nothing
else), a folder of answers, the clock.
Source: the API reference of Confluent Schema Registry; Karapace, Redpanda and Apicurio offer the same calls. Apicurio's
own serializers may write its global ids, which those calls do not know: its own interface is asked for them.

An id never changes its meaning, so an answer is kept in memory and on disk for good. A registry that cannot be
reached, or does not answer as a registry does, is never taken for a denial: that is a `SchemaUnavailableError`, and the
caller waits.
"""

from __future__ import annotations

import base64
import collections
import hashlib
import http.client
import json
import random
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sketchstream.errors import ConfigError, SchemaUnavailableError, StoreError
from sketchstream.files import PUBLIC, make_folder, write_durably
from sketchstream.log_events import EventLog

event_log = EventLog("sketchstream.registry")

ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
MAX_BYTES: Final = 16 << 20
"""Most bytes of an answer; a longer one is refused, before it fills the memory."""
MAX_DENIED: Final = 1_000
"""Most denied ids that are remembered."""
FREE_DENIALS: Final = 20
"""Ids that may be denied at once; then one id a second is looked up, so that made-up ids do not flood the registry."""
MAX_REFERENCES: Final = 200
"""Most schemas to which one schema refers, directly or not; more of them are a mistake or a circle."""
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0
NO_SUCH: Final = frozenset({40401, 40402, 40403})
"""Error codes by which a registry denies a schema, a version or a subject."""
NONE_FOUND: Final = frozenset({"ArtifactNotFoundException", "ContentNotFoundException", "VersionNotFoundException"})
"""Names by which Apicurio's own interface denies an id."""


@dataclass(frozen=True)
class Registered:
    """A schema of the registry.

    Args:
        schema_type: "AVRO", "PROTOBUF" or "JSON".
        text: text of the schema.
        references: (name, text) of the schemas that it uses, directly or not; those that others use come first.
    """

    schema_type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class RegistryAccess:
    """How a registry is reached.

    Args:
        urls: addresses of one registry; the first that answers is used.
        username: user name for basic authentication.
        password: password for basic authentication.
        token: token for bearer authentication.
        ca: file of authorities to trust; None: those of the system.
        certificate: file of our certificate, for mutual TLS.
        key: file of its key.
        timeout_s: longest time of one request, seconds.
    """

    urls: tuple[str, ...]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    timeout_s: float = 5.0


class _Denied(Exception):  # noqa: N818 - an answer
    """The registry denies that there is such a schema."""


class _SameOrigin(urllib.request.HTTPRedirectHandler):
    """Refuses redirections: one would carry credentials elsewhere, or turn a login page into an answer."""

    def redirect_request(self, *_: Any) -> None:
        """Leave the answer as it is."""


class SchemaRegistry:
    """Schemas by their ids.

    Args:
        access: how the registry is reached.
        folder: folder in which answers are kept; None: only in memory.
        schema_format: format of schemas to ask for, such as "serialized"; empty: their text.
        global_ids: ids are those that Apicurio gives to versions, not to contents; schemas are Avro's.
        clock: seconds, monotonic.

    Raises:
        ConfigError: a URL or a file of certificates that cannot be used.
    """

    def __init__(
        self,
        access: RegistryAccess,
        folder: Path | None = None,
        *,
        schema_format: str = "",
        global_ids: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._access = access
        self._clock = clock
        self._query = f"?format={schema_format}" if schema_format else ""
        self._global_ids = global_ids
        for url in access.urls:
            parts = urllib.parse.urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
                raise ConfigError(
                    "payload.registry must be one or several URLs such as https://registry:8081, without a user or a "
                    f"query, found {parts.scheme!r:.20} and {parts.hostname!r:.80}"
                )
        handlers: list[Any] = [_SameOrigin(), urllib.request.ProxyHandler()]
        if any(url.startswith("https:") for url in access.urls):
            handlers.append(urllib.request.HTTPSHandler(context=_tls(access)))
        self._opener = urllib.request.build_opener(*handlers)
        self._folder = (
            None
            if folder is None
            else folder
            / hashlib.blake2b(
                (access.urls[0] + schema_format + "#global" * global_ids).encode(), digest_size=8
            ).hexdigest()
        )
        self._known: dict[int, Registered] = {}
        self._denied: collections.OrderedDict[int, None] = collections.OrderedDict()
        self._denials: collections.deque[float] = collections.deque(maxlen=FREE_DENIALS)
        self._failures = 0
        self._not_before = float("-inf")
        self._why = ""
        self.requests = 0

    def schema(self, number: int) -> Registered | None:
        """The schema of an id; None: the registry denies that there is one.

        Raises:
            SchemaUnavailableError: it cannot be known now; the same call may succeed later. Until a pause that grows
                with the failures is over, nothing is asked.
        """
        registered = self._known.get(number) or self._read_cache(number)
        if registered is not None:
            self._known[number] = registered
            return registered
        if number in self._denied:
            self._denied.move_to_end(number)
            return None
        now = self._clock()
        if now < self._not_before:
            raise SchemaUnavailableError(self._why)
        if len(self._denials) == FREE_DENIALS and now - self._denials[-1] < 1 and now - self._denials[0] < 60:
            raise SchemaUnavailableError(
                f"{FREE_DENIALS} schema ids that do not exist were asked for within a minute: asking for one a second"
            )
        try:
            registered = self._resolve(number)
        except _Denied:
            self._denials.append(now)
            self._denied[number] = None
            if len(self._denied) > MAX_DENIED:
                self._denied.popitem(last=False)
            event_log.warning("schema_denied", registry=self._access.urls[0], denied=len(self._denied))
            return None
        self._failures = 0
        self._known[number] = registered
        self._write_cache(number, registered)
        event_log.info("schema_read", registry=self._access.urls[0], id=number, kind=registered.schema_type)
        return registered

    # ---------------------------------------------------------------------------------------- requests

    def _resolve(self, number: int) -> Registered:
        """A schema with all that it refers to."""
        if self._global_ids:  # Apicurio inserts the schemas that it refers to
            return Registered("AVRO", self._get(f"/ids/globalIds/{number}?dereference=true")["schema"])
        answer = self._get(f"/schemas/ids/{number}")
        references: dict[tuple[str, int], tuple[str, str]] = {}
        self._follow(answer, references, 0)
        return Registered(str(answer.get("schemaType") or "AVRO"), answer["schema"], tuple(references.values()))

    def _follow(self, answer: Mapping[str, Any], into: dict[tuple[str, int], tuple[str, str]], depth: int) -> None:
        """Read the schemas that an answer refers to, those that they use first."""
        for reference in answer.get("references") or ():
            try:
                name, subject, version = str(reference["name"]), str(reference["subject"]), int(reference["version"])
            except (KeyError, TypeError, ValueError):
                raise self._unavailable("its answer has references without name, subject and version") from None
            if (subject, version) in into:
                continue
            if depth > 20 or len(into) >= MAX_REFERENCES:
                raise self._unavailable(f"a schema refers to more than {MAX_REFERENCES} others, or in a circle")
            inner = self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}")
            self._follow(inner, into, depth + 1)
            into.setdefault((subject, version), (name, inner["schema"]))

    def _get(self, path: str) -> dict[str, Any]:
        """Get one answer, of the first URL that gives one; an id is denied only if all that answer deny it."""
        reasons, denials = [], 0
        for url in self._access.urls:
            try:
                return self._ask(url.rstrip("/") + path + self._query)
            except _Denied:
                denials += 1
            except SchemaUnavailableError as error:
                reasons.append(str(error))
        if denials == len(self._access.urls):
            raise _Denied
        raise self._unavailable("; ".join(reasons))

    def _unavailable(self, reason: str) -> SchemaUnavailableError:
        """The error for a registry without an answer; nothing is asked for a while."""
        self._failures += 1
        pause = min(FIRST_PAUSE_S * 2 ** min(self._failures - 1, 10), MAX_PAUSE_S)
        self._not_before = self._clock() + pause * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
        self._why = (
            f"the schema registry gives no answer: {reason}. Records wait until it does; check payload.registry, its "
            "credentials and the network"
        )
        fields = {"registry": self._access.urls[0], "failures": self._failures, "reason": reason}
        event_log.warning("registry_unavailable", **fields)
        return SchemaUnavailableError(self._why)

    def _ask(self, url: str) -> dict[str, Any]:
        """One request to one URL."""
        self.requests += 1
        request = urllib.request.Request(url, headers={"Accept": ACCEPT, "User-Agent": "sketchstream"})  # noqa: S310
        access = self._access
        if access.token is not None:
            request.add_header("Authorization", f"Bearer {access.token}")
        elif access.username is not None:
            pair = f"{access.username}:{access.password or ''}".encode()
            request.add_header("Authorization", "Basic " + base64.b64encode(pair).decode())
        place = urllib.parse.urlsplit(url).netloc
        try:
            with self._opener.open(request, timeout=access.timeout_s) as response:
                body = response.read(MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == http.HTTPStatus.NOT_FOUND and _denies(error.read(1 << 16), self._global_ids):
                    raise _Denied from None
            raise SchemaUnavailableError(f"{place} answered with HTTP status {error.code}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise SchemaUnavailableError(
                f"{place}: {reason if isinstance(reason, str) else type(reason).__name__}"
            ) from None
        try:
            answer = json.loads(body) if len(body) <= MAX_BYTES else None
        except (ValueError, RecursionError):
            answer = None
        if self._global_ids and (isinstance(answer, list | str) or (isinstance(answer, dict) and "type" in answer)):
            return {"schema": json.dumps(answer)}
        if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
            raise SchemaUnavailableError(f"{place} answered with something else than a schema")
        return answer

    # ---------------------------------------------------------------------------------------- the cache on disk

    def _path(self, number: int) -> Path | None:
        return None if self._folder is None else self._folder / f"schema-{number}.json"

    def _read_cache(self, number: int) -> Registered | None:
        """The answer of an earlier run; None if there is none that can be read."""
        path = self._path(number)
        if path is None:
            return None
        try:
            fields = json.loads(path.read_bytes())
            references = tuple((str(name), str(text)) for name, text in fields["references"])
            return Registered(str(fields["kind"]), str(fields["schema"]), references)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write_cache(self, number: int, registered: Registered) -> None:
        """Keep an answer on disk; without it only the next start would have to ask again."""
        path = self._path(number)
        if path is None:
            return
        fields = {"kind": registered.schema_type, "schema": registered.text, "references": registered.references}
        try:
            make_folder(path.parent)
            write_durably(path, json.dumps(fields).encode(), mode=PUBLIC, replace=True)
        except (OSError, StoreError) as error:
            event_log.warning("schema_not_kept", reason=type(error).__name__)


def _denies(body: bytes, global_ids: bool) -> bool:
    """Whether an answer denies an id; not if a proxy or another program sent it."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return False
    if not isinstance(fields, dict):
        return False
    return fields.get("name") in NONE_FOUND if global_ids else fields.get("error_code") in NO_SUCH


def _tls(access: RegistryAccess) -> ssl.SSLContext:
    """The rules of TLS."""
    try:
        context = ssl.create_default_context(cafile=None if access.ca is None else str(access.ca))
        if access.certificate is not None:
            context.load_cert_chain(str(access.certificate), None if access.key is None else str(access.key))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"payload.ca, payload.certificate or payload.key cannot be used ({type(error).__name__}): PEM files are "
            "expected"
        ) from None
    return context


def urls_of(urls: str | Sequence[str] | None) -> tuple[str, ...]:
    """One URL or several, as in a configuration."""
    return () if urls is None else (urls,) if isinstance(urls, str) else tuple(urls)
