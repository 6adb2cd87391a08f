"""What must not take the service down: its clients, its disk, another service, pipes in place of files."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from helpers.serving import FILES, MINUTE, free_port, publish, serving, wait_ready
from helpers.streams import EPOCH
from sketchstream.errors import BusyError, StoreError
from sketchstream.serve.clients.access import Access, Token
from sketchstream.serve.clients.clients import CLIENT, InProgress
from sketchstream.serve.clients.fair_queue import WAITING, FairQueue
from sketchstream.serve.clients.traffic import Traffic
from sketchstream.serve.edge import connections, drawing_pool, server
from sketchstream.serve.edge.drawing_pool import DrawingPool
from sketchstream.serve.page import views
from sketchstream.serve.reconstruction import pool
from sketchstream.serve.reconstruction.child import Child
from sketchstream.serve.reconstruction.job import ReconstructionJob
from sketchstream.serve.reconstruction.questions import Question
from sketchstream.serve.store import store as store_module
from sketchstream.serve.store.database import READERS, DamagedError, lock
from sketchstream.serve.store.store import Store
from sketchstream.stream.windows.calendar import iso

SPAN = {"from": iso(EPOCH), "to": iso(EPOCH + MINUTE)}
PROFILE = "/v1/sketches/minutes/profile"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    made = tmp_path_factory.mktemp("outages") / "sealed"
    publish(made, minutes=3, partitions=1)
    return made


@pytest.fixture
def folder(tmp_path, sealed):
    shutil.copytree(sealed, tmp_path / "sealed")
    return tmp_path


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_mib():
    """Memory of this process, in which the service runs."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def settled(service):
    wait_for(lambda: service.store.pending() == 0, 120)


# ---------------------------------------------------------------------- descriptors and threads


def test_threads_that_come_and_go_leave_no_descriptors(folder):
    with serving(folder, processes=0) as (service, _):
        before, seen = descriptors(), []
        for _ in range(4):
            with ThreadPoolExecutor(40) as threads:
                for found in [threads.submit(service.store.windows, "minutes") for _ in range(200)]:
                    assert len(found.result()) == 3
            seen.append(descriptors())
        assert max(seen) <= before + 3 * READERS  # a connection has three
        assert len(service.store._readers._free) <= READERS


def test_a_reader_that_does_not_come_back_does_not_stop_the_others_for_ever(folder, monkeypatch):
    monkeypatch.setattr("sketchstream.serve.store.database.WAIT_S", 0.1)
    with serving(folder, processes=0) as (service, client), contextlib.ExitStack() as stack:
        done = threading.Event()

        def hold():
            with service.store.reading():
                done.wait(60)

        holders = [threading.Thread(target=hold) for _ in range(READERS)]
        for one in holders:
            one.start()
        stack.callback(lambda: [one.join() for one in holders])
        stack.callback(done.set)
        wait_for(lambda: not service.store._readers._slots.acquire(blocking=False))
        assert client.get("/v1/sketches/minutes/windows").status_code == 503
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("error", [KeyError(7), sqlite3.DatabaseError("malformed"), MemoryError(), RuntimeError("no")])
def test_no_error_ends_a_thread_that_reconstructs(folder, monkeypatch, error):
    monkeypatch.setattr(pool, "PAUSE_S", 0.01)
    with serving(folder) as (service, client):
        settled(service)
        whole = service.store.next_todo

        def broken(running=()):
            raise error

        monkeypatch.setattr(service.store, "next_todo", broken)
        service.pool.wake()
        wait_for(lambda: service.pool.error is not None)
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        monkeypatch.setattr(service.store, "next_todo", whole)
        found = client.get(PROFILE, params={**SPAN, "method": "inverse"})
        assert found.status_code == 200
        wait_for(lambda: client.get("/readyz").status_code == 200)


def test_a_dead_thread_is_seen_by_who_asks_whether_the_service_lives(folder):
    with serving(folder, processes=0) as (service, client):
        assert client.get("/healthz").text == "ok\n"
        gone = threading.Thread(target=lambda: None, name="sketchstream-reconstruct-0")
        gone.start()
        gone.join()
        service.pool.threads.append(gone)
        assert client.get("/healthz").status_code == 503
        service.pool.threads.remove(gone)


