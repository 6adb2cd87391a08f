"""Log lines of long-running commands: the fixed list of events, and the two formats in which they are written.

In: the name of an event and its fields. Out: a line of key=value pairs, or one JSON object. Touches: the log.

An event says what happened to partitions, windows, files and brokers. No field holds an item, a count that depends on
payloads, a key or noise. `docs/operations.md` lists the events; a test compares that list, this one and the code.
"""

from __future__ import annotations

import json
import logging
import warnings
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

FORMATS: Final = ("text", "json")
"""How log lines may be written."""
OTHER: Final = "message"
"""The event of a line that is not ours: a library's, or a Python warning."""


class Event(NamedTuple):
    """What a name in the log means.

    Args:
        levels: levels at which the event is logged.
        meaning: one sentence for operators.
    """

    levels: str
    meaning: str


WORKER: Final[dict[str, Event]] = {
    "applied": Event("debug", "Records of a chunk were counted."),
    "batch_unreadable": Event("warning", "A batch has a wrong checksum and is fetched again."),
    "block_damaged": Event("warning", "A block of an Avro file is damaged; its records are not counted."),
    "captured": Event("debug", "A snapshot was captured in memory."),
    "chunk_discarded": Event("warning", "The client returned records of another position; they are read again."),
    "clock_right": Event("info", "The clocks of worker and brokers agree again."),
    "clock_skew": Event("warning", "The clocks of worker and brokers differ by more than a minute."),
    "closed_positions_altered": Event("error", "Published positions do not have their digest and are not shown."),
    "consumer_recreated": Event("warning", "The Kafka consumer was replaced; it joins the group again."),
    "dropped": Event("warning", "A partition failed; its state is restored from the last commit."),
    "durable_again": Event("info", "A partition is read, committed and published again."),
    "early_body_altered": Event("error", "An early publication does not have its digest and is not shown."),
    "ended": Event("info", "The worker has ended; what it counted, as far as diagnostics allow."),
    "erase_delayed": Event("warning", "Superseded snapshots could not be erased yet."),
    "halted": Event("error", "A partition was stopped and waits for a person."),
    "history": Event(
        "warning",
        "Windows of a sketch before a boundary are published from a table (backfill); records before it are late.",
    ),
    "input_made_again": Event("warning", "The input topic was created again; a new revision begins."),
    "loss_accepted": Event("warning", "Records are gone and the policy is to continue without them."),
    "mixed_configurations": Event("warning", "Workers with another configuration are in the group."),
    "no_memory": Event("error", "A partition does not fit into worker.memory_limit."),
    "no_sample": Event("info", "No sample of the input could be read."),
    "not_counted": Event("warning", "Most records of the last ten minutes were not counted; says why."),
    "not_durable": Event("error", "Nothing of a partition is decoded, committed or published; says why."),
    "note": Event("info", "At the end: windows that are still open and what they wait for."),
    "open_windows_unknown": Event("info", "The open windows could not be read from the state topic."),
    "partition_taken": Event("info", "The state of a partition was taken over from the store."),
    "partitions_unowned": Event("warning", "No member of the group owns these partitions; the worker joins it again."),
    "poll_failed": Event("warning", "The client failed to poll; it is tried again."),
    "position_in_doubt": Event("warning", "A broker says that a position does not exist; others are asked."),
    "progress": Event("info", "Once a minute: what was read, as far as diagnostics allow."),
    "publish_failed": Event("warning", "Sealed sketches could not be published; it is tried again each second."),
    "published": Event("info", "A sealed sketch was published."),
    "registry_unavailable": Event("warning", "The schema registry gives no answer; records wait until it does."),
    "result": Event("info", "The result of a complete window was published."),
    "result_impossible": Event("warning", "A complete window has no answer."),
    "results_delayed": Event("warning", "Results could not be published; it is tried again."),
    "retention_unknown": Event("info", "The retention of the input topic could not be read."),
    "revoked": Event("info", "A partition belongs to another worker now."),
    "running": Event("info", "A partition is being read."),
    "sample": Event("warning", "A sample of the input does not fit the configuration."),
    "schema_awaited": Event("warning", "Records wait for their schema."),
    "schema_denied": Event("warning", "The registry does not know, or does not give out, a schema that records name."),
    "schema_lacks_fields": Event(
        "warning", "A schema lacks fields that are configured; without item or time, no record of it counts."
    ),
    "schema_not_kept": Event("warning", "A schema could not be written to the cache."),
    "schema_read": Event("info", "A schema was read from the registry."),
    "schema_unreadable": Event("warning", "A schema cannot be used; its records are not counted."),
    "sealed_body_altered": Event("error", "A published sketch does not have its digest and is not shown."),
    "silence_unknown": Event("warning", "It cannot be learned whether idle partitions may close windows."),
    "slow_commit": Event("warning", "A snapshot takes longer than 10 s and than its size explains."),
    "snapshots_gone": Event("error", "The state topic was deleted; the state is written again as a whole."),
    "state_moved": Event("info", "A snapshot was moved to the state topic of the present name."),
    "timestamps": Event("info, warning", "Whose timestamps the input has; a warning where nothing limits them."),
    "timestamps_unknown": Event("info", "The timestamp settings of the input could not be read."),
    "topic_forgets": Event("error", "A topic of this application has settings under which data will be lost."),
    "topic_grown": Event("info", "A topic of this application got as many partitions as the input."),
    "topic_recreated": Event("error", "The input topic was deleted, or deleted and created again."),
    "warm_up_failed": Event("warning", "Compiling on a sample failed; the first records are slower."),
    "warmed_up": Event("info", "The compiled code is loaded."),
    "warming_up": Event("info", "The compiled code is being loaded, or made; the endpoints follow."),
    "watch_failed": Event("info, warning", "The watch over topic and group failed once."),
    "watermark_ahead": Event("warning", "Records are late because a watermark was moved ahead of them."),
    "watermark_jumped": Event("info", "A watermark moved over a gap of the stream."),
}
"""Events of `sketchstream worker`."""

