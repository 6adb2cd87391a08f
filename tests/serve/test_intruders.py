"""Attacks on who may ask: credentials that can be guessed, other sites and names, what restricted tokens learn."""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import re
import shutil
import time

import pytest

from helpers.serving import MINUTE, TEXT, publish, serving, write_tokens
from helpers.streams import EPOCH
from sketchstream.config.loader import Config
from sketchstream.errors import ConfigError
from sketchstream.items.key import Key
from sketchstream.query.windows import ALONE
from sketchstream.serve import status
from sketchstream.serve.app import create
from sketchstream.serve.clients.access import COOKIE, SESSION_S, VIEWER, Access, Token, TokenFile, read_tokens
from sketchstream.serve.clients.clients import ADDRESSES, Guesses, address_of, foreign
from sketchstream.serve.settings import ServeSettings
from sketchstream.stream.windows.calendar import iso
from sketchstream.texts.csv_cells import original_text, safe_cell

TOKEN = "correct-horse-battery"
EMPTY = hashlib.sha256(b"").hexdigest()


def digest(text):
    return hashlib.sha256(text.encode()).digest()


def entry(given, extra=""):
    return f'[[token]]\nname = "ops"\nsketches = "*"\n{given}\n{extra}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("intruders")
    publish(made / "sealed", minutes=2, partitions=1)
    return made


@pytest.fixture
def apart(folder, tmp_path):
    """The same published sketches for a service with a database of its own."""
    made = tmp_path / "apart"
    made.mkdir()
    (made / "sealed").symlink_to(folder / "sealed")
    return made


@pytest.fixture(scope="module")
def guarded(folder):
    """A service with one token, and a client of it."""
    with serving(folder, access=Access([Token("ops", digest(TOKEN), None)], None)) as found:
        yield found


# ---------------------------------------------------------------------- credentials


@pytest.mark.parametrize(
    "given",
    [
        f'sha256 = "{EMPTY}"',
        f'sha256 = "{EMPTY.upper()}"',
        *(f'sha256 = "{digest(text).hex()}"' for text in ("\n", " ", "$TOKEN", "TOKEN", '""')),
        'sha256 = ""',
        'sha256 = "e3b0"',
        'sha256 = "' + " e3" * 32 + '"',
        'token = ""',
        'token = "fifteen-letters"',
        'token = "sixteen letters."',
        f'token = "{16 * chr(233)}"',
        "token = 1234567890123456",
    ],
)
def test_a_token_that_anybody_has_or_can_guess_is_refused_when_it_is_read(tmp_path, given):
    with pytest.raises(ConfigError):
        read_tokens(write_tokens(tmp_path, entry(given)), [])


@pytest.mark.parametrize("given", ["", " ", "\n", "short", "\x00", "é" * 16, "?" * 15])
def test_a_short_text_matches_no_digest_not_even_its_own(given):
    digests = {given, given.strip(), given.encode("latin-1", "replace").decode("latin-1")}
    access = Access([Token(f"ops{n}", digest(one), None) for n, one in enumerate(digests)], None)
    assert access.match(given) is None
    assert access.find(f"Bearer {given}") is None
    assert access.resume(given) is None


def test_without_any_credential_the_digest_of_nothing_opens_nothing(apart):
    with serving(apart, processes=0, access=Access([Token("ops", bytes.fromhex(EMPTY), None)], None)) as (_, client):
        for headers in (
            {},
            {"Authorization": 'Bearer ""'},
            {"Authorization": "Bearer"},
            {"Authorization": ""},
            {"Cookie": f"{COOKIE}="},
            {"Cookie": "sketchstream_token="},
            {"Cookie": COOKIE},
        ):
            assert client.get("/v1/sketches", headers=headers).status_code in (401, 429)
        assert client.post("/login", data={"token": ""}).status_code in (401, 429)


@pytest.mark.parametrize("mode", [0o644, 0o666, 0o622, 0o604, 0o607, 0o660])
def test_a_file_of_tokens_that_others_can_read_is_refused(tmp_path, mode):
    path = write_tokens(tmp_path, entry(f'token = "{TOKEN}"'))
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_tokens(path, [])


def test_two_entries_with_one_name_or_one_token_are_refused(tmp_path):
    one = entry(f'token = "{TOKEN}"')
    for second in (one.replace("ops", "team"), one.replace(TOKEN, TOKEN * 2)):
        with pytest.raises(ConfigError, match="the same"):
            read_tokens(write_tokens(tmp_path, one + second), [])


