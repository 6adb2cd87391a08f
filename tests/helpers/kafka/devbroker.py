"""Runs a real Apache Kafka on loopback, from its own jars, for development and tests.

In: how many nodes, and whether listeners with TLS are wanted. Out: a `DevCluster` whose nodes can be killed,
stopped, suspended and restarted one by one; run as a program, this file keeps one until Ctrl-C.
Touches: Maven once (it brings the jars into `.cache/kafka` of the checkout), Java processes in groups of their own,
a directory of its own for data, free ports of 127.0.0.1.

No broker outlives its owner: a small guard process holds the list of process groups, and ends them when the pipe to
the process that started them closes for any reason.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from sketchstream.errors import BrokerError

POM = Path(__file__).with_name("devbroker.pom.xml")
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Flags for tests: twice as quick to start; benches take the JVM's own choices."""
READY = "Kafka Server started"
PATIENCE_S = 180.0
PASSWORD = "development-only"
SASL_USER = "alice"
FIRST_PORT, LAST_PORT = 20_000, 32_000  # below the ephemeral range: a killed node's port stays free


def default_cache() -> Path:
    """`.cache/kafka` of the checkout that this file lies in, or of the current directory."""
    for parent in Path(__file__).resolve().parents:
        if (parent / "pyproject.toml").is_file():
            return parent / ".cache" / "kafka"
    return Path.cwd() / ".cache" / "kafka"


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let one process at a time fetch jars or write the class archive."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(command: list[str], what: str, timeout_s: float = 900.0) -> str:
    """Run a command to its end and return its output; BrokerError with the output's tail if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        msg = f"{what} needs `{command[0]}` on the PATH, found none; install Java 17 and Maven"
        raise BrokerError(msg) from None
    except subprocess.TimeoutExpired:
        msg = f"{what} did not end within {timeout_s:.0f} s"
        raise BrokerError(msg) from None
    if done.returncode != 0:
        msg = f"{what} failed with exit code {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
        raise BrokerError(msg)
    return done.stdout


class Jars:
    """The broker's jars and the class archive that makes it start faster.

    Args:
        cache: where they are kept; a change of the pom file makes a new folder inside.
        pom: the broker's, or one that names other jars.
    """

    def __init__(self, cache: Path | None = None, pom: Path = POM) -> None:
        self._pom = pom
        digest = hashlib.blake2b(pom.read_bytes(), digest_size=6).hexdigest()
        self.cache = cache or default_cache()
        self.folder = self.cache / digest
        self.archive = self.folder / "classes.jsa"

    def bring(self) -> None:
        """Bring the jars through Maven, once."""
        with _locked(self.cache):
            marker = self.folder / "complete"
            if not marker.exists():
                libs = self.folder / "libs"
                libs.mkdir(parents=True, exist_ok=True)
                goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={libs}"]
                _run(
                    ["mvn", "-q", "-B", "-f", str(self._pom), *goal],
                    f"bringing the jars of {self._pom.name} through Maven",
                )
                marker.touch()

    def ensure(self) -> None:
        """Bring the broker's jars, and write the class archive, once."""
        self.bring()
        with _locked(self.cache):
            if not self.archive.exists():
                self._write_archive()

    def _write_archive(self) -> None:
        """One short run of a broker whose loaded classes are archived at its exit."""
        fresh = self.folder / f"classes.{os.getpid()}.jsa"
        with DevCluster(1, jars=self, _flags=(f"-XX:ArchiveClassesAtExit={fresh}",)) as cluster:
            cluster.terminate(1)
        if fresh.exists():
            fresh.replace(self.archive)

    def class_path(self) -> str:
        """The jars in a fixed order: a class archive is refused for any other."""
        return ":".join(str(path) for path in sorted((self.folder / "libs").glob("*.jar")))


class _Guard:
    """A process that ends our process groups when this process ends, even if it is killed."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--guard", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def tell(self, sign: str, pid: int) -> None:
        """`+`: this group is ours; `-`: it has ended."""
        pipe = self._process.stdin
        with contextlib.suppress(BrokenPipeError, ValueError):
            if pipe is not None:
                pipe.write(f"{sign}{pid}\n")
                pipe.flush()

    def close(self) -> None:
        """Let the guard end what is left, and wait for it."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)


