"""The settings of `[kafka]`: valid names and values, checked without a broker and without its client.

In: dotted names and values, from the file and the environment. Out: settings with one spelling each and typed
values; mistakes, one line each. Touches: nothing.

Names are Kafka's; if its clients differ, the spellings of Java and librdkafka are accepted too. The prefix
`consumer.`, `producer.` or `admin.` restricts a name to that client.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from sketchstream.config.addresses import is_loopback
from sketchstream.errors import nearest

Client = Literal["consumer", "producer", "admin"]
Option = str | int | float | bool

_OFFSETS = "positions are committed together with the state they belong to"
_FENCE = "it is part of the fence that keeps two workers from counting twice"
_INPUT = "records are decoded as [input] says"
_BYTES = "records are written as they are"
OWNED: Final[Mapping[str, str]] = {
    "enable.auto.commit": _OFFSETS,
    "auto.commit.interval.ms": _OFFSETS,
    "auto.offset.reset": "nothing is inferred to be a cold start; `sketchstream reset` moves positions",
    "isolation.level": "aborted records must not be counted, and pending positions must be waited for",
    "partition.assignment.strategy": "the worker brings an assignor that leaves no partition unowned",
    "group.protocol": "the classic protocol is the one this worker was tested with",
    "group.remote.assignor": "the worker brings its own assignor",
    "acks": "snapshots and sealed sketches are always acknowledged by all replicas",
    "enable.idempotence": "producers are always idempotent",
    "transactional.id": _FENCE,
    "transaction.timeout.ms": _FENCE,
    "key.deserializer": _INPUT,
    "value.deserializer": _INPUT,
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "retries": "the delivery timeout limits retries",
    "max.poll.records": "batches are handed over whole",
    "max.in.flight.requests.per.connection": "order and idempotence depend on it",
}
"""Kafka's keys that our semantics own, and why."""

ALIASES: Final[Mapping[str, str]] = {
    "ssl.ca.location": "ssl.cafile",
    "ssl.certificate.location": "ssl.certfile",
    "ssl.key.location": "ssl.keyfile",
    "ssl.key.password": "ssl.password",
    "ssl.key.password.file": "ssl.password.file",
    "ssl.crl.location": "ssl.crlfile",
    "ssl.truststore.location": "ssl.cafile",
    "ssl.keystore.location": "ssl.certfile",
    "sasl.username": "sasl.plain.username",
    "sasl.password": "sasl.plain.password",
    "sasl.password.file": "sasl.plain.password.file",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
FILES: Final = ("ssl.cafile", "ssl.certfile", "ssl.keyfile", "ssl.crlfile", "https.ca.location")
"""Settings that name a file which the client opens."""
SECRETS: Final = ("ssl.password", "sasl.plain.password", "sasl.oauthbearer.client.secret")
"""Settings that may also be read from a file, named by the same setting with `.file` behind it."""
IGNORED: Final = ("ssl.truststore.type", "ssl.keystore.type", "ssl.endpoint.identification.algorithm")
"""Java's settings that say what is the case anyway, or must be said otherwise."""

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "security.protocol": PROTOCOLS,
    "sasl.mechanism": MECHANISMS,
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "sasl.oauthbearer.method": ("oidc",),
}
"""Settings with few values; they are read in any case of letters."""

_EVERY: Final = ("consumer", "producer", "admin")
_INTS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            "bootstrap.timeout.ms",
            "connections.max.idle.ms",
            "metadata.max.age.ms",
            "metrics.num.samples",
            "metrics.sample.window.ms",
            "receive.buffer.bytes",
            "receive.message.max.bytes",
            "reconnect.backoff.max.ms",
            "reconnect.backoff.ms",
            "request.timeout.ms",
            "retry.backoff.ms",
            "send.buffer.bytes",
        ),
        _EVERY,
    ),
    **dict.fromkeys(
        (
            "fetch.max.bytes",
            "fetch.max.wait.ms",
            "fetch.min.bytes",
            "heartbeat.interval.ms",
            "max.partition.fetch.bytes",
            "max.poll.interval.ms",
            "session.timeout.ms",
        ),
        ("consumer",),
    ),
    **dict.fromkeys(
        ("batch.size", "delivery.timeout.ms", "linger.ms", "max.block.ms", "max.request.size"), ("producer",)
    ),
}
_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "ssl.check.hostname": _EVERY,
    "allow.auto.create.topics": ("consumer", "producer"),
    "metrics.enabled": ("consumer", "producer"),
    **dict.fromkeys(("check.crcs", "enable.incremental.fetch.sessions", "exclude.internal.topics"), ("consumer",)),
}
_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            "bootstrap.servers",
            "client.id",
            "client.dns.lookup",
            "proxy.url",
            "sasl.kerberos.domain.name",
            "sasl.kerberos.name",
            "sasl.kerberos.service.name",
            "sasl.mechanism",
            "sasl.plain.password",
            "sasl.plain.username",
            "security.protocol",
            "ssl.cafile",
            "ssl.certfile",
            "ssl.crlfile",
            "ssl.keyfile",
            "ssl.password",
        ),
        _EVERY,
    ),
    **dict.fromkeys(("client.rack", "group.id", "group.instance.id", "metric.group.prefix"), ("consumer",)),
    "ssl.ciphers": ("consumer", "producer"),
    "compression.type": ("producer",),
}
OURS: Final = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.method",
    "https.ca.location",
    *(f"{name}.file" for name in SECRETS),
)
"""Settings that the client does not know: this program fetches tokens and reads secrets for it."""
KNOWN: Final[Mapping[str, tuple[str, ...]]] = {**_TEXTS, **_INTS, **_FLAGS, **dict.fromkeys(OURS, _EVERY)}
"""Every setting, and the clients that have it."""
FETCH_BYTES: Final = 50 * 2**20
"""Default of `fetch.max.bytes`: bytes of one response of one broker."""
PARTITION_FETCH_BYTES: Final = 4 * 2**20
"""Default of `max.partition.fetch.bytes`: bytes of a response that one partition may take."""
RESPONSE_BYTES: Final = 4 * PARTITION_FETCH_BYTES
"""Bytes of a response that few partitions share: with fewer than four, each may take more than its default."""
READ_AHEAD_BYTES: Final = 64 * 2**20
"""Most bytes of records, decompressed and located, that are ready before they are decoded."""
_SERVER = re.compile(r"(?:[A-Za-z_]+://)?(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):(\d{1,5})")


