"""Authentication: tokens from an OAuth 2.0 endpoint, and the root cause when no broker can be reached.

In: settings, the client's connections. Out: bearer tokens; causes in words. Touches: the token endpoint, over HTTP.
Source: RFC 6749 4.4 (client credentials), RFC 7628 (SASL OAUTHBEARER), KIP-768.

The stock client retries a failed login until its timeout, and then reports only the timeout. Here a permanent failure
(a wrong password, mechanism or certificate) ends the attempt at once, and other causes are kept for the error message.
No message contains a secret or a token.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

TIMEOUT_S: Final = 10.0
"""Longest wait for the token endpoint."""
TOKEN_LIFE_S: Final = 30.0
"""Seconds for which a token is taken to be valid if the endpoint gives no time."""
RENEWED_AT: Final = 0.8
"""Part of its life after which a token is not used for new connections."""
MAX_ANSWER_BYTES: Final = 1 << 20
"""Most bytes of a token endpoint's answer; tokens have some kilobytes."""
_NO_TLS = ("WRONG_VERSION", "record layer", "UNEXPECTED_EOF", "closed (EOF)")
"""Words of OpenSSL where a listener answers a TLS handshake with something else, or closes the connection."""


class Tokens:
    """Bearer tokens by the client credentials grant; all connections share one until it is about to expire.

    Args:
        settings: `sasl.oauthbearer.token.endpoint.url`, `.client.id`, `.client.secret`, perhaps `.scope` and
            `.extensions`; `https.ca.location`.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._url = str(settings["sasl.oauthbearer.token.endpoint.url"])
        self._name = str(settings["sasl.oauthbearer.client.id"])
        self._secret = str(settings["sasl.oauthbearer.client.secret"])
        self._scope = str(settings.get("sasl.oauthbearer.scope", ""))
        extensions = str(settings.get("sasl.oauthbearer.extensions", ""))
        self.extensions = dict(part.strip().split("=", 1) for part in extensions.split(",") if "=" in part)
        authority = settings.get("https.ca.location")
        self._context = ssl.create_default_context(cafile=authority) if self._url.startswith("https:") else None
        self._token = ""
        self._until = 0.0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Tokens({self._url!r})"

    def token(self) -> str:
        """A token that stays valid for a while. Raises errors of the client, which handles them as its own."""
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                self._token, life = self._fetch()
                self._until = now + RENEWED_AT * life
            return self._token

    def _fetch(self) -> tuple[str, float]:
        """A new token and its life in seconds."""
        from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError

        form = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
        quoted = ":".join(urllib.parse.quote_plus(part) for part in (self._name, self._secret))
        request = urllib.request.Request(  # noqa: S310 - https, or http on loopback: stream.kafka_settings
            self._url,
            urllib.parse.urlencode(form).encode(),
            {"Authorization": f"Basic {b64encode(quoted.encode()).decode()}", "Accept": "application/json"},
        )
        opener = urllib.request.build_opener(
            _NoRedirects, *([] if self._context is None else [urllib.request.HTTPSHandler(context=self._context)])
        )
        where = f"the token endpoint {self._url}"
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                fields = json.loads(answer.read(MAX_ANSWER_BYTES))
                return str(fields["access_token"]), float(fields.get("expires_in", TOKEN_LIFE_S))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in (400, 401, 403):
                raise SaslAuthenticationFailedError(
                    f"{where} refused the client id or secret (HTTP {error.code})"
                ) from None
            raise KafkaConnectionError(f"{where} answered HTTP {error.code}") from None
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "reason", error)
            raise KafkaConnectionError(f"{where} cannot be reached: {reason}") from None
        except (ValueError, KeyError, TypeError):
            raise KafkaConnectionError(f"{where} answered without an access token") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuse redirects: credentials go to the configured address only."""

    def redirect_request(self, *_arguments: Any) -> None:
        """Follow nothing."""


def provider(tokens: Tokens) -> Any:
    """The client's kind of token provider."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc] # the client has no types
        def token(self) -> str:
            return tokens.token()

        def extensions(self) -> dict[str, str]:
            return tokens.extensions

    return Provider()


class Causes:
    """Remembers why connections of one client to its bootstrap servers failed, newest last.

    Args:
        network: the client's network layer, whose connections are watched from now on.
    """

    def __init__(self, network: Any) -> None:
        self._causes: list[Exception] = []
        self._final: dict[Any, Exception] = {}
        self._manager = network._manager
        connect = self._manager.get_connection

        def get_connection(node_id: Any, *arguments: Any, **options: Any) -> Any:
            if node_id in self._final:
                raise self._final[node_id]
            connection = connect(node_id, *arguments, **options)
            if self._manager.cluster.is_bootstrap(node_id) and not self._manager.bootstrapped:
                connection.init_future.add_errback(lambda error: self._note(node_id, error))
                _read_before_end(connection)
            return connection

        self._manager.get_connection = get_connection

    def _note(self, node_id: Any, error: Exception) -> None:
        """Remember a cause; the client's next attempt raises a permanent one."""
        self._causes.append(error)
        if is_final(error):
            self._final[node_id] = error

    def first(self) -> Exception | None:
        """The most informative cause: a permanent one, or else the first one that is not just a timeout."""
        from kafka.errors import KafkaTimeoutError

        final = [error for error in self._causes if is_final(error)]
        telling = [error for error in self._causes if not isinstance(error, KafkaTimeoutError) and str(error)]
        return next(iter(final or telling or self._causes), None)


def _read_before_end(connection: Any) -> None:
    """Make a connection read the data that came before its end.

    A broker that refuses a login sends the reason and closes. The client (kafka-python 3.0.12, `_sock_recv`) discards
    what it read together with the end of the stream, and reports "socket disconnected".
    """
    connected = connection.connection_made

    def connection_made(transport: Any) -> None:
        receive = transport._sock_recv

        def received() -> tuple[bytes, Exception | None]:
            read, error = receive()
            return (read, None) if read else (read, error)

        transport._sock_recv = received
        connected(transport)

    connection.connection_made = connection_made


def is_final(error: Exception) -> bool:
    """Whether a retry would fail for the same reason."""
    from kafka import errors

    final = (errors.SaslAuthenticationFailedError, errors.UnsupportedSaslMechanismError, errors.IllegalSaslStateError)
    marks = ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION", "ALERT_")
    return isinstance(error, final) or any(mark in str(error) for mark in marks)


def advice(error: Exception, protocol: str) -> str:
    """What to check for a cause; empty if that is not known."""
    from kafka import errors

    text = str(error)
    if isinstance(error, errors.UnsupportedSaslMechanismError):
        return 'check "sasl.mechanism"'
    if isinstance(error, errors.SaslAuthenticationFailedError):
        return "" if "token endpoint" in text else "check the user name and the secret"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return 'check "ssl.ca.location": it must hold the authority that signed the broker\'s certificate'
    if "ALERT_" in text:
        return 'the broker refused the TLS handshake: check "ssl.certificate.location" and "ssl.key.location"'
    if "Handshake failed" in text and any(mark in text for mark in _NO_TLS):
        return f'the listener does not speak TLS: check "security.protocol" ({protocol})'
    if isinstance(error, errors.InvalidReceiveError):
        return f'the listener speaks another protocol: check "security.protocol" ({protocol})'
    if "socket disconnected" in text:
        return f'the listener ended the connection: check "security.protocol" ({protocol})'
    return ""