def test_a_token_expires_with_its_session(monkeypatch):
    now = time.time()
    access = Access([Token("ops", digest(TOKEN), None, now + 100)], None)
    session = access.session(access.match(TOKEN))
    assert access.resume(session) is not None
    monkeypatch.setattr(time, "time", lambda: now + 101)
    assert access.match(TOKEN) is None
    assert access.resume(session) is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("2027-01-31", 1801353600.0), ("2027-01-31T12:00:00+02:00", 1801353600.0 + 10 * 3600)]
)
def test_an_expiry_is_a_day_or_a_time_with_an_offset(tmp_path, text, seconds):
    (found,) = read_tokens(write_tokens(tmp_path, entry(f'token = "{TOKEN}"', f"expires = {text}")), [])
    assert found.expires == seconds


@pytest.mark.parametrize("text", ["2027-01-31T12:00:00", '"2027-01-31"', "1801353600", "12:00:00"])
def test_another_expiry_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match="expires"):
        read_tokens(write_tokens(tmp_path, entry(f'token = "{TOKEN}"', f"expires = {text}")), [])


def test_sessions_end_and_cannot_be_made_changed_or_carried_to_another_service(monkeypatch):
    now = time.time()
    token = Token("ops", digest(TOKEN), None)
    access = Access([token], None)
    session = access.session(token)
    assert TOKEN not in session
    assert digest(TOKEN).hex() not in session
    assert access.resume(session) == token
    ends, mac = session.split(".")
    for other in (
        f"{int(ends) + 1}.{mac}",
        f"{ends}.{mac[:-1]}{'0' if mac[-1] != '0' else '1'}",
        f"{ends}.",
        mac,
        f"0{session}",
        f"{session}0",
        f"{ends}.{digest(TOKEN).hex()}",
        "\n" + session,
    ):
        assert access.resume(other) is None or other == f"0{session}"
    assert Access([token], None).resume(session) is None
    access.tokens = (Token("team", digest(TOKEN * 2), None),)
    assert access.resume(session) is None  # the token was taken away
    access.tokens = (token,)
    monkeypatch.setattr(time, "time", lambda: now + SESSION_S + 1)
    assert access.resume(session) is None


def test_the_cookie_of_a_browser_holds_no_token(guarded):
    _, client = guarded
    answer = client.post("/login", data={"token": TOKEN, "next": "/ledger"})
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 303
    assert TOKEN not in cookie
    assert digest(TOKEN).hex() not in cookie
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert client.get("/v1/sketches").status_code == 200  # by the cookie
    client.cookies.clear()
    assert client.get("/v1/sketches").status_code == 401


def test_a_token_that_leaves_the_file_is_refused_from_then_on(apart, tmp_path, caplog):
    path = write_tokens(tmp_path, entry(f'token = "{TOKEN}"') + entry(f'token = "{TOKEN * 2}"').replace("ops", "two"))
    file = TokenFile(path, [])
    access = Access(file.read(), None, file)
    with serving(apart, processes=0, access=access) as (_, client), access.watched():

        def codes():
            given = [{"Authorization": f"Bearer {one}"} for one in (TOKEN, TOKEN * 2)]
            return [client.get("/v1/sketches", headers=one).status_code for one in given]

        def wait_for(wanted):
            deadline = time.monotonic() + 30
            while codes() != wanted:
                assert time.monotonic() < deadline
                access.guesses._full_at.clear()
                time.sleep(0.05)

        assert codes() == [200, 200]
        write_tokens(tmp_path, entry(f'token = "{TOKEN}"'))
        wait_for([200, 401])
        other = tmp_path / "other"  # as Kubernetes changes a secret: another file takes the place
        other.write_text(entry(f'token = "{TOKEN * 2}"'))
        other.chmod(0o600)
        other.replace(path)
        wait_for([401, 200])
        caplog.clear()
        path.write_text("[[")  # cannot be used: the tokens stay, and the log says so
        assert access.reload() is False
        assert codes()[1] == 200
        assert "not valid TOML" in caplog.text
        path.unlink()
        assert access.reload() is False
        assert access.needed
        access.tokens = ()
        access.guesses._full_at.clear()
        assert codes() == [401, 401]  # never open, whatever becomes of the file


# ---------------------------------------------------------------------- guessing


def test_wrong_tokens_are_limited_by_address_and_the_limit_passes():
    now = [100.0]
    guesses = Guesses(3, 10.0, lambda: now[0])
    for _ in range(3):
        assert guesses.wait_s("a") == 0
        guesses.wrong("a")
    assert guesses.wait_s("a") == pytest.approx(10)
    assert guesses.wait_s("b") == 0
    now[0] += 10
    assert guesses.wait_s("a") == 0
    guesses.wrong("a")
    assert guesses.wait_s("a") > 0
    now[0] += 1000
    for number in range(3 * ADDRESSES):
        guesses.wrong(str(number))
    assert len(guesses._full_at) <= ADDRESSES


