"""What happens before a worker joins its group, and the connections it may be told to use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import errors

from helpers.kafka.app import MINUTE, App
from helpers.kafka.devbroker import PASSWORD, SASL_USER, DevCluster
from sketchstream.config.kafka_settings import OWNED
from sketchstream.config.loader import Config
from sketchstream.errors import BrokerError, ConfigError
from sketchstream.items.key import Key
from sketchstream_connectors.decode import layouts
from sketchstream_connectors.factory import rules
from sketchstream_connectors.kafka.cluster.client import Connection, translate_errors
from sketchstream_connectors.kafka.worker import CHUNKS, warm_up

FORMATS = {
    "json": "format = 'json'\nitem = 'a.b'\ntime = 'c.ts'\nweight = 'n'",
    "key": "format = 'key'",
    "value": "format = 'value'\nitem_type = 'bytes'",
    "packed": "format = 'packed'\nitem_type = 'int'",
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("sketch", ["unit = 'item'\nmodulus = 32", "unit = 'event'"])
def test_every_format_is_warmed_up(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, sketch: str) -> None:
    Key.generate().save(tmp_path / "key")
    text = (
        f"[kafka]\n'bootstrap.servers' = 'x:1'\n'group.id' = 'g'\n[input]\ntopic = 't'\npartitioned_by = 'item'\n"
        f"partitioner = 'murmur2'\n{FORMATS[name]}\n[key]\nfile = 'key'\n"
        f"[[sketch]]\nname = 's'\nwindow = '1h'\nepsilon = '1'\n{sketch}\n"
        "domain = { slots = 1024, levels = 2 }\n"
    )
    config = Config.parse(text, tmp_path / "c.toml")
    with caplog.at_level(logging.INFO, "sketchstream.kafka"):
        warm_up(config, rules(config))
    assert caplog.text.index("warming_up") < caplog.text.index("warmed_up")
    assert "failed" not in caplog.text


def test_loops_for_large_chunks_are_compiled_before_the_first_one_comes() -> None:
    assert min(CHUNKS) < layouts.WORTH <= max(CHUNKS)


@pytest.mark.parametrize("option", sorted(OWNED))
def test_options_that_are_ours_are_refused(option: str) -> None:
    for name in (option, f"consumer.{option}", f"producer.{option}"):
        with pytest.raises(ConfigError, match="cannot be set"):
            Connection({"bootstrap.servers": "x:1", name: "1"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "bootstrap.servers"),
        ({"bootstrap.server": "x"}, 'did you mean "bootstrap.servers"'),
        ({"session.timeout.ms": "soon"}, "whole number"),
        ({"ssl.check.hostname": "perhaps"}, "true or false"),
        ({"ssl.cafile": "none.pem"}, "must name a file"),
        ({"ssl.truststore.location": "none.jks"}, "must name a file"),
        ({"ssl.truststore.type": "JKS"}, "must be PEM"),
        ({"ssl.endpoint.identification.algorithm": ""}, "ssl.check.hostname"),
        ({"consumer.linger.ms": 5}, "not an option"),
    ],
)
def test_wrong_options_are_explained(options: dict[str, object], message: str) -> None:
    given = {"bootstrap.servers": "x:1", **options} if options and "bootstrap.server" not in options else options
    with pytest.raises(ConfigError, match=message):
        Connection(given)  # type: ignore[arg-type]


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(Connection({"bootstrap.servers": "x:1", "sasl.password": "secret"}))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.KafkaTimeoutError("no answer in 5 s"), "asking: no answer in 5 s (KafkaTimeoutError)"),
        (errors.KafkaConnectionError(OSError(111, "refused")), "asking: [Errno 111] refused (KafkaConnectionError)"),
        (
            errors.NotLeaderForPartitionError(),
            "asking: This error is thrown if the client attempts to send messages to a replica that is not the leader "
            "for some partition. It indicates that the clients metadata is out of date (NotLeaderForPartitionError)",
        ),
        (
            errors.GroupAuthorizationFailedError("reach"),
            "asking: not allowed to touch group reach (GroupAuthorizationFailedError); `sketchstream topics acls` "
            "lists what a worker must be allowed",
        ),
        (
            errors.TransactionalIdAuthorizationFailedError("FindCoordinatorResponse error for TRANSACTION/g-t-0: "),
            "asking: not allowed to touch transactional id g-t-0 (TransactionalIdAuthorizationFailedError); "
            "`sketchstream topics acls` lists what a worker must be allowed",
        ),
        (errors.KafkaError(errors.KafkaTimeoutError("late")), "asking: KafkaTimeoutError: late (KafkaError)"),
        (errors.KafkaError(), "asking: KafkaError"),
    ],
)
def test_errors_of_the_client_say_what_and_name_themselves_once(error: Exception, text: str) -> None:
    with pytest.raises(BrokerError) as caught, translate_errors("asking"):
        raise error
    assert str(caught.value) == text
    assert str(caught.value).count(type(error).__name__) == 1


def test_a_leader_that_cannot_be_reached_is_looked_for_anew(
    kafka: str, topic_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, topic = Connection({"bootstrap.servers": kafka}), topic_name("moved")
    with connection.admin.client("creating") as client:
        client.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
        client.wait_for_topics([topic])
    assert connection.admin.offsets(topic, [0, 1], "latest") == {0: 0, 1: 0}

    def refused(*_arguments: object, **_options: object) -> object:
        raise errors.KafkaConnectionError(OSError(111, "refused"))

    monkeypatch.setattr(client, "list_partition_offsets", refused)  # it knows the old leader, who does not answer
    for _ in range(2):
        found = connection.admin.offsets(topic, [0, 1], "latest")
    assert found == {0: 0, 1: 0}
    connection.close()


@pytest.fixture
def secured(own_broker: DevCluster, tmp_path: Path) -> Iterator[App]:
    """An application whose workers use TLS and SASL, on topics made over the plain listener."""
    app = App(own_broker.bootstrap, tmp_path / "app", partitions=2)
    options = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(own_broker.certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.username": SASL_USER,
    }
    text = app.config_file.read_text().replace(own_broker.bootstrap, own_broker.sasl_bootstrap)
    lines = "".join(f"'{name}' = '{value}'\n" for name, value in options.items())
    app.config_file.write_text(text.replace("[input]", lines + "[input]", 1))
    yield app
    app.close()


@pytest.mark.filterwarnings("ignore:.*NO PRIVACY")
def test_workers_run_over_tls_and_sasl(secured: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKETCHSTREAM__KAFKA__SASL_PASSWORD", PASSWORD)
    worker = secured.start(fresh=True)
    load = secured.load()
    start = 1_700_000_040_000 - 1_700_000_040_000 % MINUTE
    for i in range(500):
        load.send(i % 400, start + i)
    load.close_windows(start + 2 * MINUTE)
    secured.wait_published(start + MINUTE)
    secured.check_exact()
    said = worker.log.read_text()
    assert PASSWORD not in said
    assert " sketchstream." in said
    assert " kafka." not in said, "the client's own lines"
    assert worker.terminate() == 0


def test_tls_without_the_certificate_and_sasl_without_the_password_are_refused(own_broker: DevCluster) -> None:
    quick = {"admin.bootstrap.timeout.ms": 1000, "admin.request.timeout.ms": 1000}
    tls = {"bootstrap.servers": own_broker.tls_bootstrap, "security.protocol": "SSL"}
    wrong = {
        "bootstrap.servers": own_broker.sasl_bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.cafile": str(own_broker.certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.username": SASL_USER,
        "sasl.password": "wrong-password",
    }
    for options in (tls, wrong):
        connection = Connection({**options, **quick})
        with pytest.raises(BrokerError) as caught:
            connection.make_admin()
        assert "wrong-password" not in str(caught.value)
        connection.close()
    good = Connection({**tls, "ssl.cafile": str(own_broker.certificate)})
    assert good.admin.cluster_id()
    good.close()


def test_a_group_that_takes_no_such_member_ends_the_worker(kafka: str, tmp_path: Path) -> None:
    """Brokers refuse session timeouts outside of their limits, every time anew."""
    app = App(kafka, tmp_path / "app", partitions=1, kafka={"session.timeout.ms": 400})
    try:
        worker = app.start()
        assert worker.process.wait(60) == 2
        text = worker.log.read_text()
        assert '"session.timeout.ms" = 400 is outside of what the brokers allow' in text
        assert worker.says("event=poll_failed") == 0
    finally:
        app.close()