def split(name: str) -> tuple[Client | None, str]:
    """Split a name into the client it is restricted to, and the rest."""
    client, _, rest = name.partition(".")
    return (cast("Client", client), rest) if rest and client in _EVERY else (None, name)


def read(options: Mapping[str, Any]) -> tuple[dict[str, Option], list[str]]:
    """Read settings: one spelling and type for each valid one, and a mistake for each other one."""
    settings: dict[str, Option] = {}
    mistakes: list[str] = []
    for key, value in options.items():
        client, plain = split(key)
        if plain in IGNORED:
            mistakes += _check_fixed_settings(key, plain, value)
            continue
        name = ALIASES.get(plain, plain)
        problem = _unknown(key, client, name)
        if problem is not None:
            mistakes.append(problem)
            name = _meant(name)  # so that a misspelled setting is not reported as missing
        wrong = _wrong(key, name, value) if name in KNOWN else "unknown"
        if wrong is not None:
            mistakes += [wrong] if problem is None else []
            continue
        settings[name if client is None else f"{client}.{name}"] = _convert_setting(name, value)
    return settings, mistakes


def input_bytes(options: Mapping[str, Any], partitions: int) -> int:
    """Memory of the input in addition to open windows: two responses of one broker, and what is read ahead of them.

    Args:
        options: settings as they are given.
        partitions: number of partitions that one broker leads and one worker reads.
    """
    settings, _ = read(options)

    def size(name: str, default: int) -> int:
        return int(settings.get(f"consumer.{name}", settings.get(name, default)))

    share = partition_share(size("max.partition.fetch.bytes", PARTITION_FETCH_BYTES), partitions)
    return 2 * min(partitions * share, size("fetch.max.bytes", FETCH_BYTES)) + READ_AHEAD_BYTES


