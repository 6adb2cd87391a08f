"""Logging in over TLS, with SCRAM and with OAUTHBEARER, and the first cause where that fails.

The broker checks tokens by the key that the tests' token endpoint signs with; SCRAM users are made on it; its TLS
listener asks for a client certificate.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID
from kafka import KafkaAdminClient
from kafka.errors import KafkaConnectionError

from helpers.kafka.devbroker import PASSWORD, SASL_USER, DevCluster
from sketchstream.errors import BrokerError, ConfigError
from sketchstream_connectors.kafka.cluster.client import Connection
from sketchstream_connectors.kafka.cluster.login import advice

SECRET = "zebra/5512:secret+"
CLIENT = "reach worker"
QUICK = {"admin.bootstrap.timeout.ms": 4000, "admin.request.timeout.ms": 4000}


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class Issuer:
    """A token endpoint: client credentials in, signed tokens out."""

    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    life_s: int = 60
    requests: list[dict[str, str]] = field(default_factory=list)
    broken: bytes | None = None
    url: str = ""

    def jwks(self) -> str:
        numbers = self.key.public_key().public_numbers()
        modulus = b64(numbers.n.to_bytes(256, "big"))
        return json.dumps(
            {"keys": [{"kty": "RSA", "kid": "k", "use": "sig", "alg": "RS256", "n": modulus, "e": "AQAB"}]}
        )

    def token(self) -> str:
        now = int(time.time())
        head = {"alg": "RS256", "typ": "JWT", "kid": "k"}
        body = {
            "sub": "worker",
            "iss": "tests",
            "aud": "kafka",
            "iat": now,
            "exp": now + self.life_s,
            "scope": "stream",
        }
        text = ".".join(b64(json.dumps(part).encode()) for part in (head, body))
        return f"{text}.{b64(self.key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def answer(self, headers: Any, form: dict[str, str]) -> tuple[int, bytes]:
        self.requests.append(form)
        if self.broken is not None:
            return 200, self.broken
        given = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
        if given != ":".join(urllib.parse.quote_plus(part) for part in (CLIENT, SECRET)):
            return 401, b'{"error": "invalid_client", "marked": "zebra"}'
        return 200, json.dumps({"access_token": self.token(), "expires_in": self.life_s}).encode()


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    made = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            code, body = made.answer(self.headers, form)
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}/token"
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


def certificate(folder: Path, name: str, authority: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
    """A certificate and its key as PEM files; self-signed without an authority."""
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority[0].subject if authority else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
    )
    made = builder.sign(authority[1] if authority else key, hashes.SHA256())
    (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret = serialization.BestAvailableEncryption(SECRET.encode()) if authority else serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    )
    return made, key


@dataclass(frozen=True)
class Doors:
    """The broker and what opens it."""

    cluster: DevCluster
    folder: Path

    def connection(self, options: dict[str, object]) -> Connection:
        sasl = str(options.get("security.protocol", "")).upper().startswith("SASL")
        servers = self.cluster.sasl_bootstrap if sasl else self.cluster.tls_bootstrap
        authority = {"ssl.ca.location": str(self.cluster.certificate)}
        return Connection({"bootstrap.servers": servers, **authority, **QUICK, **options}, self.folder)  # type: ignore[arg-type]

    def cluster_id(self, options: dict[str, object]) -> str:
        connection = self.connection(options)
        try:
            return connection.admin.cluster_id()
        finally:
            connection.close()

    def refusal(self, options: dict[str, object]) -> str:
        connection = self.connection(options)
        try:
            with pytest.raises(BrokerError) as caught:
                _ = connection.admin.cluster_id()
        finally:
            connection.close()
        text = str(caught.value)
        assert SECRET not in text
        assert "zebra" not in text
        assert "\n" not in text
        return text


@pytest.fixture(scope="module")
def doors(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    folder = tmp_path_factory.mktemp("login")
    authority = certificate(folder, "authority")
    certificate(folder, "worker", authority)
    (folder / "jwks.json").write_text(issuer.jwks())
    (folder / "secret").write_text(f"{SECRET}\n")
    modules = "org.apache.kafka.common.security"
    handler = f"{modules}.oauthbearer.OAuthBearerValidatorCallbackHandler"
    sasl = "listener.name.sasl"
    properties: dict[str, str | int] = {
        f"{sasl}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{sasl}.scram-sha-256.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
        f"{sasl}.scram-sha-512.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
        f"{sasl}.oauthbearer.sasl.jaas.config": f"{modules}.oauthbearer.OAuthBearerLoginModule required;",
        f"{sasl}.oauthbearer.sasl.server.callback.handler.class": handler,
        f"{sasl}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"file://{folder / 'jwks.json'}",
        f"{sasl}.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
        f"{sasl}.oauthbearer.connections.max.reauth.ms": 20_000,
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.tls.ssl.truststore.type": "PEM",
        "listener.name.tls.ssl.truststore.location": str(folder / "authority.pem"),
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{folder / 'jwks.json'}"
    allowed_files = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={folder / 'jwks.json'}"
    with DevCluster(1, tls=True, properties=properties, jvm=(allowed, allowed_files)) as cluster:
        make_scram_users(cluster)
        yield Doors(cluster, folder)


def make_scram_users(cluster: DevCluster) -> None:
    """A user `scram` for both hashes."""
    from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            made = UserScramCredentialUpsertion("scram", mechanism, SECRET, iterations=4096)
            assert client.alter_user_scram_credentials([made]) == {"scram": None}
    finally:
        client.close()


SCRAM = {"security.protocol": "sasl_ssl", "sasl.username": "scram", "sasl.password.file": "secret"}
MTLS = {
    "security.protocol": "ssl",
    "ssl.certificate.location": "worker.pem",
    "ssl.key.location": "worker.key",
    "ssl.key.password.file": "secret",
}


def bearer(issuer: Issuer, **more: object) -> dict[str, object]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": issuer.url,
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret.file": "secret",
        "sasl.oauthbearer.scope": "stream",
        **more,
    }


@pytest.mark.kafka
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "scram-sha-512"])
def test_scram_logs_in_with_a_secret_from_a_file(doors: Doors, mechanism: str) -> None:
    assert doors.cluster_id({**SCRAM, "sasl.mechanism": mechanism})


@pytest.mark.kafka
def test_a_client_certificate_logs_in(doors: Doors) -> None:
    assert doors.cluster_id(MTLS)


@pytest.mark.kafka
def test_client_credentials_log_in_and_a_token_is_shared_and_renewed(doors: Doors, issuer: Issuer) -> None:
    issuer.requests.clear()
    connection = doors.connection(bearer(issuer))
    try:
        assert connection.admin.cluster_id()
        producer = connection.producer()
        producer.close(timeout=2)
        assert issuer.requests == [{"grant_type": "client_credentials", "scope": "stream"}]
        assert connection._tokens is not None
        connection._tokens._until = 0.0  # as after most of its life
        producer = connection.producer()
        producer.close(timeout=2)
        assert len(issuer.requests) == 2
        assert SECRET not in repr(connection) + repr(connection._tokens)
    finally:
        connection.close()


@pytest.mark.parametrize(
    "words",
    [
        "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)",
        "[SSL] record layer failure (_ssl.c:1006)",
        "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol (_ssl.c:1006)",
        "TLS/SSL connection has been closed (EOF) (_ssl.c:992)",
    ],
)
def test_a_listener_without_tls_is_named_however_it_ends_the_handshake(words: str) -> None:
    """It answers in its own protocol or closes the connection first: which of them, depends on the moment."""
    said = advice(KafkaConnectionError(f"Handshake failed: {words}"), "SSL")
    assert said == 'the listener does not speak TLS: check "security.protocol" (SSL)'


@pytest.mark.kafka
def test_what_keeps_us_out_is_said_first_and_at_once(doors: Doors, issuer: Issuer) -> None:
    wrong = {**SCRAM, "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "nobody"}
    assert "check the user name and the secret" in doors.refusal(wrong)
    plain = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": SASL_USER}
    assert "check the user name and the secret" in doors.refusal({**plain, "sasl.password": "wrong"})
    assert 'check "sasl.mechanism"' in doors.refusal({**plain, "sasl.mechanism": "AWS_MSK_IAM", "sasl.password": "x"})
    other = {**plain, "sasl.password": PASSWORD, "ssl.ca.location": "authority.pem"}
    assert "CERTIFICATE_VERIFY_FAILED" in doors.refusal(other)
    assert 'check "ssl.ca.location"' in doors.refusal(other)
    without = {"security.protocol": "SSL"}
    assert 'check "ssl.certificate.location"' in doors.refusal(without)
    plaintext = Connection({"bootstrap.servers": doors.cluster.tls_bootstrap, **QUICK})
    with pytest.raises(BrokerError, match=r"check \"security.protocol\" \(PLAINTEXT\)"):
        plaintext.make_admin()
    over = {"bootstrap.servers": doors.cluster.bootstrap, "security.protocol": "SSL", **QUICK}
    with pytest.raises(BrokerError, match="the listener does not speak TLS"):
        Connection({**over, "ssl.ca.location": str(doors.cluster.certificate)}).make_admin()
    refused = doors.refusal(bearer(issuer, **{"sasl.oauthbearer.client.id": "stranger"}))
    assert "refused the client id or secret (HTTP 401)" in refused
    away = doors.refusal(bearer(issuer, **{"sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"}))
    assert "the token endpoint http://127.0.0.1:1/token cannot be reached" in away
    issuer.broken = b'{"marked": "zebra"}'
    try:
        assert "answered without an access token" in doors.refusal(bearer(issuer))
    finally:
        issuer.broken = None


def test_nobody_there_is_said_with_the_reason() -> None:
    connection = Connection({"bootstrap.servers": "127.0.0.1:1", "admin.bootstrap.timeout.ms": 1000})
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1 cannot be reached: .*REFUSED"):
        connection.make_admin()


def test_a_secret_file_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must name a file with the secret"):
        Connection({"bootstrap.servers": "x:1", "sasl.password.file": "none"}, tmp_path)