def test_a_process_that_cannot_be_started_is_said_and_no_window_is_blamed(folder, monkeypatch):
    monkeypatch.setattr(pool, "PAUSE_S", 0.01)

    def refuse(*_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(pool, "Child", refuse)
    with serving(folder) as (service, client):
        wait_for(lambda: service.pool.error is not None)
        assert client.get("/readyz").status_code == 503
        monkeypatch.setattr(pool, "Child", Child)
        settled(service)
        listed = client.get("/v1/sketches/minutes/windows").json()["windows"]
        assert {one["answer"] for one in listed} == {"ready"}


# ---------------------------------------------------------------------- questions


def jobs(number, sketch="minutes"):
    class Stored:
        version = 1
        window = (0, 1)

    Stored.sketch = sketch
    return [ReconstructionJob(Stored, Question(max_count=1 + at), waiting=1) for at in range(number)]


def test_nobodys_questions_keep_anothers_out_of_the_queue():
    queue = FairQueue()
    greedy = jobs(WAITING)
    for one in greedy:
        assert queue.put(one, "greedy") is None
    with pytest.raises(BusyError):
        queue.put(jobs(1)[0], "greedy")
    modest = jobs(2, "hours")
    assert queue.put(modest[0], "modest") is greedy[-1]  # the newest one of who has most
    assert queue.put(modest[1], "modest") is greedy[-2]
    assert len(queue) == WAITING
    assert [queue.take() for _ in range(4)] == [greedy[0], modest[0], greedy[1], modest[1]]
    assert [queue.take() for _ in range(WAITING - 4)] == greedy[2:-2]
    assert queue.take() is None


def test_a_question_of_two_clients_is_computed_once_and_in_the_turn_of_the_first_one_of_them():
    queue = FairQueue()
    greedy = jobs(10)
    for one in greedy:
        queue.put(one, "greedy")
    queue.put(greedy[9], "modest")
    assert [queue.take() for _ in range(3)] == [greedy[0], greedy[9], greedy[1]]
    assert sorted(map(id, queue.clear())) == sorted(map(id, greedy[2:9]))
    assert len(queue) == 0


def test_sixty_four_clients_share_the_queue_and_the_next_one_waits_for_a_place():
    queue = FairQueue()
    for number, one in enumerate(jobs(WAITING)):
        queue.put(one, str(number))
    with pytest.raises(BusyError):
        queue.put(jobs(1, "hours")[0], "one more")


def test_nobodys_charts_take_the_threads_of_another():
    """One client asks for forty charts, then another one for two: his are the next ones to be drawn."""

    async def played():
        pool, go, drawn = DrawingPool(2), threading.Event(), []

        def draw(name):
            go.wait(30)
            drawn.append(name)

        async def page(client, number):
            CLIENT.set(client)
            await pool.run(draw, (client, number))

        tasks = [asyncio.create_task(page("greedy", number)) for number in range(40)]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(page("modest", number)) for number in range(2)]
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(page("gone", 0))
        await asyncio.sleep(0.05)
        gone.cancel()
        go.set()
        await asyncio.gather(*tasks)
        assert pool._free == 2
        with pytest.raises(asyncio.CancelledError):
            await gone
        return drawn

    drawn = asyncio.run(played())
    assert len(drawn) == 42
    assert ("gone", 0) not in drawn
    assert {("modest", 0), ("modest", 1)} <= set(drawn[:8])


def test_who_asks_for_charts_takes_turns_with_others(folder, monkeypatch):
    """The same over HTTP: with many pages of one token in progress, that of another one comes soon."""
    monkeypatch.setattr(drawing_pool, "MAX_DRAWING", 1)
    digests = {name: hashlib.sha256(f"{name}-of-the-analysts".encode()).digest() for name in ("greedy", "modest")}
    access = Access([Token(name, one, None) for name, one in digests.items()], None)
    drawn, go, whole = [], threading.Event(), views.rendering.html

    def slowly(*given, **more):
        go.wait(30)
        drawn.append(CLIENT.get())
        return whole(*given, **more)

    monkeypatch.setattr(views.rendering, "html", slowly)
    with serving(folder, processes=0, access=access) as (service, client), contextlib.ExitStack() as stack:
        sent = "GET /help HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}-of-the-analysts\r\n\r\n"
        sockets = [stack.enter_context(connect(client, sent.format("greedy").encode())) for _ in range(20)]
        wait_for(lambda: service.traffic.in_progress == 20)
        sockets.append(stack.enter_context(connect(client, sent.format("modest").encode())))
        wait_for(lambda: service.traffic.in_progress == 21)
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/sketches", headers={"Authorization": "Bearer modest-of-the-analysts"}).status_code == 200
        go.set()
        assert {response(one)[0][9:12] for one in sockets} == {b"200"}
    assert drawn.index("modest") <= 3