@pytest.mark.parametrize("by", ["header", "form"])
def test_who_guesses_is_refused_even_with_the_right_token_and_nobody_else_is(apart, by):
    access = Access([Token("ops", digest(TOKEN), None)], None)
    with serving(apart, processes=0, access=access) as (_, client):
        session = access.session(access.tokens[0])
        codes = []
        for number in range(15):
            wrong = f"wrong-token-number-{number}"
            if by == "form":
                codes.append(client.post("/login", data={"token": wrong}).status_code)
            else:
                codes.append(client.get("/v1/status", headers={"Authorization": f"Bearer {wrong}"}).status_code)
        assert set(codes[:10]) == {401}
        assert set(codes[11:]) == {429}
        right = client.get("/v1/status", headers={"Authorization": f"Bearer {TOKEN}"})
        assert right.status_code == 429
        assert int(right.headers["retry-after"]) > 0
        assert client.post("/login", data={"token": TOKEN}).status_code == 429
        # a session cannot be guessed, and health is nobody's secret
        assert client.get("/v1/status", headers={"Cookie": f"{COOKIE}={session}"}).status_code == 200
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("client", "found"),
    [
        (("192.0.2.7", 5), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 5), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:ffff::1%eth0", 5), "2001:db8:1:2::/64"),
        (("::ffff:192.0.2.7", 5), "192.0.2.7"),
        (("::1", 5), "::1"),
        (("what is this\n", 5), "-"),
        (None, "-"),
    ],
)
def test_a_client_is_an_address_or_a_network_that_one_host_has(client, found):
    assert address_of({"client": client}) == found


def test_nobody_but_a_configured_proxy_says_who_asks(apart, caplog):
    caplog.set_level(logging.INFO, "sketchstream.serve")
    with serving(apart, processes=0) as (_, client):
        client.get("/v1/sketches", headers={"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"})
    assert "client=127.0.0.1" in caplog.text
    assert "203.0.113.9" not in caplog.text


# ---------------------------------------------------------------------- other sites, other names

LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
FOREIGN = [
    ("POST", "/v1/sketches/minutes/estimate", {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}),
    ("POST", "/v1/sketches/minutes/estimate", {"Origin": "http://evil.example"}),
    ("POST", "/v1/sketches/minutes/estimate", {"Origin": "null"}),
    ("POST", "/v1/sketches/minutes/estimate", {"Origin": "http://localhost"}),
    ("POST", "/v1/sketches/minutes/estimate", {"Origin": "http://[::"}),
    ("POST", "/login", LINK),
    ("POST", "/login/leave", {"Sec-Fetch-Site": "same-site"}),
    ("GET", "/v1/sketches/minutes/profile", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}),
    ("GET", "/v1/sketches/minutes/profile", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}),
    (
        "GET",
        "/v1/sketches",
        LINK,
    ),
    ("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}),
    ("GET", "/sketches/minutes/window/reach.png", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}),
    ("GET", "/metrics", {"Origin": "http://evil.example"}),
]


@pytest.mark.parametrize(("method", "path", "headers"), FOREIGN)
def test_requests_that_another_site_sends_are_refused(guarded, method, path, headers):
    _, client = guarded
    found = client.request(method, path, headers={"Authorization": f"Bearer {TOKEN}", **headers})
    assert found.status_code == 403
    assert found.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
        LINK,
    ],
)
def test_a_page_may_be_opened_by_its_address_and_by_links(guarded, headers):
    _, client = guarded
    assert client.get("/sketches/minutes", headers={"Authorization": f"Bearer {TOKEN}", **headers}).status_code == 200
    assert not foreign("GET", "/", headers)


def test_the_own_form_is_not_foreign():
    assert not foreign("POST", "/login", {"origin": "https://Stats.example:8443", "host": "stats.example:8443"})
    assert foreign("POST", "/login", {"origin": "https://stats.example", "host": "stats.example:8443"})


NOT_OURS = ["[::1].evil.com", "[::1]evil", "localhost:evil", "localhost:", "localhost:80:80", "localhost:123456"]
NOT_OURS += ["localhost.", "LOCALHOST.evil", "evil@localhost", "localhost/evil", "localhost\t", "[localhost]"]
NOT_OURS += ["::1", "[::1", "127.0.0.1.", "127.1", "", " "]


