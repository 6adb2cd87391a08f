"""A real Apicurio Registry on loopback, which keeps what it is given in memory.

In: nothing. Out: its URL. Touches: Maven once (it brings the registry into `.cache/registry`), a Java process, a free
port.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from helpers.serving import free_port

VERSION = "2.6.13.Final"
"""The newest for Java 17."""
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "registry"
START_S = 180


def jar() -> Path:
    """The program, fetched if it is not there."""
    place = CACHE / VERSION
    if not place.exists():
        archive = f"apicurio-registry-app-{VERSION}-all.tar.gz"
        CACHE.mkdir(parents=True, exist_ok=True)
        artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        copy = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={CACHE}"]
        subprocess.run(copy, check=True, timeout=900)
        fresh = place.with_suffix(".part")
        shutil.rmtree(fresh, ignore_errors=True)
        with tarfile.open(CACHE / archive) as packed:
            packed.extractall(fresh, filter="data")
        (CACHE / archive).unlink()
        fresh.rename(place)
    (found,) = place.glob("apicurio-registry-app-*-runner.jar")
    return found


@contextlib.contextmanager
def running() -> Iterator[str]:
    """The URL of a registry that runs as long as this lasts."""
    program, port = jar(), free_port()
    java = [
        "java",
        "-XX:TieredStopAtLevel=1",
        "-Xmx512m",
        f"-Dquarkus.http.port={port}",
        "-Dquarkus.http.host=127.0.0.1",
    ]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [*java, "-jar", str(program)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=program.parent
    ) as process:
        try:
            deadline = time.monotonic() + START_S
            while True:
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/apis/ccompat/v7/subjects", timeout=5):
                    break
                assert process.poll() is None, "the registry ended"
                assert time.monotonic() < deadline, f"the registry did not answer within {START_S} s"
                time.sleep(0.5)
            yield url
        finally:
            process.terminate()
            process.wait(30)