def test_questions_whose_clients_have_gone_are_not_computed(folder):
    """As an attacker asks: many questions, and none of the answers is waited for."""
    with serving(folder) as (service, client):
        settled(service)
        address = client.base_url.host, client.base_url.port
        for number in range(60):
            with socket.create_connection(address) as one:
                body = f"from={SPAN['from']}&to={SPAN['to']}&max_count={30 + number}".replace(":", "%3A")
                one.sendall(f"GET {PROFILE}?{body} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                if number < 3:
                    time.sleep(0.1)
        wait_for(lambda: service.pool.abandoned > 20)
        wait_for(lambda: service.pool.waiting == 0)
        assert client.get(PROFILE, params={**SPAN, "method": "inverse"}).status_code == 200


def test_a_running_question_that_nobody_waits_for_is_ended_and_the_next_one_is_answered(folder, monkeypatch):
    monkeypatch.setattr(pool, "RESTART_S", 0.0)
    with serving(folder) as (service, client):
        settled(service)
        (child,) = service.pool._children
        os.kill(child._process.pid, signal.SIGSTOP)  # a reconstruction that takes for ever
        stored = service.store.windows("minutes", limit=1)[0]
        left = service.pool.ask(stored, Question(method="monotone"))
        wait_for(lambda: service.pool.running == 1)
        service.pool.leave(left)
        assert client.get(PROFILE, params={**SPAN, "method": "inverse"}).status_code == 200
        assert isinstance(left.exception(10), BusyError)
        assert service.pool.abandoned == 1


def test_a_frame_longer_than_a_pipe_does_not_wait_for_a_process_that_does_not_read(folder):
    with serving(folder, processes=0) as (service, _):
        child = Child(service.pool._hello, 0.5, 0)
        try:
            os.kill(child._process.pid, signal.SIGSTOP)
            with pytest.raises(Exception, match="deadline"):
                child.ask({"sketch": "x" * (1 << 22)})
        finally:
            child.close()


def test_each_client_has_its_share_of_requests_in_progress():
    limits = InProgress(10, 3)
    assert [limits.begin("a") for _ in range(4)] == [True, True, True, False]
    assert [limits.begin(f"b{number}") for number in range(7)] == [True] * 7
    assert limits.full
    limits.end("a")
    assert not limits.full
    assert limits.begin("a")
    assert CLIENT.get() == "-"


# ---------------------------------------------------------------------- connections


def connect(client, sent=b""):
    one = socket.create_connection((client.base_url.host, client.base_url.port), timeout=30)
    one.sendall(sent)
    return one


def closed_after(one):
    """Seconds until the other side closes a connection, and what it sent."""
    began, got = time.monotonic(), b""
    with contextlib.suppress(ConnectionResetError):
        while part := one.recv(1 << 16):
            got += part
    one.close()
    return time.monotonic() - began, got


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HT",
        b"POST /v1/sketches/minutes/estimate HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nfrom=",
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
def test_a_client_that_stops_in_the_middle_is_cut_off(folder, monkeypatch, sent):
    monkeypatch.setattr(connections, "HEADERS_S", 0.3)
    monkeypatch.setattr(connections, "BODY_S", 0.3)
    monkeypatch.setattr(server, "IDLE_S", 1)
    with serving(folder, processes=0) as (_, client):
        seconds, _ = closed_after(connect(client, sent))
        assert seconds < 20
        assert client.get("/healthz").status_code == 200


def test_a_client_that_sends_a_byte_now_and_then_is_cut_off_too(folder, monkeypatch):
    monkeypatch.setattr(connections, "HEADERS_S", 0.5)
    with serving(folder, processes=0) as (_, client):
        one = connect(client)
        with pytest.raises(OSError, match=r"reset|pipe"):  # noqa: PT012 - one of many sends finds it closed
            for letter in b"GET /healthz HTTP/1.1\r\nX-Long: " + b"x" * 1000:
                one.sendall(bytes([letter]))
                time.sleep(0.05)
        one.close()


def test_a_client_that_reads_nothing_is_cut_off(folder, monkeypatch):
    monkeypatch.setattr(connections, "READ_S", 0.5)
    with serving(folder, processes=0) as (_, client):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect((client.base_url.host, client.base_url.port))
        with contextlib.suppress(OSError):  # it is cut off in the middle
            for _ in range(200):
                one.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(2)
        with pytest.raises(OSError, match=r"reset|pipe"):  # noqa: PT012 - what was on the way comes first
            for _ in range(100_000):
                one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10)
                if not one.recv(4096):
                    raise BrokenPipeError("broken pipe")
        one.close()
        assert client.get("/healthz").status_code == 200


REQUEST = b"GET /v1/sketches HTTP/1.1\r\nHost: localhost\r\n\r\n"