@pytest.mark.parametrize("host", NOT_OURS)
def test_a_host_is_matched_exactly(host):
    assert not Access().knows_host(host)


@pytest.mark.parametrize("host", ["localhost", "LocalHost:8400", "127.0.0.1:1", "[::1]", "[::1]:8400"])
def test_the_names_of_this_machine_are_known(host):
    assert Access().knows_host(host)


# ---------------------------------------------------------------------- what a restricted token learns

HIDDEN = "secretproject"
KINDS = {"profile": "", "gaussian": 'kind = "gaussian"\ndelta = "1e-6"\n'}


def deployment(folder, kind, *, hidden):
    """The configuration of a sketch, with or without what another one published beside it."""
    text = TEXT.replace('"hours"', f'"{HIDDEN}"').replace('window = "1m"', f'window = "1m"\n{KINDS[kind]}')
    if not (folder.parent / "sealed").exists():
        publish(folder.parent / "sealed", text, minutes=2, partitions=1)
    shutil.copytree(folder.parent / "sealed", folder / "sealed")
    if hidden:
        return text
    shutil.rmtree(folder / "sealed" / HIDDEN)
    return text[: text.rindex("[[sketch]]")]


def responses(folder, text):
    """Every response of every route to a token that may see the first sketch only."""
    span = {"from": iso(EPOCH), "to": iso(EPOCH + MINUTE)}
    other = {"against_from": iso(EPOCH + MINUTE), "against_to": iso(EPOCH + 2 * MINUTE)}
    access = Access([Token("team", digest(TOKEN), frozenset({"minutes"}))], None)
    found = {}
    with serving(folder, text, access=access) as (service, client):
        deadline = time.monotonic() + 120
        while service.store.pending():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for path in sorted({route.path for route in create(service).routes}):
            if path.startswith("/static") or path == "/openapi.json":
                continue
            for picture in ("reach", "sum") if "picture" in path else ("",):
                where = path.format(name="minutes", picture=picture, form="svg", table="windows")
                for given in ({}, {**span, **other} if "difference" in path else span):
                    answer = client.get(where, params=given, headers=headers)
                    found[where, str(given)] = answer
        for path in ("profile", "series", "windows", "estimate"):
            answer = client.get(f"/v1/sketches/{HIDDEN}/{path}", headers=headers)
            assert answer.status_code == 404
            found[path, "hidden"] = answer
    return found


CHANGING = re.compile(
    r"(?m)^(# .*|sketchstream_serve_behind_seconds.*|process_.*|python_.*)$"
    r'|"(behind_seconds|rate_per_second|pending_seconds)":[0-9.]+|127.0.0.1:[0-9]+'
)
"""What differs between two services anyhow."""


@pytest.mark.statistics
@pytest.mark.parametrize("kind", KINDS)
def test_a_restricted_token_gets_the_same_bytes_whether_there_are_other_sketches_or_not(tmp_path, kind):
    both = []
    for hidden in (True, False):
        folder = tmp_path / str(hidden)
        folder.mkdir()
        both.append(responses(folder, deployment(folder, kind, hidden=hidden)))
    with_it, without = both
    assert with_it.keys() == without.keys()
    answered = 0
    for asked, answer in with_it.items():
        assert HIDDEN not in answer.text, asked
        alone = without[asked]
        assert answer.status_code == alone.status_code, asked
        assert CHANGING.sub("", answer.text) == CHANGING.sub("", alone.text), asked
        assert answer.headers.get("etag") == alone.headers.get("etag"), asked
        answered += answer.status_code == 200
    assert answered > 25


def test_a_token_for_all_still_sees_what_the_others_cost(tmp_path):
    (tmp_path / "one").mkdir()
    text = deployment(tmp_path / "one", "gaussian", hidden=True)
    span = {"from": iso(EPOCH), "to": iso(EPOCH + MINUTE)}
    restricted = f"{TOKEN}-restricted"
    tokens = [Token("ops", digest(TOKEN), None), Token("team", digest(restricted), frozenset({"minutes"}))]
    with serving(tmp_path / "one", text, access=Access(tokens, None)) as (_, client):
        whole, alone = (
            client.get("/v1/sketches/minutes/estimate", params=span, headers={"Authorization": f"Bearer {one}"})
            .raise_for_status()
            .json()
            for one in (TOKEN, restricted)
        )
    said = [one.pop("guarantee") for one in (whole, alone)]
    assert whole == alone
    assert said[0] != said[1]
    assert ALONE in said[1]["seen"]
    assert ALONE not in said[0]["seen"]


