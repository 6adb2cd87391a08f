"""What a worker of a configuration needs: memory of open windows and of the input, and what its snapshots write.

In: a configuration, numbers of partitions. Out: bytes, and lines about them. Touches: the size of this machine's
memory, reading.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sketchstream.config import kafka_settings
from sketchstream.errors import ConfigError
from sketchstream.stream.windows.units import spell_bytes, spell_snapshots
from sketchstream.topics import MAX_PARTITIONS

if TYPE_CHECKING:
    from sketchstream.config.loader import Config


def memory_bytes(config: Config, partitions: int, total: int | None = None) -> int:
    """Largest memory of open windows of that many partitions in one worker, including one snapshot.

    Args:
        config: the configuration.
        partitions: number of the worker's partitions.
        total: number of the input's partitions; default: the worker has all of them.
    """
    behind = config.input.lateness + config.input.quorum_time
    memories = [plan.memory(behind, total or partitions, checked=config.checks_partitions) for plan in config.sketches]
    return sum(memory.for_partitions(partitions) for memory in memories)


def input_bytes(config: Config, partitions: int) -> int:
    """Memory of reading that many partitions of a topic from one broker; 0 for a file."""
    return kafka_settings.input_bytes(config.kafka, partitions) if config.from_kafka else 0


def fits_memory(config: Config, partitions: int, total: int) -> bool:
    """Whether open windows and input of this number of partitions stay below `worker.memory_limit`."""
    limit = config.worker.memory_limit
    return limit is None or memory_bytes(config, partitions, total) + input_bytes(config, partitions) <= limit


def snapshot_cost(config: Config, partitions: int) -> str:
    """Line on the bytes that snapshots of that many partitions write, while windows of one instant are busy."""
    checked = config.checks_partitions
    window = sum(plan.overlap * plan.window_bytes(partitions, checked=checked) for plan in config.sketches)
    return spell_snapshots(window, partitions, config.store.snapshot_every, config.store.snapshot_rate)


def check_memory(config: Config, partitions: int, total: int | None = None, *, here: bool = False) -> str:
    """Line on the memory of open windows and of the input; ConfigError if it is above `worker.memory_limit`.

    Args:
        config: the configuration.
        partitions: number of one worker's partitions.
        total: number of the input's partitions; default: the worker has all of them.
        here: whether they will be open on this machine: without a limit, its own memory is the limit.
    """
    if max(partitions, total or 0) > MAX_PARTITIONS:
        raise ConfigError(
            f"the input has {max(partitions, total or 0):,} partitions, and readers accept {MAX_PARTITIONS:,}"
        )
    windows, read = memory_bytes(config, partitions, total), input_bytes(config, partitions)
    limit = config.worker.memory_limit
    name = "worker.memory_limit"
    if limit is None and here:
        name, limit = "this machine's memory", os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    text = f"open windows of {partitions} partitions need up to {spell_bytes(windows)}"
    if read:
        text += f", reading them up to {spell_bytes(read)}"
    if limit is not None and windows + read > limit:
        raise ConfigError(
            f"{text}, more than {name} = {spell_bytes(limit)}: use fewer slots or groups, a shorter "
            "input.lateness, longer windows, or fewer of them that overlap"
            + (", or a smaller fetch.max.bytes" if read else "")
        )
    return text