SERVE: Final[dict[str, Event]] = {
    "answers_not_stored": Event("error", "The database cannot be written; answers are given but not kept."),
    "database_damaged": Event("error", "The database is damaged and will be rebuilt."),
    "database_rebuilt": Event("error", "The database was rebuilt from what is published."),
    "ended_by_force": Event("warning", "The service did not end in time and was ended."),
    "follow_failed": Event("warning, error", "What is published could not be read; it is tried again."),
    "followed": Event("info", "New publications were stored."),
    "incident": Event("error", "A published window was replaced or contradicts itself and is not shown."),
    "reconstruction_failed": Event("error", "An answer could not be computed because of an internal error."),
    "request": Event("info", "A request was answered."),
    "requests_refused": Event("warning", "So many requests were refused unread within a second, as too many waited."),
    "serving": Event("info", "The service listens."),
    "tokens_in_clear": Event("warning", "Tokens and answers travel without TLS."),
    "tokens_kept": Event("error", "The file of tokens could not be read again; the former tokens stay."),
    "tokens_read": Event("info", "The file of tokens was read."),
    "unreadable": Event("warning", "A published file cannot be read and hides its window only."),
}
"""Events of `sketchstream serve`, which also logs what reads the sealed topic."""

SHARED: Final[dict[str, Event]] = {
    "failed": Event("error", "The process ends because of this error (json only; as text it is the last line)."),
    OTHER: Event("any", "A line of a library, or a Python warning."),
}
"""Events of both, the worker and the server."""

EVENTS: Final = WORKER | SERVE | SHARED


class EventLog:
    """Logs events under the name of a logger.

    The methods take a name in `EVENTS`, a text that is written in place of the fields where lines are text (JSON has
    both), and what is known of the event: positions, times, names from the configuration, sentences from our errors.

    Args:
        name: name of the logger.
    """

    def __init__(self, name: str) -> None:
        self.logger = logging.getLogger(name)

    def debug(self, event: str, text: str = "", /, **fields: object) -> None:
        """Log an event for developers."""
        self._write(logging.DEBUG, event, text, fields)

    def info(self, event: str, text: str = "", /, **fields: object) -> None:
        """Log an event of normal operation."""
        self._write(logging.INFO, event, text, fields)

    def warning(self, event: str, text: str = "", /, **fields: object) -> None:
        """Log an event that an operator should know of."""
        self._write(logging.WARNING, event, text, fields)

    def error(self, event: str, text: str = "", /, **fields: object) -> None:
        """Log an event that an operator should act on."""
        self._write(logging.ERROR, event, text, fields)

    def exception(self, event: str) -> None:
        """Log an event as an error, with the traceback of the present exception."""
        self._write(logging.ERROR, event, "", {}, trace=True)

    def _write(self, level: int, event: str, text: str, fields: dict[str, object], *, trace: bool = False) -> None:
        if not self.logger.isEnabledFor(level):
            return
        message = text or " ".join(f"{name}={_quote_value(value)}" for name, value in fields.items())
        extra = {"event": event, "fields": {**({"text": text} if text else {}), **fields}}
        text = f" {message}" if message else ""
        self.logger.log(level, "event=%s%s", event, text, extra=extra, exc_info=trace, stacklevel=3)


def _quote_value(value: object) -> str:
    text = str(value).replace("\n", " ")
    return '"' + text.replace('"', "'") + '"' if " " in text or not text else text


class JsonLines(logging.Formatter):
    """Writes each record as one JSON object on a line: time, level, logger, event, and the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line of JSON for a record of the log."""
        event = getattr(record, "event", None)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": OTHER if event is None else event,
        }
        if event is None:
            line["message"] = record.getMessage()
        else:
            line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def begin(level: str, log_format: str) -> None:
    """Have the process log to standard error.

    Args:
        level: lowest level that is written: debug, info, warning or error.
        log_format: one of `FORMATS`. With json, Python's warnings are lines of the log too.
    """
    warnings.simplefilter("once", UserWarning)  # a process that runs for months says each once, not at each restore
    handler = logging.StreamHandler()
    if log_format == "json":
        handler.setFormatter(JsonLines())
        warnings.showwarning = _log_warning
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def writes_json() -> bool:
    """Whether this process writes its log as JSON."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


def _log_warning(message: Warning | str, category: type[Warning], *where: Any, **also: Any) -> None:
    """A Python warning of this package as a line of the log."""
    if category.__module__.startswith("sketchstream"):
        logging.getLogger("sketchstream").warning("%s", message)