def test_open_paths_say_nothing_of_files_and_sketches(apart, tmp_path):
    with serving(apart, processes=0) as (service, client):
        for error in (f"cannot read {tmp_path}: no permission", f"{HIDDEN}: these bytes are not a frontier"):
            service.follower.error = error
            found = client.get("/readyz")
            assert found.status_code == 503
            assert str(tmp_path) not in found.text
            assert HIDDEN not in found.text
            assert "minutes" not in found.text
            assert client.get("/v1/status").json()["error"] == error
            seeing = VIEWER.set(frozenset({"minutes"}))
            assert status.status(service)["error"] not in (None, error)
            VIEWER.reset(seeing)
        service.follower.error = None


# ---------------------------------------------------------------------- what travels


@pytest.mark.parametrize(
    ("address", "proxies", "warned"),
    [("0.0.0.0:1", "", True), ("0.0.0.0:1", 'proxies = ["10.0.0.0/8"]', False), ("127.0.0.1:1", "", False)],
)
def test_tokens_in_clear_are_warned_of(tmp_path, address, proxies, warned):
    write_tokens(tmp_path, entry(f'token = "{TOKEN}"'))
    path = tmp_path / "sketchstream.toml"
    path.write_text(f'{TEXT}[serve]\naddress = "{address}"\ntokens = "tokens"\n{proxies}\n')
    assert (ServeSettings.from_config(Config.load(path, {})).in_clear is not None) is warned


def test_a_proxy_is_an_address_or_a_network(tmp_path):
    path = tmp_path / "sketchstream.toml"
    for wrong in ("*", "proxy.example", "10.0.0.0/33", ""):
        path.write_text(f'{TEXT}[serve]\nproxies = ["{wrong}"]\n')
        with pytest.raises(ConfigError, match=r"serve\.proxies"):
            ServeSettings.from_config(Config.load(path, {}))


FORMULAS = ["=1+1", "+cmd|'/C calc'!A0", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "＝1", "'=1", "''"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_that_a_spreadsheet_would_run_is_marked_and_can_be_had_back(text):
    assert str(safe_cell(text))[0] == "'"
    assert original_text(str(safe_cell(text))) == text


@pytest.mark.parametrize("value", ["plain", "a=1", "-5", "+4.5e-3", "", 5, -2.5, None, True, "02139"])
def test_numbers_and_plain_texts_are_cells_as_they_are(value):
    assert safe_cell(value) == value


def test_no_download_holds_a_formula_and_arrow_has_the_items(tmp_path):
    pa = pytest.importorskip("pyarrow")
    items = ['=HYPERLINK("http://evil.example")', "@handle", "-5", "+1+1", "'quoted", "plain"]
    text = TEXT.replace('item_type = "int"', 'item_type = "text"')
    (tmp_path / "items").write_text("".join(f"{item}\n" for item in items))
    text = text.replace("domain = { size = 40 }", f'domain = {{ items_file = "{tmp_path / "items"}" }}')
    text = text.replace('window = "1m"', 'window = "1m"\nkind = "gaussian"\ndelta = "1e-6"')
    Key.generate().save(tmp_path / "key")
    text += f'[key]\nfile = "{tmp_path / "key"}"\n'
    publish(tmp_path / "sealed", text, minutes=1, partitions=1, items=items)
    span = {"from": iso(EPOCH), "to": iso(EPOCH + MINUTE)}
    with serving(tmp_path, text) as (_, client):
        for path, given in (("estimate", span), ("estimates", span)):
            where = f"/v1/sketches/minutes/{path}"
            rows = list(csv.DictReader(io.StringIO(client.get(where, params={**given, "format": "csv"}).text)))
            names = [row["item"] for row in rows]
            assert not any(re.match(r"[=+@]|-[^0-9]", name) for name in names)
            assert [original_text(name) for name in names] == items
            body = client.get(where, params={**given, "format": "arrow"}).content
            assert pa.ipc.open_stream(body).read_all().column("item").to_pylist() == items


def test_the_log_says_who_asked_for_which_time_and_no_more(apart, caplog):
    caplog.set_level(logging.INFO, "sketchstream.serve")
    with serving(apart, processes=0) as (_, client):
        client.get("/v1/sketches/minutes/series", params={"from": iso(EPOCH), "metric": "distinct"})
        client.get("/v1/sketches/minutes/series", params={"from": "MARK", "metric": "MARK"})
    lines = [one.getMessage() for one in caplog.records if "event=request" in one.getMessage()]
    assert f"asked=from:{iso(EPOCH)},metric " in lines[0]
    assert "client=127.0.0.1" in lines[0]
    assert "MARK" not in lines[1]
