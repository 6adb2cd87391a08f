"""Builds an image without a container engine: stages are folders, the commands of the Dockerfile run in a chroot.

In: a Dockerfile, a folder as context, a base system. Out: the folder of the last stage, and how it is run. Touches: the
folders of the stages; needs root. Base images are replaced by one base system from debootstrap.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
"""Files of this machine that a stage needs while its commands run, and must not keep."""
PATH = "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin"


@dataclass
class Stage:
    """A stage: its files, and what the following commands and the container see.

    Args:
        root: folder of its files.
        environment: variables of ENV.
        arguments: arguments of ARG.
        folder: folder of WORKDIR.
        user: user of USER.
        entrypoint: entrypoint of ENTRYPOINT.
        command: command of CMD.
        before: bytes of the base system.
    """

    root: Path
    environment: dict[str, str] = field(
        default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin"}
    )
    arguments: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    before: int = 0


def debootstrap(folder: Path) -> None:
    """A Debian with Python, in place of the base images."""
    subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates", "bookworm", folder],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def instructions(text: str) -> list[tuple[str, str]]:
    """Name and rest of every instruction of a Dockerfile."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    joined = re.sub(r"\\\n", " ", lines)
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]  # type: ignore[misc]


def build(dockerfile: Path, context: Path, base: Path, folder: Path) -> Stage:
    """Build all stages; return the last one.

    Args:
        dockerfile: to follow.
        context: folder that COPY reads.
        base: folder of the base system, which is copied.
        folder: folder of the stages.
    """
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for name, rest in instructions(dockerfile.read_text()):
        if name == "FROM":
            called = rest.split(" AS ")[1] if " AS " in rest else str(len(stages))
            root = folder / called
            subprocess.run(["cp", "-a", "--reflink=auto", base, root], check=True)
            stage = stages[called] = Stage(root, before=size(root))
            continue
        assert stage is not None, "FROM comes first"
        known = {**stage.arguments, **stage.environment}
        if name == "ARG":
            key, _, value = rest.partition("=")
            stage.arguments[key] = value
        elif name == "ENV":
            pairs = re.findall(r"(\w+)=(\S+)", rest)
            stage.environment |= {key: _filled(value, known) for key, value in pairs}
        elif name == "WORKDIR":
            stage.folder = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "USER":
            stage.user = rest
        elif name == "COPY":
            _copy(rest.split(), stage, stages, context)
        elif name == "RUN":
            run_in(stage, ["/bin/sh", "-c", rest], stage.environment | stage.arguments, network=True)
        elif name == "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        elif name == "CMD":
            stage.command = json.loads(rest)
        else:
            assert name in {"EXPOSE", "STOPSIGNAL", "LABEL"}, f"{name} is not known here"
    assert stage is not None
    return stage


def _filled(value: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda found: known[found[1]], value)


def _copy(words: Sequence[str], stage: Stage, stages: Mapping[str, Stage], context: Path) -> None:
    source = context
    if words[0].startswith("--from="):
        source = stages[words[0].removeprefix("--from=")].root
        words = words[1:]
    *names, target = words
    place = Path(target) if target.startswith("/") else Path(stage.folder) / target
    into = stage.root / str(place).lstrip("/")
    for name in names:
        one = source / name.lstrip("/")
        if one.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(one, into, symlinks=True, dirs_exist_ok=True, ignore=None if source != context else ignored)
        else:
            goal = into / one.name if target.endswith("/") or into.is_dir() else into
            goal.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(one, goal)


def run_in(
    stage: Stage, command: Sequence[str], environment: Mapping[str, str], *, network: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command of the build in the files of a stage, as its user."""
    given = dict(environment)
    lent: list[Path] = []
    if network:
        given |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))}
        given.pop("PIP_FIND_LINKS", None)
        for name in NETWORK:
            goal = stage.root / name.lstrip("/")
            if Path(name).exists():
                if not goal.exists():
                    lent.append(goal)
                goal.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(name, goal)
    words = ["chroot", f"--userspec={stage.user}", str(stage.root), "/usr/bin/env", "-i"]
    words += [f"{name}={value}" for name, value in given.items()]
    try:
        return subprocess.run(
            [*words, "/bin/sh", "-c", f'cd "{stage.folder}" && exec "$@"', "sh", *command],
            check=True,
            text=True,
            stdout=subprocess.PIPE,
        )
    finally:
        for goal in lent:
            goal.unlink(missing_ok=True)


def contained(stage: Stage, arguments: Sequence[str], mounts: Mapping[str, Path]) -> subprocess.CompletedProcess[str]:
    """Run the image: its entry point, its user, its root for reading only, memory as /tmp and as the cache.

    Args:
        stage: the last one.
        arguments: in place of CMD.
        mounts: folders of this machine by their place in the container, writable.
    """
    root = stage.root
    lines = [
        "set -eu",
        f"mount --make-rprivate /; mount --bind {root} {root}; mount -o remount,bind,ro {root}",
        *(f"mount -t tmpfs -o mode=1777 none {root}{place}" for place in ("/tmp", "/var/cache/sketchstream")),
        *(f"mount --bind {folder} {root}{place}" for place, folder in mounts.items()),
        f"mount --rbind /proc {root}/proc; mount --rbind /dev {root}/dev",
        f'cd {root}; exec chroot --userspec={stage.user} {root} /usr/bin/env -i "$@"',
    ]
    words = [f"{name}={value}" for name, value in stage.environment.items()]
    command = [*words, "/bin/sh", "-c", f'cd "{stage.folder}" && exec "$@"', "sh", *stage.entrypoint, *arguments]
    return subprocess.run(
        ["unshare", "--mount", "/bin/sh", "-c", "\n".join(lines), "sh", *command],
        check=False,
        text=True,
        capture_output=True,
    )


def size(root: Path) -> int:
    """Bytes of all files below a folder."""
    said = subprocess.run(["du", "-sxb", root], check=True, capture_output=True, text=True).stdout
    return int(said.split()[0])


def packed_size(root: Path) -> int:
    """Bytes of all files below a folder as registries store them: a tar file, compressed by gzip."""
    command = f"tar -C {root} --one-file-system -cf - . | gzip -6 | wc -c"
    return int(subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout)
