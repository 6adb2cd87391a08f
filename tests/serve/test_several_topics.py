"""The service over what workers of two topics have published: a window is complete when both have passed it.

In: sealed sketches in a folder. Out: nothing. Touches: a temporary folder, a server on loopback.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.serving import serving
from helpers.two_topics import BASE, CONFIG, MINUTE, Two
from sketchstream.stream.windows.calendar import iso
from sketchstream.topics import TOPIC_STRIDE
from sketchstream_connectors.files.publisher import DirectoryPublisher

pytestmark = pytest.mark.filterwarnings("ignore::sketchstream.spec.NoPrivacyWarning")
FOLDER = CONFIG.replace("[[sketch]]", '[output]\ntopic = ""\ndirectory = "sealed"\n[[sketch]]')


def test_a_window_is_complete_when_all_topics_have_passed_it(tmp_path: Path) -> None:
    two = Two(2, 1)
    folder = DirectoryPublisher(tmp_path / "sealed")

    def pass_on() -> None:
        for publisher in two.publishers:
            folder.publish(0, publisher.log, list(publisher.frontiers().values()))

    for item in range(30):
        two.send(0, item % 2, item, BASE)
        two.send(1, 0, item, BASE)
    for partition in range(2):
        two.send(0, partition, None, BASE + 2 * MINUTE)
    two.run(20)
    pass_on()
    asked = {"from": iso(BASE), "to": iso(BASE + MINUTE)}
    with serving(tmp_path, FOLDER) as (service, client):
        (window,) = client.get("/v1/sketches/seen/windows").json()["windows"]
        assert not window["complete"]
        assert window["partitions"] == {"published": 2, "of": 3, "missing": [TOPIC_STRIDE]}
        two.send(1, 0, None, BASE + 2 * MINUTE)
        two.run(20)
        pass_on()
        service.follower.step()
        (window,) = client.get("/v1/sketches/seen/windows").json()["windows"]
        assert window["partitions"] == {"published": 3, "of": 3, "missing": []}
        assert not window.get("repartitioned"), "topics have different numbers of partitions, and none has changed"
        assert window["status"] == "all 3 partitions"
        found = client.get("/v1/sketches/seen/profile", params=asked)
        assert found.status_code == 200, found.text
        numbers = found.json()
        assert numbers["values"][:4] == pytest.approx([40, 30, 30, 0])
