"""What Prometheus reads of a service: requests, times, the queue, threads, descriptors, the database."""

from __future__ import annotations

import hashlib

import pytest
from prometheus_client.parser import text_string_to_metric_families

from helpers.serving import publish, serving
from sketchstream.serve.clients.access import Access, Token
from sketchstream.serve.clients.traffic import STEPS_S, Traffic

TOKENS = {"all": ("a-token-that-sees-everything", None), "some": ("a-token-that-sees-minutes", frozenset({"minutes"}))}


def samples(client, who):
    """Samples of the metrics by name and labels."""
    text = client.get("/metrics", headers={"Authorization": f"Bearer {TOKENS[who][0]}"}).raise_for_status().text
    families = text_string_to_metric_families(text)
    return {(one.name, *sorted(one.labels.items())): one.value for family in families for one in family.samples}


def test_metrics_count_requests_their_times_the_queue_and_what_the_process_has(tmp_path):
    publish(tmp_path / "sealed", minutes=1, partitions=1)
    tokens = [Token(name, hashlib.sha256(text.encode()).digest(), seen) for name, (text, seen) in TOKENS.items()]
    with serving(tmp_path, access=Access(tokens, None)) as (service, client):
        client.get("/v1/sketches")  # without a token
        client.get("/v1/sketches", headers={"Authorization": f"Bearer {TOKENS['all'][0]}"})
        first, second = samples(client, "all"), samples(client, "all")
        prefix = "sketchstream_serve"
        assert first[f"{prefix}_requests_total", ("route", "-"), ("status", "401")] == 1
        assert first[f"{prefix}_requests_total", ("route", "/v1/sketches"), ("status", "200")] == 1
        name = (f"{prefix}_requests_total", ("route", "/metrics"), ("status", "200"))
        assert second[name] == 1
        assert second[f"{prefix}_request_seconds_count",] == first[f"{prefix}_request_seconds_count",] + 1
        assert first[f"{prefix}_requests_in_progress",] == 1  # this one
        assert first[f"{prefix}_questions_waiting",] == 0
        assert first[f"{prefix}_threads_needed",] == 2
        assert first[f"{prefix}_threads_running",] == 1  # the follower of this test runs step by step
        assert first[f"{prefix}_database_bytes",] == pytest.approx(service.store.size, rel=0.5)
        assert first[f"{prefix}_database_trouble",] == first[f"{prefix}_follower_stuck",] == 0
        assert 0 < first["process_open_fds",] < first["process_max_fds",]
        restricted = samples(client, "some")
        assert {dict(labels).get("sketch") for _, *labels in restricted} <= {"minutes", None}
        assert {name for name, *_ in restricted if not name.startswith(prefix)} == set()
        assert not [name for name, *_ in restricted if "request" in name or "questions" in name or "bodies" in name]


def test_the_histogram_of_times_has_every_request_in_one_step():
    traffic = Traffic()
    for seconds in (0.0, 0.001, 0.0011, 7.0, 1000.0):
        traffic.done("/v1/sketches", 200, seconds)
    assert sum(traffic.times.steps) == 5
    assert traffic.times.steps[0] == 2
    assert traffic.times.steps[1] == 1
    assert traffic.times.steps[-1] == 1
    assert len(traffic.times.steps) == len(STEPS_S) + 1
    assert traffic.times.sum == pytest.approx(1007.0021)
