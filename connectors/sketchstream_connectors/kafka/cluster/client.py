"""Creates kafka-python clients from Kafka options. Only this file knows kafka-python's settings and errors.

In: the `[kafka]` table of a configuration (Kafka's own dotted names). Out: consumers, producers and an admin client
made from it, our errors instead of the client's. Touches: the network, through kafka-python.

Options have Kafka's names. Where clients differ, the spellings of Java and librdkafka are accepted too. Options that
the engine must set itself are refused: see `sketchstream.config.kafka_settings.OWNED`.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sketchstream.config import kafka_settings
from sketchstream.config.kafka_settings import Option
from sketchstream.errors import BrokerError, ConfigError, FencedError, MissingExtraError
from sketchstream_connectors.kafka.cluster import login

if TYPE_CHECKING:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.structs import OffsetAndMetadata


RECONNECT: Mapping[str, Option] = {"reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 1_000}
"""A broker that was away is tried again within a second; the client's own limit is half a minute."""
CONSUMER_DEFAULTS: Mapping[str, Option] = {
    **RECONNECT,
    "max_poll_interval_ms": 60_000,
    "session_timeout_ms": 15_000,
    "heartbeat_interval_ms": 3_000,
    "metadata_max_age_ms": 30_000,
    "fetch_max_wait_ms": 250,
    "fetch_max_bytes": kafka_settings.FETCH_BYTES,
    "max_partition_fetch_bytes": kafka_settings.PARTITION_FETCH_BYTES,
}
PRODUCER_DEFAULTS: Mapping[str, Option] = {
    **RECONNECT,
    "request_timeout_ms": 10_000,
    "delivery_timeout_ms": 30_000,
    "max_block_ms": 15_000,
    "metadata_max_age_ms": 30_000,
}
ADMIN_DEFAULTS: Mapping[str, Option] = {**RECONNECT, "request_timeout_ms": 10_000, "bootstrap_timeout_ms": 20_000}
ADMIN_PATIENCE_MS = 20_000
"""Longest wait for a first broker, where the configuration sets none: that of `ADMIN_DEFAULTS`."""
NOT_READY_MS = 100
"""Wait for a connection that is not ready; the caller then asks again."""
TRANSACTION_TIMEOUT_MS = 600_000
"""Longest transaction, and so the longest commit of a snapshot; brokers allow 15 minutes by default.

A dead worker's transaction does not stay open for that long: whoever takes the partition ends it."""
KNOW_PARTITION_S = 5.0
"""Longest wait until a producer knows a partition that was added, seconds."""

_LOOKED_UP = re.compile(r"FindCoordinatorResponse error for (?:GROUP|TRANSACTION)/(.*?): ?$")
"""The client's text where no coordinator was named; only the name in it is of use."""

_Answer = TypeVar("_Answer")
Bound = Literal["earliest", "latest", "stable"]
"""First offset, high-water mark, or last stable offset."""


@contextlib.contextmanager
def translate_errors(action: str) -> Iterator[None]:
    """Convert the client's errors into those of this package; `action` names the step that failed."""
    from kafka import errors

    try:
        yield
    except (errors.ProducerFencedError, errors.InvalidProducerEpochError) as error:
        raise FencedError(f"{action}: another worker has taken the partition over") from error
    except errors.FencedInstanceIdError as error:
        msg = f"{action}: another worker runs with the same group.instance.id"
        raise FencedError(msg, whole_worker=True) from error
    except errors.KafkaConfigurationError as error:
        raise ConfigError(f"{action}: {spell_error(error)}") from error
    except errors.AuthorizationError as error:
        raise BrokerError(
            f"{action}: {spell_error(error)}; `sketchstream topics acls` lists what a worker must be allowed"
        ) from error
    except _Unreachable as error:
        unreachable = BrokerError(f"{action}: {error}")
        unreachable.retriable = not login.is_final(error.cause)
        raise unreachable from error.cause
    except errors.KafkaError as error:
        raise BrokerError(f"{action}: {spell_error(error)}") from error