def partition_share(setting: int, partitions: int) -> int:
    """Most bytes of one partition in a response: `max.partition.fetch.bytes`, or more if few share its default.

    Args:
        setting: `max.partition.fetch.bytes`.
        partitions: number of partitions that are assigned to one worker.
    """
    if setting != PARTITION_FETCH_BYTES:
        return setting
    return max(setting, RESPONSE_BYTES // max(partitions, 1))


def contradictions(settings: Mapping[str, Option]) -> Iterator[str]:
    """Contradictions between settings that are valid on their own."""
    protocol = str(settings.get("security.protocol", "PLAINTEXT"))
    mechanism = settings.get("sasl.mechanism")
    encrypted = sorted(name for name in settings if name.startswith("ssl."))
    login = sorted(name for name in settings if name.startswith(("sasl.", "https.")))
    if encrypted and "SSL" not in protocol.split("_"):
        want = "SASL_SSL" if login else "SSL"
        yield f'kafka "{encrypted[0]}" has no effect under security.protocol = "{protocol}": set "{want}"'
    if login and not protocol.startswith("SASL_"):
        yield (
            f'kafka "{login[0]}" has no effect under security.protocol = "{protocol}": nobody would log in; set '
            f'"SASL_{protocol}"'
        )
        return
    if not protocol.startswith("SASL_"):
        return
    if mechanism is None:
        choices = _choices_text(MECHANISMS)
        yield f'kafka "sasl.mechanism" is missing: security.protocol = "{protocol}" needs one of {choices}'
    for name in SECRETS:
        if name in settings and f"{name}.file" in settings:
            yield f'kafka "{name}" and "{name}.file" are both set: keep one'
    if mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        yield from _missing(settings, mechanism, ("sasl.plain.username",), "sasl.plain.password")
    if mechanism == "OAUTHBEARER":
        needed = ("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.id")
        yield from _missing(settings, mechanism, needed, "sasl.oauthbearer.client.secret")
        url = urlsplit(str(settings.get(needed[0], "https://")))
        if url.scheme != "https" and not (url.scheme == "http" and is_loopback(url.hostname or "")):
            yield (
                f'kafka "{needed[0]}" must begin with https:// (http:// on a loopback address only): the client secret '
                "is sent there"
            )


def _missing(settings: Mapping[str, Option], mechanism: object, names: tuple[str, ...], secret: str) -> Iterator[str]:
    """Settings without which a mechanism cannot log in."""
    for name in names:
        if not settings.get(name):
            yield f'kafka "{name}" is missing: sasl.mechanism = "{mechanism}" needs it'
    if secret not in settings and f"{secret}.file" not in settings:
        yield f'kafka "{secret}" or "{secret}.file" is missing: sasl.mechanism = "{mechanism}" needs it'


def _unknown(key: str, client: Client | None, name: str) -> str | None:
    """Mistake for a name that the worker sets itself, or that does not exist."""
    if name in OWNED:
        return f'kafka "{key}" cannot be set: {OWNED[name]}'
    clients = KNOWN.get(name)
    if clients is not None and (client is None or client in clients):
        return None
    if "_" in key and "." not in key:
        return f'unknown key kafka "{key}"; Kafka\'s names have dots: "{key.replace("_", ".")}"'
    if clients is not None:
        return f'kafka "{key}" is not an option of the {client} ({", ".join(clients)} only)'
    near = _nearest_setting(name)
    prefix = "" if client is None else f"{client}."
    hint = "" if near is None else f'; did you mean "{prefix}{near}"?'
    return f'unknown key kafka "{key}"{hint}'


def _nearest_setting(name: str) -> str | None:
    """The setting that an unknown name probably stands for."""
    return nearest(name, [*KNOWN, *ALIASES], cutoff=0.7)


def _meant(name: str) -> str:
    """The setting by which an unknown name is read in further checks; the name itself if there is none."""
    dotted = name.replace("_", ".")
    near = dotted if dotted in KNOWN else _nearest_setting(name)
    return name if near is None or name in OWNED else ALIASES.get(near, near)


def _wrong(key: str, name: str, value: object) -> str | None:
    """Mistake for an invalid value of a setting. Secrets are not shown."""
    if not isinstance(value, (str, int, float)):
        return f'kafka "{key}" must be a text, a number or true/false'
    value_text = "" if name in SECRETS else f", found {value!r:.40}"
    if name in _FLAGS and str(value).lower() not in ("true", "false"):
        return f'kafka "{key}" must be true or false{value_text}'
    if name in _INTS and (isinstance(value, bool) or not re.fullmatch(r"-?\d{1,18}", str(value).strip())):
        return f'kafka "{key}" must be a whole number{value_text}'
    if name in _INTS and int(str(value)) < 0:
        return f'kafka "{key}" must not be negative{value_text}'
    if name in CHOICES and _choice(name, value) is None:
        near = nearest(str(value).upper(), [allowed.upper() for allowed in CHOICES[name]])
        hint = next((f'; did you mean "{allowed}"?' for allowed in CHOICES[name] if allowed.upper() == near), "")
        return f'kafka "{key}" must be {_choices_text(CHOICES[name])}{value_text}{hint}'
    if name in _TEXTS and isinstance(value, bool):
        return f'kafka "{key}" must be a text{value_text}'
    if name == "bootstrap.servers":
        for server in str(value).split(","):
            match = _SERVER.fullmatch(server.strip())
            if match is None or not 0 < int(match[1]) < 1 << 16:
                return (
                    f'kafka "{key}" must be HOST:PORT, several with commas between them, found {server.strip()!r:.60}'
                )
    return None


def _check_fixed_settings(key: str, name: str, value: object) -> list[str]:
    """Check Java's settings that must have the value that applies here."""
    if name.endswith("store.type") and str(value).upper() != "PEM":
        return [f'kafka "{key}" must be PEM: this client reads PEM files, found {value!r:.20}']
    if name.startswith("ssl.endpoint") and str(value).lower() != "https":
        return [f'kafka "{key}": say "ssl.check.hostname" = false instead']
    return []


def _convert_setting(name: str, value: Any) -> Option:
    """Convert a valid value to its type and spelling."""
    if name in _FLAGS:
        return str(value).lower() == "true"
    if name in _INTS:
        return int(str(value))
    if name in CHOICES:
        return _choice(name, value) or ""
    return str(value)


def _choice(name: str, value: object) -> str | None:
    """The spelling of one of few possible values, case-insensitive; None for others."""
    text = str(value).strip().upper()
    return next((allowed for allowed in CHOICES[name] if allowed.upper() == text), None)


def _choices_text(values: tuple[str, ...]) -> str:
    """`"A", "B" or "C"`."""
    quoted = [f'"{value}"' for value in values]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