def response(one):
    """Head and body of one response."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += one.recv(1 << 16)
    head, _, body = got.partition(b"\r\n\r\n")
    size = int(re.search(rb"content-length: ([0-9]+)", head.lower())[1])
    while len(body) < size:
        body += one.recv(1 << 16)
    return head, body


def test_what_would_wait_for_long_is_refused_at_once_and_the_connection_goes_on(folder, monkeypatch):
    """Thirty requests arrive while the service is busy with one: it lets in four of them in each of the next turns."""
    monkeypatch.setattr(connections, "AT_A_TIME", 4)
    whole, first, sent = connections.TurnLine.admit, [], threading.Event()

    def slowly(self, *given):
        if not first:
            first.append(self)
            sent.wait(20)
        return whole(self, *given)

    with serving(folder, processes=0) as (service, client), contextlib.ExitStack() as stack:
        monkeypatch.setattr(connections.TurnLine, "admit", slowly)
        sockets = [stack.enter_context(connect(client, REQUEST))]
        wait_for(lambda: first)
        sockets += [stack.enter_context(connect(client, REQUEST)) for _ in range(30)]
        health = stack.enter_context(connect(client, REQUEST.replace(b"v1/sketches", b"healthz")))
        sent.set()
        codes = [response(one)[0][9:12] for one in sockets]
        assert response(health)[0][9:12] == b"200"
        refused = codes.count(b"503")  # it takes them off the network in one turn, or in few
        assert 18 <= refused <= 27
        assert codes.count(b"200") == 31 - refused
        for one in sockets:  # no longer busy
            one.sendall(REQUEST)
            assert response(one)[0].startswith(b"HTTP/1.1 200")
        assert service.traffic.requests["-", 503] == refused


@pytest.mark.parametrize(
    ("sent", "stays"),
    [
        (REQUEST, True),
        (REQUEST.replace(b"GET", b"POST").replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\na=1"), False),
        (REQUEST.replace(b"\r\n\r\n", b"\r\ncOntent-length: 50\r\n\r\n"), False),
        (REQUEST.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"), False),
        (REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (REQUEST * 2, False),
        (b"GET / HTTP/1.1\nHost: localhost\n\n" + REQUEST, False),  # two requests, to who takes a line feed for an end
        (REQUEST.replace(b"\r\n\r\n", b"\r\nX-Odd: a\n\nGET / HTTP/1.1\r\n\r\n"), False),
        (REQUEST.replace(b"\r\n\r\n", b"\r\nContent-Length : 3\r\n\r\n"), False),
        (REQUEST.replace(b"\r\n\r\n", b"\r\nX-Odd: a\r\n Content-Length: 3\r\n\r\n"), False),
        (REQUEST.replace(b"GET", b"get"), False),
        (REQUEST[:-3], False),
        (b"\x16\x03\x01", False),
    ],
)
def test_after_a_refusal_unread_nothing_of_the_request_is_taken_for_another_one(folder, monkeypatch, sent, stays):
    refusing = [True]
    whole = connections.TurnLine.admit
    monkeypatch.setattr(connections.TurnLine, "admit", lambda *given: not refusing[0] and whole(*given))
    with serving(folder, processes=0) as (_, client), connect(client, sent) as one:
        head, body = response(one)
        assert head.startswith(b"HTTP/1.1 503")
        assert b"Retry-After: 1" in head
        assert b"application/problem+json" in head
        assert b'"status":503' in body
        assert client.get("/healthz").status_code == 200  # in any case
        refusing[0] = False
        if stays:
            one.sendall(REQUEST)
            assert response(one)[0].startswith(b"HTTP/1.1 200")
        else:
            assert closed_after(one)[1] == b""


TABLE = b"GET /v1/tables/minutes/windows.parquet HTTP/1.1\r\nHost: localhost\r\n\r\n"


def undated(head):
    """The head of a response, as it is at any time."""
    return sorted(line for line in head.lower().split(b"\r\n") if not line.startswith(b"date:"))


def test_what_is_asked_again_byte_by_byte_is_answered_without_being_read_and_as_before(folder, monkeypatch):
    read = []
    whole = connections.H11Protocol.data_received
    monkeypatch.setattr(
        connections.H11Protocol, "data_received", lambda self, data: read.append(data) or whole(self, data)
    )
    with serving(folder, processes=0) as (service, client), connect(client) as one:

        def asked(request=TABLE):
            del read[:]
            one.sendall(request)
            return response(one), bool(read)

        (head, body), _ = asked()
        assert body.startswith(b"PAR1")
        found = [asked() for _ in range(3)]
        assert [was_read for _, was_read in found] == [True, False, False]
        assert all((undated(again), rest) == (undated(head), body) for (again, rest), _ in found)
        assert not asked(TABLE)[1]
        etag = re.search(rb'(?i)etag: ("[^"]+")', head)[1]
        for more, status in ((b"Range: bytes=0-3", b"206"), (b"If-None-Match: " + etag, b"304")):
            request = TABLE[:-2] + more + b"\r\n\r\n"
            for number in range(3):
                one.sendall(request)
                head, part = response(one) if status == b"206" else (one.recv(1 << 16), b"")
                assert head[9:12] == status, number
                assert part == (b"PAR1" if status == b"206" else b"")
        route = "/v1/tables/{name}/{table}.parquet"
        assert service.traffic.requests[route, 200] == 5
        assert service.traffic.requests[route, 304] == 3
        for other in (
            TABLE.replace(b"windows", b"nothing"),
            TABLE.replace(b"GET", b"DELETE"),
            TABLE.replace(b"localhost", b"evil.example"),
            TABLE[:-2] + b"Origin: http://evil.example\r\n\r\n",
        ):
            for _ in range(3):
                (head, _), was_read = asked(other)
                assert was_read
                assert head[9:10] == b"4"
        assert not asked()[1]
        service.store.generation += 1  # something was stored: the answer may be another one
        assert asked()[1]
        assert not asked()[1]


def test_an_answer_that_is_ready_is_given_to_nobody_whose_token_has_left(folder):
    access = Access([Token("ops", hashlib.sha256(b"correct-horse-battery").digest(), None)], None)
    request = TABLE[:-2] + b"Authorization: Bearer correct-horse-battery\r\n\r\n"
    with serving(folder, processes=0, access=access) as (_, client), connect(client) as one:

        def status(sent):
            one.sendall(sent)
            return response(one)[0][9:12]

        assert [status(request) for _ in range(4)] == [b"200"] * 4
        assert status(TABLE) == b"401"
        tokens, access.tokens = access.tokens, ()
        assert status(request) == b"401"
        access.tokens = (Token("ops", tokens[0].digest, frozenset()),)  # it may see no sketch any more
        assert status(request) == b"404"


def test_a_connection_whose_requests_are_not_read_stays_as_long_as_it_is_used(folder, monkeypatch):
    monkeypatch.setattr(server, "IDLE_S", 1)
    with serving(folder, processes=0) as (_, client), connect(client) as one:
        for _ in range(3):
            one.sendall(TABLE)
            response(one)
        with connect(client) as fresh:  # its first request is known already
            for _ in range(12):
                time.sleep(0.25)
                for each in (one, fresh):
                    each.sendall(TABLE)
                    assert response(each)[0].startswith(b"HTTP/1.1 200")
            began = time.monotonic()
            assert closed_after(fresh)[1] == b""
            assert time.monotonic() - began < 30


def test_a_client_that_reads_no_refusals_is_not_sent_more_of_them(folder, monkeypatch):
    monkeypatch.setattr(connections.TurnLine, "admit", lambda *_: False)
    with serving(folder, processes=0) as (_, client), socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect((client.base_url.host, client.base_url.port))
        before = resident_mib()
        with pytest.raises(OSError, match=r"reset|pipe"):  # noqa: PT012 - one of many sends finds it closed
            for _ in range(1_000_000):
                one.sendall(REQUEST)
        assert resident_mib() < before + 16


def test_one_address_does_not_keep_another_out_of_a_turn():
    class Loop:
        def __init__(self):
            self.soon, self.later = [], []

        def call_soon(self, call):
            self.soon.append(call)

        def call_later(self, _, call):
            self.later.append(call)

    loop, traffic = Loop(), Traffic()
    line = connections.TurnLine(3, traffic)
    assert [line.admit("greedy", loop) for _ in range(5)] == [True] * 3 + [False] * 2
    assert [line.admit("modest", loop) for _ in range(2)] == [True, False]
    assert len(loop.soon) == 1
    loop.soon.pop()()
    assert line.admit("greedy", loop)
    for _ in range(3):
        line.refused(loop)
    assert len(loop.later) == 1  # one line in the log
    assert traffic.requests["-", 503] == 3


def test_large_requests_count_as_several(folder, monkeypatch):
    """To read 20 kB of headers takes as long as to answer many small requests."""
    counted, whole = [], connections.TurnLine.admit
    monkeypatch.setattr(connections.TurnLine, "admit", lambda *given: counted.append(given[3]) or whole(*given))
    with serving(folder, processes=0) as (_, client), connect(client) as one:
        for part in (REQUEST[:-2], b"X-Odd: " + b"a" * 20_000, b"\r\n", b"\r\n"):
            one.sendall(part)
            time.sleep(0.05)
        assert response(one)[0].startswith(b"HTTP/1.1 200")
        assert counted[0] == 1
        assert counted[-1] > 20_000 / connections.USUAL_BYTES - 1  # whatever comes last, all of it is read then
        one.sendall(REQUEST)
        response(one)
        assert counted[-1] == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (REQUEST.replace(b"sketches", b"sketches?" + b"&".join([b"a"] * 5000)), b"431"),
        (REQUEST[:-2] + b"".join(b"X%d: 1\r\n" % one for one in range(1000)) + b"\r\n", b"431"),
        (REQUEST[:-2] + b"X: " + b"a" * 100_000 + b"\r\n\r\n", b"400"),
    ],
)
def test_what_is_long_to_read_is_refused_before_it_is_read(folder, monkeypatch, sent, status):
    with serving(folder, processes=0) as (_, client):
        read = []
        monkeypatch.setattr("starlette.datastructures.QueryParams.__init__", lambda *given, **_: read.append(given))
        with connect(client) as one:
            with contextlib.suppress(OSError):  # it is refused before all of it has come
                one.sendall(sent)
            assert response(one)[0][9:12] == status
        assert not read


def test_a_request_with_two_lengths_is_refused_and_nothing_behind_it_is_a_request(folder):
    """A proxy that goes by Content-Length takes the rest for the form, and would not look at what it asks."""
    rest = b"0\r\n\r\n" + REQUEST
    for path in (b"/v1/sketches/minutes/estimate", b"/healthz"):
        sent = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(rest)
        sent += b"Transfer-Encoding: chunked\r\n\r\n" + rest
        with serving(folder, processes=0) as (_, client):
            _, got = closed_after(connect(client, sent))
            assert re.findall(rb"HTTP/1\.1 ([0-9]+)", got) == [b"400"]


def test_no_address_leads_to_the_host_that_a_request_names(folder):
    access = Access([Token("ops", hashlib.sha256(b"correct-horse-battery").digest(), None)], None)
    headers = {"Authorization": "Bearer correct-horse-battery", "Host": "evil.example"}
    with serving(folder, processes=0, access=access) as (_, client):
        for path in ("/v1/sketches/", "/sketches/minutes/", "/login/", "/v1/sketches/minutes/windows/"):
            found = client.get(path, headers=headers)
            assert found.status_code == 404
            assert "location" not in found.headers


def test_requests_that_are_none_write_no_lines_and_are_counted(folder, caplog):
    caplog.set_level("INFO")
    with serving(folder, processes=0) as (service, client):
        for _ in range(20):
            closed_after(connect(client, b"\x16\x03\x01 nonsense\r\n\r\n"))
        upgrade = REQUEST[:-2] + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        with connect(client, upgrade) as one:
            assert response(one)[0].startswith(b"HTTP/1.1 200")
        assert service.traffic.requests["-", 400] == 20
    assert not [one for one in caplog.records if one.name.startswith("uvicorn")]


def test_silent_connections_make_room_for_others(folder, monkeypatch):
    monkeypatch.setattr(connections, "CONNECTIONS", 64)
    with serving(folder, processes=0) as (_, client), contextlib.ExitStack() as stack:
        before = descriptors()
        silent = [stack.enter_context(connect(client, b"GET / HT")) for _ in range(300)]
        for _ in range(20):
            assert httpx.get(f"{client.base_url}/healthz", timeout=10).status_code == 200
            assert httpx.get(f"{client.base_url}/v1/sketches", timeout=10).status_code == 200
        wait_for(lambda: descriptors() <= before + len(silent) + 64 + 8)


def test_what_is_no_http_gets_a_problem_like_every_error(folder):
    with serving(folder, processes=0) as (_, client):
        _, got = closed_after(connect(client, b"\x16\x03\x01 nonsense\r\n\r\n"))
        head, _, body = got.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        assert b"application/problem+json" in head
        assert b"nosniff" in head
        assert b'"status":400' in body


def test_the_number_of_connections_leaves_descriptors_for_the_rest():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for soft, most in ((256, 128), (140, 16), (before[1], None)):
            if soft <= before[1]:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
                assert connections.most_connections() == (most or min(512, soft - connections.RESERVED_DESCRIPTORS))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# ---------------------------------------------------------------------- disks


def test_answers_are_given_while_the_disk_is_full_and_stored_when_it_is_not(folder, monkeypatch):
    with serving(folder) as (service, client):
        settled(service)
        store = service.store
        (pages,) = store._write.execute("PRAGMA page_count").fetchone()
        store._write.execute(f"PRAGMA max_page_count = {pages}")
        asked = [{**SPAN, "max_count": str(count)} for count in range(30, 38)]
        first = [client.get(PROFILE, params=one) for one in asked]
        assert {one.status_code for one in first} == {200}
        assert store.error is not None
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
        computed = service.pool.computed
        again = [client.get(PROFILE, params=one) for one in asked]
        assert [one.content for one in again] == [one.content for one in first]
        assert service.pool.computed == computed  # those that could not be stored are in memory
        store._write.execute("PRAGMA max_page_count = 1000000")
        monkeypatch.setattr(service.pool, "_retry_at", 0.0)
        service.pool.wake()
        wait_for(lambda: client.get("/readyz").status_code == 200)  # though nobody asks, and nothing new is published
        assert store.error is None
        wait_for(lambda: not service.pool._unstored)
        assert service.pool.computed == computed
        assert [client.get(PROFILE, params=one).content for one in asked] == [one.content for one in first]


def test_two_services_cannot_have_one_database(folder):
    with serving(folder, processes=0) as (service, _):
        with pytest.raises(StoreError, match="another service"):
            Store(service.store.path, service.config, "test")
        text = (
            "import pathlib, sys; from sketchstream.serve.store.database import lock; lock(pathlib.Path(sys.argv[1]))"
        )
        command = [sys.executable, "-c", text, str(service.store.path)]
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "another service" in other.stderr
    os.close(lock(folder / "serve.sqlite"))  # free again


def answers(client):
    """Everything that a client can have of the windows."""
    out = []
    for one in client.get("/v1/sketches/minutes/windows", params={"order": "asc"}).raise_for_status().json()["windows"]:
        params = {"from": one["window_start"], "to": one["window_end"]}
        out.append(client.get(PROFILE, params=params).raise_for_status().content)
        out.append(client.get(PROFILE, params={**params, "format": "csv"}).raise_for_status().content)
    return out


@pytest.mark.parametrize("damage", ["header", "everything", "empty", "another release"])
def test_a_damaged_database_is_filled_again_at_the_start(folder, damage):
    with serving(folder) as (service, client):
        settled(service)
        before = answers(client)
    path = folder / "serve.sqlite"
    data = bytearray(path.read_bytes())
    if damage == "another release":
        with contextlib.closing(sqlite3.connect(path)) as one:
            one.execute("UPDATE meta SET value = '3' WHERE name = 'format'")
            one.commit()
    else:
        changed = {"header": slice(0, 100), "everything": slice(100, len(data)), "empty": slice(0, 0)}[damage]
        data[changed] = b"\xa5" * len(data[changed])
        path.write_bytes(b"not a database" if damage == "empty" else data)
    with serving(folder) as (service, client):
        if service.store.damaged:
            service.follower.step()
        settled(service)
        assert answers(client) == before
    assert (folder / "serve.sqlite.damaged").exists()


@pytest.mark.parametrize("damage", ["pages", "answers", "bodies"])
def test_a_database_that_is_damaged_while_it_is_used_is_filled_again_and_answers_stay_the_same(folder, damage):
    with serving(folder) as (service, client):
        settled(service)
        before = answers(client)
        path = folder / "serve.sqlite"
        store = service.store
        store._write.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if damage == "pages":
            store._readers.close()
            data = bytearray(path.read_bytes())
            data[4096:] = b"\xa5" * (len(data) - 4096)
            with path.open("r+b") as file:
                file.write(data)
            store._write.execute("PRAGMA shrink_memory")
        elif damage == "answers":
            store._write.execute("UPDATE answers SET numbers = replace(CAST(numbers AS TEXT), '1', '2')")
        else:
            store._write.execute("UPDATE bodies SET body = zeroblob(length(body))")
            store._write.execute("DELETE FROM answers")
            store._write.execute("UPDATE windows SET todo = 2")
            service.pool.restart()
        service.pool.wake()
        store.generation += 1
        service.follower._refresh_s = 0.05
        service.follower._feed._seen = None
        with contextlib.suppress(httpx.HTTPStatusError):
            for one in range(3):
                client.get(PROFILE, params={**SPAN, "max_count": str(30 + one)})
            after = {"against_from": iso(EPOCH + MINUTE), "against_to": iso(EPOCH + 2 * MINUTE)}
            assert (
                damage != "answers" or client.get(f"{PROFILE[:-7]}difference", params=SPAN | after).status_code == 503
            )
        wait_for(lambda: store.damaged or store.error, 60)
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503
        service.follower.step()
        service.pool.wake()
        settled(service)
        wait_for(lambda: client.get("/readyz").status_code == 200, 60)  # the pool says with its next answer that it can
        assert answers(client) == before
        assert not client.get("/v1/incidents").json()["incidents"]


def test_a_reader_that_comes_while_the_database_is_replaced_reads_the_new_one_from_then_on(folder, monkeypatch):
    with serving(folder) as (service, client):
        settled(service)
        before, store = answers(client), service.store
        assert store.positions()
        moved = store_module.set_aside
        raced = []

        def race(path):
            raced.append(store.positions())  # of the old database, by a connection that goes back to the pool
            return moved(path)

        monkeypatch.setattr(store_module, "set_aside", race)
        store.note_damage(store.rebuilds)
        store.rebuild()
        assert raced
        assert store.positions() == {}
        with pytest.raises(BusyError, match="replaced while it was read"):
            store._name(1)
        service.follower._feed._seen = None
        service.follower.step()
        service.pool.restart()
        service.pool.wake()
        settled(service)
        assert answers(client) == before


def test_a_process_that_read_the_database_before_says_nothing_of_the_one_in_its_place(folder, monkeypatch):
    with serving(folder) as (service, client):
        settled(service)
        before, store = answers(client), service.store
        ask, asked = Child.ask, []

        def race(child, *given):
            if asked:
                return ask(child, *given)
            asked.append(child.rebuilds)
            store.note_damage(store.rebuilds)
            store.rebuild()
            return {"error": DamagedError.__name__, "text": "damaged"}

        monkeypatch.setattr(Child, "ask", race)
        client.get(PROFILE, params={**SPAN, "max_count": "30"})
        wait_for(lambda: asked and not service.pool._running)
        assert asked == [store.rebuilds - 1]
        assert not store.damaged
        service.pool.restart()
        service.follower._feed._seen = None
        service.follower.step()
        settled(service)
        assert answers(client) == before


def test_incidents_outlive_a_damaged_database(folder):
    with serving(folder) as (service, client):
        settled(service)
        store = service.store
        with store._transaction():
            store._window_rows.report(store._numbering.ids["minutes"], EPOCH, "published twice")
        store.note_damage(store.rebuilds)
        service.follower.step()
        assert [one["text"] for one in client.get("/v1/incidents").json()["incidents"]] == ["published twice"]
        assert client.get(PROFILE, params=SPAN).status_code == 409


@pytest.mark.parametrize("odd", ["pipe", "folder", "socket"])
def test_what_is_no_file_in_place_of_a_body_hides_its_own_window_only(folder, odd):
    (path,) = sorted((folder / "sealed" / "minutes").rglob("*.sealed"))[:1]
    path.unlink()
    with contextlib.ExitStack() as stack:
        if odd == "pipe":
            os.mkfifo(path)
        elif odd == "folder":
            path.mkdir()
        else:
            one = stack.enter_context(socket.socket(socket.AF_UNIX))
            before = Path.cwd()
            os.chdir(path.parent)  # names of sockets are short
            one.bind(path.name)
            os.chdir(before)
        with serving(folder) as (service, client):
            settled(service)
            listed = client.get("/v1/sketches/minutes/windows", params={"order": "asc"}).json()["windows"]
            assert [one["answer"] for one in listed][1:] == ["ready"] * (len(listed) - 1)
            assert len(listed) >= 2


def test_a_follower_that_is_stuck_is_seen_by_who_asks_whether_the_service_is_ready(folder):
    with serving(folder, processes=0) as (service, client):
        follower, done = service.follower, threading.Event()
        whole, follower._feed = follower._feed, type("Stalled", (), {"newest": lambda _: done.wait(60) and []})()
        follower.stuck_s = follower._wait = 0.0
        follower._refresh_s = 0.01
        assert client.get("/readyz").status_code == 200
        follower.start()
        wait_for(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/healthz").status_code == 200
        follower._stop.set()
        follower._feed = whole
        done.set()


STALLED = """
import sys, time
from sketchstream.cli import main
from sketchstream_connectors.files import feed

whole, turns = feed.DirectoryFeed.newest, []
def newest(self):
    turns.append(1)
    return whole(self) if len(turns) < 3 else time.sleep(1000)
feed.DirectoryFeed.newest = newest
sys.exit(main(["serve", "-c", "sketchstream.toml", "--port", sys.argv[1]]))
"""
"""A service whose folder is on a disk that does not answer after the first look."""


def test_a_signal_ends_the_service_in_ten_seconds_whatever_blocks(folder):
    (folder / "sketchstream.toml").write_text(FILES + '[serve]\nrefresh = "100ms"\nprocesses = 1\n')
    port = free_port()
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-c", STALLED, str(port)], cwd=folder, stderr=log)
    try:
        wait_ready(port, process)
        time.sleep(1)
        with socket.create_connection(("127.0.0.1", port)) as silent:
            silent.sendall(b"GET / HT")
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        assert time.monotonic() - began < 15  # ten, and a busy machine
    finally:
        process.kill()
        process.wait()