def spell_error(error: Exception) -> str:
    """The message of a client's error, then its name, each once; the client's own text begins with its names.

    Examples:
        >>> from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError
        >>> spell_error(KafkaTimeoutError("no metadata after 60 s"))
        'no metadata after 60 s (KafkaTimeoutError)'
        >>> spell_error(TopicAuthorizationFailedError({"events"}))
        'not allowed to touch topic events (TopicAuthorizationFailedError)'
    """
    from kafka import errors

    name = type(error).__name__
    named = [
        part
        for argument in error.args
        if argument
        for part in (argument if isinstance(argument, set | list | tuple) else [argument])
    ]
    text = _LOOKED_UP.sub(r"\1", ", ".join(str(name) for name in named))
    for kind, resource in (
        (errors.TopicAuthorizationFailedError, "topic"),
        (errors.GroupAuthorizationFailedError, "group"),
        (errors.TransactionalIdAuthorizationFailedError, "transactional id"),
        (errors.ClusterAuthorizationFailedError, "the cluster"),
    ):
        if isinstance(error, kind):
            text = f"not allowed to touch {resource} {text}".rstrip()
    if not text:
        text = str(getattr(error, "description", None) or "").rstrip(".")
    text = text.replace(f"{name}: ", "").replace(name, "").strip(" :")
    return f"{text:.300} ({name})" if text else name


def know_partition(producer: KafkaProducer, topic: str, partition: int, timeout_s: float = KNOW_PARTITION_S) -> None:
    """Make a producer learn of a partition that was just added; without this it raises a bare ValueError.

    Raises:
        BrokerError: no broker knows it.
    """
    deadline = time.monotonic() + timeout_s
    while partition not in (producer.partitions_for(topic) or ()):
        if time.monotonic() > deadline:
            raise BrokerError(f"topic {topic!r} has no partition {partition}, as far as brokers say")
        producer._metadata.request_update()
        time.sleep(0.1)


def _import() -> None:
    """Say which extra is missing instead of an ImportError."""
    try:
        import crc32c
        import kafka
    except ImportError as error:
        raise MissingExtraError(
            f"Kafka needs the extra `kafka` (pip install 'sketchstream[kafka]'): {error.name} is not installed"
        ) from None
    del crc32c, kafka


