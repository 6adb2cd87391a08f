"""The recipes for reverse proxies, run as they are: nginx and Caddy with TLS in front of a running service."""

from __future__ import annotations

import contextlib
import os
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from helpers.serving import FILES, free_port, publish, start, wait_ready, write_tokens

PROXY = Path(__file__).parents[2] / "docker" / "proxy"
NAME = "stats.example.com"
TOKEN = "behind-a-proxy-with-tls"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Port and folder of a service that knows its proxy."""
    folder = tmp_path_factory.mktemp("proxied")
    publish(folder / "sealed", minutes=1, partitions=1)
    write_tokens(folder, f'[[token]]\nname = "ops"\ntoken = "{TOKEN}"\nsketches = "*"\n')
    serve = '[serve]\nprocesses = 1\ntokens = "tokens"\nproxies = ["127.0.0.1"]\n'
    (folder / "sketchstream.toml").write_text(FILES + serve)
    port = free_port()
    process = start(folder, port)
    try:
        wait_ready(port, process)
        yield port, folder
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate and its key, for the name in the recipes."""
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME},DNS:localhost"),
            *("-keyout", folder / "key", "-out", folder / "pem"),
        ],
        check=True,
        capture_output=True,
    )
    return folder


def replaced(text, pairs):
    """A recipe with the addresses and files of a test; each must be in it."""
    for old, new in pairs.items():
        assert old in text, old
        text = text.replace(old, str(new))
    return text


def nginx(folder, port, plain, secure, certificate):
    (folder / "temporary").mkdir()
    inside = "".join(
        f"{kind}_temp_path {folder}/temporary/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = replaced(
        (PROXY / "nginx.conf").read_text(),
        {
            "http {\n": f"http {{\n{inside}",
            "127.0.0.1:8400": f"127.0.0.1:{port}",
            "listen 80;": f"listen 127.0.0.1:{plain};",
            "listen 443 ssl": f"listen 127.0.0.1:{secure} ssl",
            "/etc/ssl/stats.example.com.pem": certificate / "pem",
            "/etc/ssl/stats.example.com.key": certificate / "key",
            "/var/log/nginx/sketchstream.log": folder / "asked.log",
        },
    )
    (folder / "nginx.conf").write_text(text)
    owner = "user root; " if os.geteuid() == 0 else ""
    command = ["nginx", "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"]
    return [*command, "-g", f"daemon off; {owner}pid {folder}/pid;"], {}


def caddy(folder, port, plain, secure, certificate):
    text = replaced(
        (PROXY / "Caddyfile").read_text(),
        {
            "{\n\tservers {": f"{{\n\tadmin off\n\thttp_port {plain}\n\thttps_port {secure}\n\tservers {{",
            "stats.example.com {": f"{NAME} {{\n\ttls {certificate / 'pem'} {certificate / 'key'}\n\tbind 127.0.0.1",
            "127.0.0.1:8400": f"127.0.0.1:{port}",
        },
    )
    (folder / "Caddyfile").write_text(text)
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    return ["caddy", "run", "--config", folder / "Caddyfile", "--adapter", "caddyfile"], home


@contextlib.contextmanager
def proxied(recipe, folder, port, certificate):
    """A client of a proxy that runs a recipe, and the port without TLS."""
    plain, secure = free_port(), free_port()
    command, environment = recipe(folder, port, plain, secure, certificate)
    with (folder / "proxy.log").open("ab") as log:
        process = subprocess.Popen(list(map(str, command)), env=os.environ | environment, stdout=log, stderr=log)
    context = ssl.create_default_context(cafile=str(certificate / "pem"))
    headers = {"Host": f"{NAME}:{secure}"}
    try:
        with httpx.Client(
            base_url=f"https://localhost:{secure}", headers=headers, verify=context, timeout=60
        ) as client:
            extensions = {"sni_hostname": NAME}
            deadline = time.monotonic() + 60
            while True:
                assert process.poll() is None, (folder / "proxy.log").read_text()
                with contextlib.suppress(httpx.TransportError):
                    client.get("/healthz", extensions=extensions)
                    break
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield client, plain, extensions
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("recipe", [nginx, caddy])
def test_a_recipe_has_tls_limits_and_the_address_of_who_asks(tmp_path, service, certificate, recipe):
    port, folder = service
    known = {"Authorization": f"Bearer {TOKEN}"}
    with proxied(recipe, tmp_path, port, certificate) as (client, plain, extensions):

        def ask(method, path, **given):
            return client.request(method, path, extensions=extensions, **given)

        assert ask("GET", "/v1/sketches").status_code == 401
        spoofed = known | {"X-Forwarded-For": "203.0.113.9"}
        found = ask("GET", "/v1/sketches", headers=spoofed)
        assert found.status_code == 200
        assert "max-age" in found.headers["strict-transport-security"]
        assert found.headers["x-content-type-options"] == "nosniff"
        log = (folder / "log").read_text()
        assert "203.0.113.9" not in log
        assert "client=127.0.0.1" in log
        # signing in: the form of the page is the own one, another site's is not, and the cookie is for TLS only
        origin = f"https://{client.headers['Host']}"
        entered = ask("POST", "/login", data={"token": TOKEN}, headers={"Origin": origin})
        assert entered.status_code == 303
        assert "; Secure" in entered.headers["set-cookie"]
        other = ask("POST", "/login", data={"token": TOKEN}, headers={"Origin": "https://evil.example"})
        assert other.status_code == 403
        large = ask("POST", "/login", content=b"token=" + b"a" * (2 << 20))
        assert large.status_code in ((413,) if recipe is nginx else (413, 502))  # Caddy 2.6 says 502 in its middle
        moved = httpx.get(f"http://127.0.0.1:{plain}/ledger", headers={"Host": NAME})
        assert moved.status_code in (301, 308)
        assert moved.headers["location"].startswith(f"https://{NAME}")
        if recipe is nginx:  # Caddy has no limit of rates without a plugin
            with ThreadPoolExecutor(16) as threads:
                codes = list(threads.map(lambda _: ask("GET", "/v1/sketches", headers=known).status_code, range(300)))
            assert {200, 429} == set(codes)
            assert codes.count(200) >= 100
            assert TOKEN not in (tmp_path / "asked.log").read_text()
