"""Validates the topics that a store needs: they exist, were not recreated, retain their data and have enough room.

In: names of topics. Out: what the cluster reports, or an error that says what to do. Touches: an admin connection; the
state and sealed topics, which get more partitions when the input has got more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from sketchstream.errors import BrokerError, ConfigError, DataLossError, SnapshotsGoneError
from sketchstream.log_events import EventLog
from sketchstream_connectors.kafka.cluster.client import Admin, Connection, Topic
from sketchstream_connectors.kafka.cluster.topics import FOR_EVER

event_log = EventLog("sketchstream.kafka")

KNOWN_FOR_S = 5.0
"""Age of a description of a topic that is still believed, seconds."""
ASKED_TOGETHER_S = 0.2
"""Seconds within which commits of many partitions that begin together ask once."""
GROW_TIMEOUT_S = 5.0
"""Longest wait until an added partition has a leader, seconds."""
WATCH_SETTINGS_S = 20.0
"""Seconds between two looks at the settings of the topics."""
ADVICE = "`sketchstream recover` says what can be done, `sketchstream reset` starts a new revision"


class StoreTopics:
    """The input, the state topic and perhaps the sealed topic of a store.

    Args:
        admin: admin client of the store.
        topic: the input.
        states: names of the state topic, of which the first that exists is taken: the present one, perhaps the one
            that an older release made.
        sealed: the sealed topic.
        accept_loss: accept an input that was created again.

    Raises:
        ConfigError: a topic is missing, or has settings under which state would be lost.
    """

    def __init__(
        self, admin: Admin, topic: str, states: Sequence[str], sealed: str | None, *, accept_loss: bool
    ) -> None:
        self._admin = admin
        self._accept_loss = accept_loss
        self._watched_at = time.monotonic()
        self._watching = threading.Lock()
        self._forgetful: dict[str, str] = {}  # what was wrong with a topic at the last look
        self.sealed = sealed
        advice = "; `sketchstream topics create -c FILE` creates the topics of this application"
        self.input = admin.require_topic(topic, "topic", advice)
        existing = (described for name in states if (described := admin.topic(name)) is not None)
        self.state = next(existing, None) or admin.require_topic(states[0], "topic", advice)
        self._states = tuple(states)
        wrong = self._wrong_settings(self.state.name)
        if wrong:  # it would lose the state of a partition that is silent for a while
            raise ConfigError(f"the state topic {self.state.name!r} would lose snapshots: {wrong}")

    def topic_of_state(self, state_id: str) -> str | None:
        """Which of our state topics has this id; None if none has it any more."""
        for name in self._states:
            described = self._admin.topic(name, max_age_s=KNOWN_FOR_S)
            if described is not None and described.topic_id == state_id:
                return name
        return None

    @property
    def former_state(self) -> str | None:
        """The state topic of an older release, where it still exists and is not the one that is used."""
        for name in self._states[1:]:
            if name != self.state.name and self._admin.topic(name, max_age_s=KNOWN_FOR_S) is not None:
                return name
        return None

    def _wrong_settings(self, name: str) -> str:
        """Settings of a topic under which it forgets, in words; empty if there are none."""
        configs = self._admin.configs(name)
        return "; ".join(f"{k} is {configs.get(k)}, must be {v}" for k, v in FOR_EVER.items() if configs.get(k) != v)

    def watch_settings(self) -> None:
        """Look again from time to time whether our topics forget, and log it once; they may have been changed since."""
        with self._watching:
            now = time.monotonic()
            if now - self._watched_at < WATCH_SETTINGS_S:
                return
            self._watched_at = now
        for name in filter(None, (self.state.name, self.sealed)):
            try:
                wrong = self._wrong_settings(name)
            except BrokerError:  # not now, or not allowed for the sealed topic: the next look
                continue
            if wrong and wrong != self._forgetful.get(name):
                event_log.error("topic_forgets", topic=name, settings=wrong)
            self._forgetful[name] = wrong

    def state_now(self) -> Topic:
        """The present state topic; its id changes when it is deleted and created again.

        Raises:
            SnapshotsGoneError: there is none.
        """
        described = self._admin.topic(self.state.name, max_age_s=ASKED_TOGETHER_S)
        if described is None:
            raise SnapshotsGoneError(
                f"the state topic {self.state.name!r} was deleted; `sketchstream topics create -c FILE` makes it"
            )
        self.state = described
        return described

    def check_input(self) -> None:
        """Check that the input topic is the one we know; its id changes when it is deleted and created again."""
        name = self.input.name
        described = self._admin.topic(name, max_age_s=KNOWN_FOR_S)
        if described is not None and described.topic_id == self.input.topic_id:
            return
        happened = "was deleted" if described is None else "was deleted and made again (its topic id changed)"
        if self._accept_loss:
            raise BrokerError(f"the input topic {name!r} {happened}: its partitions are begun anew")
        raise DataLossError(f"the input topic {name!r} {happened}; {ADVICE}")

    def adopt_input(self) -> None:
        """If that is accepted, take the topic that has the name now for the input, whatever was before."""
        if not self._accept_loss:
            return
        described = self._admin.topic(self.input.name)
        if described is None:
            raise BrokerError(f"the input topic {self.input.name!r} was deleted: waiting for it to be made again")
        self.input = described

    def check_room(self, partition: int) -> None:
        """Check that state and sealed topics have the partition, and grow them if the input was grown."""
        for name in (self.state.name, self.sealed):
            described = self._admin.topic(name, max_age_s=KNOWN_FOR_S) if name else None
            if name is not None and (described is None or described.partitions <= partition):
                self._grow(name, partition)

    def _grow(self, name: str, partition: int) -> None:
        """Give the topic as many partitions as the input has now; several workers may do this at once."""
        input_topic = self._admin.topic(self.input.name)
        cause: BrokerError | None = None
        try:
            if input_topic is not None:
                self._admin.grow(name, input_topic.partitions)
                event_log.info("topic_grown", topic=name, partitions=input_topic.partitions)
        except BrokerError as error:  # not allowed, or another worker was first
            cause = error
        deadline = time.monotonic() + GROW_TIMEOUT_S
        while time.monotonic() < deadline:
            described = self._admin.topic(name)
            if described is not None and described.partitions > partition and described.leaders.get(partition, -1) >= 0:
                return
            time.sleep(0.1)
        raise DataLossError(
            f"topic {name!r} has no partition {partition} and could not be given one; run "
            "`sketchstream topics create -c FILE`"
        ) from cause


def check_writable(connection: Connection, topics: Mapping[str, str]) -> None:
    """Check that these topics exist and may be written: a worker writes to them later, and would stand still then.

    Args:
        connection: connection to the cluster.
        topics: setting -> name of the topic.

    Raises:
        ConfigError: names the setting, the topic and what to do.
    """
    for setting, name in topics.items():
        with connection.admin.client(f"asking about topic {name!r}") as client:
            (described,) = client.describe_topics([name])
        operations = {str(operation).lower() for operation in described.get("authorized_operations") or ()}
        if described["error_code"] != 0:
            raise ConfigError(
                f"{setting}: topic {name!r} does not exist, or may not be seen; `sketchstream topics create` makes it, "
                "`sketchstream topics acls` lists what a worker must be allowed"
            )
        if operations and "write" not in operations:
            raise ConfigError(
                f"{setting}: topic {name!r} may not be written; `sketchstream topics acls` lists what a worker must "
                "be allowed"
            )