def _guard(directory: Path) -> None:
    """Body of the guard process: keep the list, end what is on it when the pipe closes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        pid = int(line[1:])
        (groups.add if line[0] == "+" else groups.discard)(pid)
    for pid in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)


class Node:
    """One broker of a `DevCluster`: its ports, its directory, its process while it runs."""

    def __init__(self, number: int, directory: Path, ports: Mapping[str, int]) -> None:
        self.number = number
        self.directory = directory
        self.ports = dict(ports)
        self.process: subprocess.Popen[bytes] | None = None
        self.output = directory / "output.log"
        self.started_at = 0

    def running(self) -> bool:
        """Whether its process exists."""
        return self.process is not None and self.process.poll() is None

    def ready(self) -> bool:
        """Whether it has reported that it is ready since its last start."""
        if not self.output.exists():
            return False
        with self.output.open("rb") as handle:
            handle.seek(self.started_at)
            return READY.encode() in handle.read()


def free_ports(count: int) -> list[int]:
    """Unused ports of 127.0.0.1."""
    found: list[int] = []
    while len(found) < count:
        port = FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def _cluster_id() -> str:
    """A random id in Kafka's spelling."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
    return text if text[0] != "-" else _cluster_id()


class DevCluster:
    """A cluster of one or three brokers that lives as long as this object is open.

    Args:
        nodes: 1 or 3 (any odd number works).
        tls: also listen with TLS (`tls_bootstrap`) and with TLS and SASL/PLAIN (`sasl_bootstrap`), with a
            certificate made for this run (`certificate`).
        quick: flags that suit tests; False leaves the JIT to the JVM, for benches.
        users: name -> password of those who may log in on the SASL listener; default `alice` with `PASSWORD`.
        access: grant rights by access rules only (StandardAuthorizer). Clients of the plain listener, which have no
            name, may do everything.
        heap: the JVM's largest heap.
        properties: further broker settings, over ours.
        jvm: further flags of the brokers' JVM.
        directory: where data and output go; default a temporary directory, removed at the end.
        jars: where the jars are kept.

    Raises:
        BrokerError: no Java or Maven, or a node that does not start.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        access: bool = False,
        quick: bool = True,
        heap: str = "512m",
        properties: Mapping[str, str | int] | None = None,
        jvm: Sequence[str] = (),
        directory: Path | None = None,
        jars: Jars | None = None,
        _flags: tuple[str, ...] = (),
    ) -> None:
        self.size = nodes
        self.tls = tls
        self._users = dict(users or {SASL_USER: PASSWORD})
        self._access = access
        self.nodes: dict[int, Node] = {}
        self.certificate: Path | None = None
        self._jars = jars or Jars()
        self._archiving = bool(_flags)
        self._flags = (*(QUICK if quick else ()), "-Xms128m", f"-Xmx{heap}", *jvm, *_flags)
        self._properties = dict(properties or {})
        self._base = directory
        self._directory: Path | None = None
        self._guard: _Guard | None = None

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` of the plain listeners."""
        return self._addresses("PLAINTEXT")

    @property
    def tls_bootstrap(self) -> str:
        """`bootstrap.servers` of the listeners with TLS."""
        return self._addresses("TLS")

    @property
    def sasl_bootstrap(self) -> str:
        """`bootstrap.servers` of the listeners with TLS and SASL/PLAIN (user `alice`, password `PASSWORD`)."""
        return self._addresses("SASL")

    def _addresses(self, listener: str) -> str:
        return ",".join(f"127.0.0.1:{node.ports[listener]}" for node in self.nodes.values())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, attempts: int = 3) -> None:
        """Format and start all nodes and wait until they are ready; other ports if one was taken meanwhile."""
        if not self._archiving:
            self._jars.ensure()
        for attempt in range(attempts):
            try:
                self._layout()
                for number in self.nodes:
                    self.start_node(number, wait=False)
                self.wait_ready()
            except BrokerError as error:
                taken = "Address already in use" in str(error)
                self.close()
                if attempt + 1 == attempts or not taken:
                    raise
            except BaseException:
                self.close()
                raise
            else:
                return

    def _layout(self) -> None:
        """Directories, ports, certificate, settings, formatted storage."""
        self._directory = Path(tempfile.mkdtemp(prefix="sketchstream-kafka-", dir=self._base))
        self._guard = _Guard(self._directory)
        listeners = ["PLAINTEXT", "CONTROLLER", *(["TLS", "SASL"] if self.tls else [])]
        ports = free_ports(len(listeners) * self.size)
        for number in range(1, self.size + 1):
            folder = self._directory / f"node-{number}"
            folder.mkdir()
            self.nodes[number] = Node(number, folder, {name: ports.pop() for name in listeners})
        if self.tls:
            self._make_certificate(self._directory)
        cluster_id = _cluster_id()
        formats = []
        for node in self.nodes.values():
            settings = node.directory / "server.properties"
            settings.write_text("".join(f"{key}={value}\n" for key, value in self._settings(node).items()))
            command = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(settings)]
            formats.append(self._java(node, command))
        for process in formats:
            if process.wait(PATIENCE_S) != 0:
                msg = f"formatting the storage of a broker failed, see {self._directory}: {self._tail()}"
                raise BrokerError(msg)

    def _make_certificate(self, directory: Path) -> None:
        """A self-signed certificate for 127.0.0.1 and localhost, as a key store and as PEM."""
        store, pem = directory / "broker.p12", directory / "broker.pem"
        common = ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "broker"]
        names = ["-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1,dns:localhost"]
        life = ["-keyalg", "RSA", "-keysize", "2048", "-validity", "7"]
        _run(["keytool", "-genkeypair", *common, *names, *life], "keytool")
        _run(["keytool", "-exportcert", "-rfc", *common, "-file", str(pem)], "keytool")
        self.certificate = pem

    def _settings(self, node: Node) -> dict[str, str | int]:
        """server.properties of one node."""
        copies, enough = (3, 2) if self.size >= 3 else (1, 1)
        voters = ",".join(f"{n.number}@127.0.0.1:{n.ports['CONTROLLER']}" for n in self.nodes.values())
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", "TLS": "SSL", "SASL": "SASL_SSL"}
        clients = {name: port for name, port in node.ports.items() if name != "CONTROLLER"}
        settings: dict[str, str | int] = {
            "process.roles": "broker,controller",
            "node.id": node.number,
            "controller.quorum.voters": voters,
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in node.ports.items()),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in clients.items()),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(f"{name}:{protocols[name]}" for name in node.ports),
            "log.dirs": str(node.directory / "data"),
            "num.partitions": 4,
            "default.replication.factor": copies,
            "min.insync.replicas": enough,
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": enough,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": enough,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            "auto.create.topics.enable": "false",
            "log.cleaner.dedupe.buffer.size": 16 * 2**20,
            "broker.session.timeout.ms": 6000,
        }
        if self.tls:
            store = self._directory / "broker.p12" if self._directory else ""
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            names = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
            login = f"{module} required {names};"
            for listener in ("tls", "sasl"):
                settings[f"listener.name.{listener}.ssl.keystore.location"] = str(store)
                settings[f"listener.name.{listener}.ssl.keystore.password"] = PASSWORD
                settings[f"listener.name.{listener}.ssl.keystore.type"] = "PKCS12"
            settings["listener.name.sasl.sasl.enabled.mechanisms"] = "PLAIN"
            settings["listener.name.sasl.plain.sasl.jaas.config"] = login
        if self._access:
            settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            settings["super.users"] = "User:ANONYMOUS"
        return settings | self._properties

    def _java(self, node: Node, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a Java process of a node in a group of its own, and tell the guard."""
        shared = [f"-XX:SharedArchiveFile={self._jars.archive}"] if self._jars.archive.exists() else []
        flags = [*self._flags, *shared, "-Xshare:auto", f"-Dkafka.logs.dir={node.directory / 'logs'}"]
        if command[0] != "kafka.Kafka":
            flags = [flag for flag in flags if "ArchiveClassesAtExit" not in flag]
        output: IO[bytes]
        with node.output.open("ab") as output:
            try:
                process = subprocess.Popen(
                    ["java", *flags, "-cp", self._jars.class_path(), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except FileNotFoundError:
                msg = "the development broker needs `java` on the PATH, found none; install Java 17"
                raise BrokerError(msg) from None
        if self._guard is not None:
            self._guard.tell("+", process.pid)
        return process

    def start_node(self, number: int, *, wait: bool = True) -> None:
        """Start one node (again)."""
        node = self.nodes[number]
        if node.running():
            return
        node.started_at = node.output.stat().st_size if node.output.exists() else 0
        node.process = self._java(node, ["kafka.Kafka", str(node.directory / "server.properties")])
        if wait:
            self.wait_ready([number])

    def wait_ready(self, numbers: list[int] | None = None, timeout_s: float = PATIENCE_S) -> None:
        """Wait until these nodes (by default all running ones) have reported that they are ready."""
        waiting = [self.nodes[n] for n in numbers] if numbers else [n for n in self.nodes.values() if n.process]
        deadline = time.monotonic() + timeout_s
        while not all(node.ready() for node in waiting):
            dead = [node.number for node in waiting if not node.running()]
            if dead or time.monotonic() > deadline:
                what = f"ended (nodes {dead})" if dead else f"was not ready within {timeout_s:.0f} s"
                msg = f"a development broker {what}: {self._tail()}"
                raise BrokerError(msg)
            time.sleep(0.05)

    def _tail(self) -> str:
        """The last output of the nodes."""
        texts = [n.output.read_text(errors="replace")[-1500:] for n in self.nodes.values() if n.output.exists()]
        return " | ".join(texts)

    def _signal(self, number: int, which: signal.Signals) -> None:
        process = self.nodes[number].process
        if process is not None and process.poll() is None:
            process.send_signal(which)

    def _reap(self, number: int, timeout_s: float) -> None:
        process = self.nodes[number].process
        if process is None:
            return
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._guard is not None:
            self._guard.tell("-", process.pid)
        self.nodes[number].process = None

    def kill(self, number: int) -> None:
        """End one node at once (SIGKILL)."""
        self._signal(number, signal.SIGKILL)
        self._reap(number, 30.0)

    def terminate(self, number: int, timeout_s: float = 60.0) -> None:
        """Let one node shut down in order (SIGTERM), by force after `timeout_s`."""
        self._signal(number, signal.SIGTERM)
        self._reap(number, timeout_s)

    def suspend(self, number: int) -> None:
        """Suspend one node (SIGSTOP)."""
        self._signal(number, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        """Resume one node (SIGCONT)."""
        self._signal(number, signal.SIGCONT)

    def restart(self, number: int, *, wait: bool = True) -> None:
        """Shut one node down in order and start it again."""
        self.terminate(number)
        self.start_node(number, wait=wait)

    def close(self) -> None:
        """Kill all nodes and remove their data, which nobody needs."""
        for number in self.nodes:
            self.kill(number)
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None
        self.nodes.clear()


def main(arguments: list[str] | None = None) -> int:
    """Run a cluster until it is interrupted; print and write down its address."""
    import argparse

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--nodes", type=int, default=1, help="1 or 3 brokers (default 1)")
    parser.add_argument("--tls", action="store_true", help="listeners with TLS, and with TLS and SASL, as well")
    parser.add_argument("--fetch", action="store_true", help="bring the jars and the class archive, then end")
    parser.add_argument("--guard", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.guard is not None:
        _guard(options.guard)
        return 0
    say = sys.stdout.write
    jars = Jars()
    say(f"jars in {jars.folder}\n")
    jars.ensure()
    if options.fetch:
        return 0

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    address = jars.cache / "address"
    with contextlib.suppress(KeyboardInterrupt), DevCluster(options.nodes, tls=options.tls, jars=jars) as cluster:
        address.write_text(cluster.bootstrap + "\n")
        say(f"bootstrap.servers = {cluster.bootstrap}\n")
        if options.tls:
            say(f"with TLS: {cluster.tls_bootstrap}; with SASL: {cluster.sasl_bootstrap}; {cluster.certificate}\n")
        say(f"for tests: export SKETCHSTREAM_TEST_KAFKA={cluster.bootstrap}\nCtrl-C stops it and removes its data.\n")
        sys.stdout.flush()
        try:
            while all(node.running() for node in cluster.nodes.values()):
                time.sleep(0.5)
        finally:
            address.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