def _build(client: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Build a client; its thread and sockets are closed if this fails (kafka-python leaves them open)."""
    from kafka.errors import KafkaTimeoutError
    from kafka.net.compat import KafkaNetClient

    clients: list[Any] = []
    causes: list[login.Causes] = []

    def networking(**configs: object) -> Any:
        clients.append(_report_not_ready(KafkaNetClient(**configs)))
        causes.append(login.Causes(clients[-1]))
        return clients[-1]

    try:
        return client(**{**options, "kafka_client": networking})
    except BaseException as error:
        for network in clients:
            with contextlib.suppress(Exception):
                network.close()
            with contextlib.suppress(Exception):
                network._net.stop()
        first = causes[0].first() if causes else None
        if first is not None and isinstance(error, KafkaTimeoutError | type(first)):
            raise _Unreachable(
                first, str(options["bootstrap_servers"]), str(options.get("security_protocol") or "PLAINTEXT")
            ) from error
        raise


class _Unreachable(Exception):  # noqa: N818 - becomes a BrokerError in `translate_errors`
    """No bootstrap server accepted the connection.

    Args:
        cause: the most informative cause from the client.
        servers: addresses that were tried.
        protocol: security protocol that was used.
    """

    def __init__(self, cause: Exception, servers: str, protocol: str) -> None:
        self.cause = cause
        problem = f"{servers} cannot be reached: {spell_error(cause)}"
        hint = login.advice(cause, protocol)
        super().__init__(f"{problem}; {hint}" if hint else problem)


def _report_not_ready(network: Any) -> Any:
    """A network client that reports an unreachable node as "not ready" instead of raising an error.

    The producer's thread (kafka-python 3.0.12, Sender._maybe_send_pending_request) queues a transactional request
    again only if the coordinator's node is "not ready". After an error it looks for the coordinator again, and the
    request is lost: a take or a commit then ends with its timeout, however soon the node is back.
    """
    from kafka.errors import KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError

    ready = network.await_ready

    def await_ready(node_id: object, timeout_ms: float = 30_000) -> bool:
        try:
            return bool(ready(node_id, timeout_ms=timeout_ms))
        except (KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError):
            network.poll(timeout_ms=NOT_READY_MS)  # the caller asks again at once
            return False

    network.await_ready = await_ready
    return network


@dataclass(frozen=True)
class Topic:
    """The metadata of a topic.

    `leaders`: partition -> leader's node id, -1 where there is none now.
    """

    name: str
    topic_id: str
    partitions: int
    replication: int
    leaders: Mapping[int, int] = field(repr=False)


class Connection:
    """Clients of one cluster, made from one table of options.

    Args:
        options: Kafka's dotted names, with `bootstrap.servers`; `consumer.`, `producer.` and `admin.` in front of a
            name restrict it to that client.
        base: folder to which file names are relative (the configuration's).

    Raises:
        ConfigError: an option that is ours, unknown, or of the wrong type.
        MissingExtraError: kafka-python is not installed.
    """

    def __init__(self, options: Mapping[str, Option], base: Path | None = None) -> None:
        _import()
        chatter = logging.getLogger("kafka")
        if chatter.level == logging.NOTSET:
            chatter.setLevel(logging.CRITICAL)  # its errors reach us as exceptions; at DEBUG it would log whole records
        self._base = base or Path()
        self._common: dict[str, Any] = {}
        self._special: dict[str, dict[str, Any]] = {"consumer": {}, "producer": {}, "admin": {}}
        self._ours: dict[str, Any] = {}
        settings, mistakes = kafka_settings.read(options)
        if mistakes:
            raise ConfigError(*mistakes)
        for name, value in settings.items():
            self._add(name, value)
        self._read_secrets()
        self._tokens: login.Tokens | None = None
        if self._common.get("sasl_mechanism") == "OAUTHBEARER":
            try:
                self._tokens = login.Tokens(self._ours)
            except KeyError as error:
                raise ConfigError(
                    f'kafka "{error.args[0]}" is missing: sasl.mechanism = "OAUTHBEARER" needs it'
                ) from None
        if not self._common.get("bootstrap_servers"):
            raise ConfigError('kafka "bootstrap.servers" is missing: [kafka] needs it')
        self._admin: Admin | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Connection({self._common['bootstrap_servers']!r})"

    @property
    def patience_ms(self) -> int:
        """How long requests to the cluster are repeated: the time that a first connection may take."""
        timeout_ms = self._special["admin"].get("bootstrap_timeout_ms", self._common.get("bootstrap_timeout_ms"))
        return ADMIN_PATIENCE_MS if timeout_ms is None else int(timeout_ms)

    @property
    def group(self) -> str:
        """`group.id`, which names the application, its topics and its fences."""
        group = self._common.get("group_id")
        if not group:
            raise ConfigError('kafka "group.id" is missing: it names the application and its topics')
        return str(group)

    @property
    def instance(self) -> str | None:
        """`group.instance.id`: static membership."""
        instance = self._common.get("group_instance_id")
        return str(instance) if instance else None

    def _add(self, name: str, value: Option) -> None:
        """Add one setting in the client's spelling, if the client has it; the others are ours."""
        client, plain = kafka_settings.split(name)
        if plain in kafka_settings.FILES:
            path = self._base / str(value)
            if not path.is_file():
                raise ConfigError(f'kafka "{name}" must name a file, found none at {path}')
            value = str(path)
        if plain == "compression.type" and value == "none":
            return
        if plain in kafka_settings.OURS:
            self._ours[plain] = value
            return
        target = self._common if client is None else self._special[client]
        target[plain.replace(".", "_")] = value

    def _read_secrets(self) -> None:
        """Read the secrets that are in separate files."""
        for name in kafka_settings.SECRETS:
            file = self._ours.pop(f"{name}.file", None)
            if file is None:
                continue
            path = self._base / str(file)
            try:
                secret = path.read_text(encoding="utf-8").strip("\r\n")
            except (OSError, UnicodeDecodeError):
                raise ConfigError(
                    f'kafka "{name}.file" must name a file with the secret, found none that can be read at {path}'
                ) from None
            if name in kafka_settings.OURS:
                self._ours[name] = secret
            else:
                self._common[name.replace(".", "_")] = secret

    @staticmethod
    def _known(kind: str) -> frozenset[str]:
        """Settings that a client has, in its spelling."""
        return frozenset(
            name.replace(".", "_")
            for name, clients in kafka_settings.KNOWN.items()
            if kind in clients and name not in kafka_settings.OURS
        )

    def _options(
        self, kind: Literal["consumer", "producer", "admin"], defaults: Mapping[str, Option]
    ) -> dict[str, Any]:
        options = self._known(kind)
        chosen = {**defaults, **{k: v for k, v in self._common.items() if k in options}, **self._special[kind]}
        if self._tokens is not None:
            chosen["sasl_oauth_token_provider"] = login.provider(self._tokens)
        if kind == "consumer":
            longest = max(int(chosen.get("fetch_max_wait_ms", 500)), int(chosen.get("session_timeout_ms", 0)))
            chosen.setdefault("request_timeout_ms", max(30_000, longest + 1_000))
            chosen["heartbeat_interval_ms"] = min(
                int(chosen["heartbeat_interval_ms"]), int(chosen["session_timeout_ms"]) // 3
            )
        return chosen

    def option(self, name: str) -> Option | None:
        """The value of a setting for consumers."""
        return self._options("consumer", CONSUMER_DEFAULTS).get(name.replace(".", "_"))

    def consumer(self, **fixed: object) -> KafkaConsumer:
        """A consumer with our semantics: read committed, no commits and no resets of its own."""
        from kafka import KafkaConsumer

        owned = {"enable_auto_commit": False, "auto_offset_reset": "none", "isolation_level": "read_committed"}
        with translate_errors("connecting a consumer"):
            return _build(KafkaConsumer, {**self._options("consumer", CONSUMER_DEFAULTS), **owned, **fixed})

    def producer(self, **fixed: object) -> KafkaProducer:
        """An idempotent producer."""
        from kafka import KafkaProducer

        owned = {"acks": "all", "enable_idempotence": True, "allow_auto_create_topics": False, "metrics_enabled": False}
        with translate_errors("connecting a producer"):
            return _build(KafkaProducer, {**self._options("producer", PRODUCER_DEFAULTS), **owned, **fixed})

    def make_admin(self, patience_ms: int | None = None) -> KafkaAdminClient:
        """A new admin client; the caller closes it. `patience_ms` shortens what it waits for an answer."""
        from kafka import KafkaAdminClient

        chosen = self._options("admin", ADMIN_DEFAULTS)
        if patience_ms is not None:
            chosen |= {"request_timeout_ms": patience_ms, "bootstrap_timeout_ms": patience_ms}
        with translate_errors("connecting to the cluster"):
            return _build(KafkaAdminClient, chosen)

    @property
    def admin(self) -> Admin:
        """The shared admin client."""
        with self._lock:
            if self._admin is None:
                self._admin = Admin(self)
            return self._admin

    def close(self) -> None:
        """Close the shared admin client."""
        with self._lock:
            if self._admin is not None:
                self._admin.close()
                self._admin = None


class Admin:
    """Questions to the cluster, from any thread; a client that failed is replaced."""

    def __init__(self, connection: Connection, patience_ms: int | None = None) -> None:
        self._connection = connection
        self._patience_ms = patience_ms
        self._client: KafkaAdminClient | None = None
        self._lock = threading.RLock()
        self._cluster_id: str | None = None
        self._seen: dict[str, tuple[float, Topic | None]] = {}

    @contextlib.contextmanager
    def client(self, action: str) -> Iterator[KafkaAdminClient]:
        """The client, for one caller at a time; errors in the block are converted into those of this package."""
        with self._lock, translate_errors(action):
            if self._client is None:
                self._client = self._connection.make_admin(self._patience_ms)
            try:
                yield self._client
            except Exception:
                self.close()
                raise

    def _ask(self, action: str, question: Callable[[KafkaAdminClient], _Answer]) -> _Answer:
        """Ask, and retry over new connections if brokers fail; only for requests without side effects."""
        deadline = time.monotonic() + (self._patience_ms or self._connection.patience_ms) / 1000
        while True:
            try:
                with self.client(action) as client:
                    return question(client)
            except BrokerError as error:
                cause = error.__cause__
                passing = getattr(cause, "retriable", True) or type(cause).__name__ == "UnknownBrokerIdError"
                if not (error.retriable and passing) or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()

    def cluster_id(self) -> str:
        """The cluster's id; it cannot change while the process runs on one cluster."""
        if self._cluster_id is None:
            description = self._ask("asking for the cluster's id", lambda client: client.describe_cluster())
            self._cluster_id = str(description["cluster_id"])
        return self._cluster_id

    def topic(self, name: str, max_age_s: float = 0.0) -> Topic | None:
        """The metadata of a topic; None if there is none of that name."""
        with self._lock:
            when, described = self._seen.get(name, (float("-inf"), None))
            if time.monotonic() - when <= max_age_s:
                return described
            topic = self._describe(name)
            self._seen[name] = (time.monotonic(), topic)
            return topic

    def _describe(self, name: str) -> Topic | None:
        from kafka import errors

        description = self._ask(f"asking about topic {name!r}", lambda client: client.describe_topics([name]))[0]
        code = description["error_code"]
        if code == errors.UnknownTopicOrPartitionError.errno:
            return None
        if code != 0:
            with translate_errors(f"asking about topic {name!r}"):
                raise errors.for_code(code)(name)
        parts = description["partitions"]
        return Topic(
            name=name,
            topic_id=str(description["topic_id"]),
            partitions=len(parts),
            replication=min((len(p["replica_nodes"]) for p in parts), default=0),
            leaders={p["partition_index"]: p["leader_id"] for p in parts},
        )

    def require_topic(self, name: str, role: str = "the input topic", advice: str = "") -> Topic:
        """The metadata of a topic that has to be there.

        Args:
            name: name of the topic.
            role: what the topic is, for the message.
            advice: end of the message.

        Raises:
            ConfigError: there is none of that name.
        """
        described = self.topic(name)
        if described is None:
            raise ConfigError(f"{role} {name!r} does not exist{advice}")
        return described

    def topic_ids(self) -> dict[str, str]:
        """Names of all topics that may be seen, by their ids."""
        topics = self._ask("asking for the topics", lambda client: client.describe_topics())
        return {str(topic["topic_id"]): str(topic["name"]) for topic in topics}

    def offsets(self, topic: str, partitions: Collection[int], which: Bound) -> dict[int, int]:
        """First, high-water or last stable offsets, fresh; partitions whose leader does not answer are left out."""
        return {partition: offset for partition, (offset, _) in self._offsets(topic, partitions, which).items()}

    def all_offsets(self, topic: str, partitions: Collection[int], which: Bound) -> dict[int, int]:
        """First, high-water or last stable offsets, as of `offsets`, of every one of these partitions.

        Raises:
            BrokerError: the leader of one does not answer.
        """
        return {partition: offset for partition, (offset, _) in self._all_offsets(topic, partitions, which).items()}

    def offsets_at(self, topic: str, partitions: Collection[int], time_ms: int) -> dict[int, tuple[int, int]]:
        """Offset and timestamp of the first record at a time or later; partitions without one are left out.

        Args:
            topic: topic that has the partitions.
            partitions: partitions to ask for.
            time_ms: a time of 0 or later, ms.

        Raises:
            BrokerError: the leader of one does not answer, so that nobody knows whether it has such a record.
        """
        places = self._all_offsets(topic, partitions, time_ms)
        return {partition: place for partition, place in places.items() if place[0] >= 0}

    def _all_offsets(self, topic: str, partitions: Collection[int], which: Bound | int) -> dict[int, tuple[int, int]]:
        """Offsets with their timestamps, of every one of these partitions."""
        answers = self._offsets(topic, partitions, which)
        silent = next((partition for partition in partitions if partition not in answers), None)
        if silent is not None:
            raise BrokerError(f"no leader answers for partition {silent} of {topic!r}")
        return answers

    def _offsets(self, topic: str, partitions: Collection[int], which: Bound | int) -> dict[int, tuple[int, int]]:
        """See `offsets` and `offsets_at`: offsets with their timestamps, where those were asked for."""
        from kafka import TopicPartition
        from kafka.admin import OffsetSpec
        from kafka.errors import KafkaError
        from kafka.protocol.consumer import IsolationLevel

        spec = which if isinstance(which, int) else OffsetSpec.EARLIEST if which == "earliest" else OffsetSpec.LATEST
        level = IsolationLevel.READ_COMMITTED if which == "stable" else IsolationLevel.READ_UNCOMMITTED
        described = self.topic(topic)
        if described is None:
            return {}
        led = [p for p in partitions if described.leaders.get(p, -1) >= 0]
        if not led:
            return {}
        with self.client(f"asking for offsets of {topic!r}") as client:
            try:
                return {
                    tp.partition: (int(answer.offset), int(answer.timestamp))
                    for tp, answer in client.list_partition_offsets(
                        {TopicPartition(topic, p): spec for p in led}, level, timeout_ms=3000
                    ).items()
                }
            except KafkaError:
                self.close()  # it may keep asking a leader that is gone: only an answer makes it look for the new one
                if len(led) == 1:
                    return {}
        answered: dict[int, tuple[int, int]] = {}
        for p in led:
            answered |= self._offsets(topic, [p], which)
        return answered

    def committed(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """All offsets that a group has committed, with their metadata."""
        # On a new cluster the first question makes the offsets topic, and the coordinator comes a moment later.
        groups = self._ask(
            f"asking for the offsets of group {group!r}", lambda client: client.list_group_offsets({group: None})
        )
        offsets: dict[TopicPartition, OffsetAndMetadata] = groups[group]
        return offsets

    def ask_group(self, group: str) -> dict[str, Any]:
        """The metadata of a group: its members, and our rights; empty if we may not ask."""
        groups = self._ask(f"asking about group {group!r}", lambda client: client.describe_groups([group]))
        description: dict[str, Any] = groups[group]
        return description

    def delete_before(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Erase records below these offsets."""
        from kafka import TopicPartition

        with self.client(f"erasing superseded records of {topic!r}") as client:
            client.delete_records({TopicPartition(topic, p): o for p, o in offsets.items()}, timeout_ms=10_000)

    def configs(self, topic: str) -> dict[str, str]:
        """All settings of a topic, defaults included."""
        from kafka.admin import ConfigResource, ConfigResourceType
        from kafka.errors import TopicAuthorizationFailedError

        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        entries = self._ask(
            f"asking for the settings of {topic!r}",
            lambda client: client.describe_configs([resource], config_filter="all"),
        )["topic"][topic]
        if not entries:  # what the client returns where it was refused
            with translate_errors(f"asking for the settings of {topic!r}"):
                raise TopicAuthorizationFailedError(topic)
        return {str(name): str(entry["value"]) for name, entry in entries.items()}

    def grow(self, topic: str, partitions: int) -> None:
        """More partitions for a topic."""
        with self.client(f"adding partitions to {topic!r}") as client:
            client.create_partitions({topic: partitions}, timeout_ms=10_000)
            self._seen.pop(topic, None)
