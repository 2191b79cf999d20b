"""One directory holds one experiment, and stays readable whatever happens to those who write it.

    spec.toml               the spec, as it was given
    manifest.json           versions, machine, timings and the state of every cell: a summary
    cells/<id>.parquet      the rows of a run
    cells/<id>.npz          its policies, and the record that makes it count: what was run, and the digest of the rows
    checkpoints/<id>.npz    where a run that is not finished stands (and <id>.previous.npz, in case that one is damaged)
    .lock                   held by the process that writes

Every file is replaced in one step.  A cell counts when its ``.npz``, which is written last and has a checksum, vouches
for its rows; the manifest can be lost without harm.  Reading needs no lock.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from advmdp import storage
from advmdp.errors import CorruptCheckpointError, InvalidSpecError, StoreBusyError
from advmdp.experiments.contents import (
    MOST_ROW_BYTES,
    Final,
    check_manifest,
    check_record,
    json_of,
    read_rows,
    timing_of,
)
from advmdp.experiments.spec import MOST_SPEC, Cell, Spec

SPEC, MANIFEST, CELLS, CHECKPOINTS, LOCK = "spec.toml", "manifest.json", "cells", "checkpoints", ".lock"
#: Seconds between two writes of the manifest while cells come in.
MANIFEST_INTERVAL = 1.0
PACKAGES = ("advmdp", "numpy", "scipy", "numba", "pandas", "pyarrow", "ray")


class Store:
    """The results in a directory; usable while somebody writes them."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)
        if not (self.directory / SPEC).is_file():
            raise InvalidSpecError(f"{self.directory} holds no experiment: it has no {SPEC}")

    @property
    def spec_text(self) -> str:
        """The spec as it was given."""
        try:
            return storage.read_bytes(self.directory / SPEC, MOST_SPEC).decode()
        except UnicodeDecodeError as error:
            raise CorruptCheckpointError(f"{self.directory / SPEC} is not text any more: {error}") from error

    @property
    def spec(self) -> Spec:
        """The spec, validated; CorruptCheckpointError if it is not the one that the manifest vouches for.

        Reading imports nothing: names that are not known here are those that the manifest remembers.
        """
        for attempt in range(2):  # between the two reads a writer may have put both in place
            text, known = self.spec_text, _read_manifest(self.directory)
            if known is None or _sha256(text) in known["spec_sha256"]:
                break
            if attempt:
                raise CorruptCheckpointError(
                    f"{self.directory / SPEC} was changed after it was written (its checksum differs from the "
                    f"manifest's); to go on, give the spec: `advmdp run SPEC --out {self.directory}`"
                )
        return Spec(text, str(self.directory / SPEC), _signatures(known))

    @property
    def manifest(self) -> dict[str, Any]:
        """The summary: ``cells`` maps ids to ``state`` (pending, running, done, failed), timings and errors."""
        manifest = _read_manifest(self.directory)
        if manifest is None:
            manifest = self._rebuilt_manifest()
        running = [entry for entry in manifest["cells"].values() if entry["state"] == "running"]
        if running and not _is_locked(self.directory):  # the writer was killed
            for entry in running:
                entry["state"] = "pending"
        return manifest

    def cells(self) -> tuple[Cell, ...]:
        """The cells of the spec."""
        return self.spec.cells

    def is_done(self, cell: Cell) -> bool:
        """Whether a cell has a result (that may be damaged: reading it tells)."""
        return self._record_path(cell.id).exists()

    def frame(self, cell: Cell) -> pd.DataFrame:
        """The rows of one finished cell; CorruptCheckpointError if they are not what was written."""
        record, final = self._record(cell)
        path = self.directory / CELLS / f"{cell.id}.parquet"
        try:
            content = storage.read_bytes(path, MOST_ROW_BYTES)
            if hashlib.sha256(content).hexdigest() != record["rows_sha256"]:
                raise ValueError("its checksum differs")
            return read_rows(content, cell, len(final.policy))
        except FileNotFoundError as error:
            raise CorruptCheckpointError(f"{path} is missing; {self._cure()}") from error
        except (ValueError, OSError, KeyError) as error:  # Arrow has all of them
            raise CorruptCheckpointError(f"{path} is not what was written: {error}; {self._cure()}") from error

    def final(self, cell_id: str) -> Final:
        """The policies and occupancy measures that a finished cell ends with."""
        by_id = {cell.id: cell for cell in self.cells()}
        if cell_id not in by_id or not self.is_done(by_id[cell_id]):
            raise InvalidSpecError(f"{self.directory} has no finished cell {cell_id!r}")
        return self._record(by_id[cell_id])[1]

    def timing(self, cell: Cell) -> dict[str, Any]:
        """Seconds (by the clock and of the processor), episodes per second, attempts and version of a finished cell."""
        return timing_of(self._record(cell)[0])

    def load(self) -> pd.DataFrame:
        """The rows of all finished cells as one tidy frame; see :func:`load`."""
        spec = self.spec
        done = [cell for cell in spec.cells if self.is_done(cell)]
        if not done:
            columns = ["cell", "world", "adversary", "learner", "seed", "episode", "loss", "cumulative_loss"]
            return pd.DataFrame(columns=[*columns, "observed_loss", "regret", "bound"])
        frames = [self.frame(cell) for cell in done]
        keys = pd.DataFrame(
            [{"cell": cell.id, **spec.labels(cell), "seed": cell.seed, **spec.varying(cell)} for cell in done]
        )
        repeated = keys.loc[np.repeat(np.arange(len(done)), [len(frame) for frame in frames])]
        return pd.concat([repeated.reset_index(drop=True), pd.concat(frames, ignore_index=True)], axis=1)

    # ------------------------------------------------------------------------------ inside

    def _record_path(self, cell_id: str) -> Path:
        return self.directory / CELLS / f"{cell_id}.npz"

    def _record(self, cell: Cell) -> tuple[dict[str, Any], Final]:
        path = self._record_path(cell.id)
        try:
            tree = storage.read(path, "cell")
        except CorruptCheckpointError as error:
            raise CorruptCheckpointError(f"{error}; {self._cure()}") from error
        if not _is(tree.get("definition"), cell.definition):
            raise CorruptCheckpointError(
                f"{path} is the result of {tree.get('definition')}, should be that of {cell.definition}; {self._cure()}"
            )
        try:
            return tree, check_record(tree)
        except (ValueError, KeyError) as error:
            raise CorruptCheckpointError(
                f"{path} does not describe a finished cell: {error}; {self._cure()}"
            ) from error

    def _cure(self) -> str:
        return f"`advmdp resume {self.directory}` computes it again"

    def _entry(self, spec: Spec, cell: Cell) -> dict[str, Any]:
        """The line of a cell in the manifest, from its files."""
        entry: dict[str, Any] = {
            **spec.labels(cell),
            "seed": cell.seed,
            "episodes": cell.episodes,
            "state": "pending",
            "attempts": 0,
            "seconds": None,
            "processor_seconds": None,
            "episodes_per_second": None,
            "error": None,
        }
        if self.is_done(cell):
            with suppress(CorruptCheckpointError):
                entry |= {"state": "done", **self.timing(cell)}
        return entry

    def _rebuilt_manifest(self) -> dict[str, Any]:
        """The summary as far as the other files tell it."""
        spec = self.spec
        return {
            "format": 1,
            "title": spec.title,
            "seeds": list(spec.seeds),
            "spec_sha256": [_sha256(self.spec_text)],
            "signatures": spec.signatures,
            "cells": {cell.id: self._entry(spec, cell) for cell in spec.cells},
            "versions": None,
            "git": None,
            "machine": None,
            "engine": None,
            "history": [],
        }


def load(directory: str | os.PathLike[str]) -> pd.DataFrame:
    """The finished runs in a directory as one tidy frame.

    Columns: ``cell, world, adversary, learner, seed``; then ``episodes`` and those options that vary
    (``learner.radius_scale``); then those of a run (``episode, loss, cumulative_loss, observed_loss, regret, bound``)
    and of the measures that the spec asks for.
    """
    return Store(directory).load()


class WritableStore(Store):
    """A directory that this process, and no other, writes to; a context manager that holds the lock.

    With a ``spec``, the directory is made, or must hold an experiment of which the spec is a continuation (every cell
    that is there is in the spec) or a part with fewer seeds.  Without, the directory's own spec is used.
    """

    def __init__(self, directory: str | os.PathLike[str], spec: Spec | None = None) -> None:
        self.directory = Path(directory)
        self._given = spec
        #: Told about what was found damaged, and mended.
        self.remarks: list[str] = []
        self._manifest_written = 0.0

    def __enter__(self) -> Self:
        if self._given is None:
            super().__init__(self.directory)
        else:
            _make_directory(self.directory)
        self._lock = _lock(self.directory)
        try:
            self._open()
        except BaseException:
            self._lock.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for entry in self._manifest["cells"].values():
                if entry["state"] == "running":
                    entry["state"] = "pending"
            with suppress(OSError):  # a summary: what counts is in the cells
                self.write_manifest(force=True)
        finally:
            self._lock.close()

    def _open(self) -> None:
        for folder in (self.directory, self.directory / CELLS, self.directory / CHECKPOINTS):
            folder.mkdir(exist_ok=True)
            # In the directory itself somebody may be writing a report, which needs no lock.
            names = (SPEC, MANIFEST) if folder == self.directory else ("",)
            for name in names:
                for left_over in folder.glob(f".{name}*{storage.TEMPORARY}"):
                    left_over.unlink(missing_ok=True)
        known = _read_manifest(self.directory)
        if known is None and (self.directory / MANIFEST).exists():
            self.remarks.append(f"{self.directory / MANIFEST} was damaged; it is made anew from the cells")
        self._spec = spec = self._agreed_spec(known)
        fresh = self._rebuilt_manifest()
        for cell in spec.cells:
            if self.is_done(cell):
                self._verify(cell)
            if self.is_done(cell):  # a kill may have come before its checkpoints were dropped
                self._drop_checkpoints(cell)
            fresh["cells"][cell.id] = self._merged(spec, cell, known)
        environment = _environment()
        history = [] if known is None else list(known.get("history", []))
        if known is not None and known.get("versions"):
            earlier = {key: known.get(key) for key in environment}
            if earlier != environment and earlier not in history:
                history.append(earlier)
        created = _now() if known is None else known.get("created", _now())
        engine = None if known is None else known.get("engine")
        self._manifest = {**fresh, **environment, "engine": engine, "created": created, "history": history}
        others = Counter(entry.get("version") for entry in fresh["cells"].values() if entry["state"] == "done")
        for found, count in others.items():
            if found != environment["versions"]["advmdp"]:
                self.remarks.append(f"{count} cells are there from advmdp {found}; they are kept as they are")
        self.write_manifest(force=True)

    def _agreed_spec(self, known: dict[str, Any] | None) -> Spec:
        """The spec to go by; it must not contradict what is there."""
        path, given = self.directory / SPEC, self._given
        if given is None or is_subset(self.directory, given, self.remarks):
            return Spec(super().spec.text, str(path))  # whose modules are imported: cells are to be computed
        content = given.text.encode()
        if not path.exists() or path.stat().st_size != len(content) or path.read_bytes() != content:
            if known is not None:  # so that a kill between the two writes leaves a pair that agrees
                self._manifest = {**known, "spec_sha256": [*known["spec_sha256"], _sha256(given.text)]}
                self.write_manifest(force=True)
            storage.replace(path, content)
        return given

    @property
    def spec(self) -> Spec:
        """The spec, validated."""
        return self._spec

    def wanted(self) -> tuple[Cell, ...]:
        """The cells of the spec that was given, which may have fewer seeds than the directory."""
        return self._spec.cells if self._given is None else self._given.cells

    def _verify(self, cell: Cell) -> None:
        """Put a damaged result aside, so that it is computed again."""
        try:
            self.frame(cell)
        except CorruptCheckpointError as error:
            self.remarks.append(str(error))
            for suffix in (".npz", ".parquet"):
                path = self.directory / CELLS / f"{cell.id}{suffix}"
                if path.exists():
                    os.replace(path, path.with_name(path.name + ".damaged"))

    def _merged(self, spec: Spec, cell: Cell, known: dict[str, Any] | None) -> dict[str, Any]:
        entry = self._entry(spec, cell)
        before = {} if known is None else known["cells"].get(cell.id, {})
        if entry["state"] == "pending" and before:
            failed = before["state"] == "failed"
            entry |= {"state": "failed" if failed else "pending"} | {key: before[key] for key in ("attempts", "error")}
        return entry

    # ------------------------------------------------------------------------------- writing

    @property
    def manifest(self) -> dict[str, Any]:
        """The summary, as this process knows it."""
        return self._manifest

    def note(self, cell: Cell, **changes: Any) -> None:
        """Change the line of a cell in the manifest."""
        self._manifest["cells"][cell.id].update(changes)

    def write_manifest(self, force: bool = False) -> None:
        """Write the manifest, unless that was done a moment ago."""
        if force or time.monotonic() - self._manifest_written >= MANIFEST_INTERVAL:
            self._manifest["updated"] = _now()
            content = {key: value for key, value in self._manifest.items() if key != "checksum"}
            self._manifest["checksum"] = _sha256(_plain_json(content))
            text = json.dumps(self._manifest, indent=1) + "\n"
            storage.replace(self.directory / MANIFEST, text.encode())
            self._manifest_written = time.monotonic()

    def write_result(self, cell: Cell, result: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Keep the result of a cell: its rows, then the record that vouches for them; then drop its checkpoints."""
        table = pa.table(dict(result["columns"]))
        table = table.replace_schema_metadata({"advmdp": cell.definition})
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        content = buffer.getvalue()
        storage.replace(self.directory / CELLS / f"{cell.id}.parquet", content)
        tables = {name: result[name] for name in Final.__dataclass_fields__}
        record = {
            "definition": cell.definition,
            "rows_sha256": hashlib.sha256(content).hexdigest(),
            "timing": dict(timing),
            **tables,
        }
        storage.replace(self._record_path(cell.id), storage.dumps("cell", record))
        self.note(cell, state="done", error=None, **timing)
        self._drop_checkpoints(cell)

    def _drop_checkpoints(self, cell: Cell) -> None:
        for path in self._checkpoint_paths(cell):
            path.unlink(missing_ok=True)

    def _checkpoint_paths(self, cell: Cell) -> tuple[Path, Path]:
        folder = self.directory / CHECKPOINTS
        return folder / f"{cell.id}.npz", folder / f"{cell.id}.previous.npz"

    def write_checkpoint(self, cell: Cell, content: bytes) -> None:
        """Keep where a run stands; the checkpoint before it is kept as well."""
        newest, previous = self._checkpoint_paths(cell)
        if newest.exists():
            os.replace(newest, previous)
        storage.replace(newest, content)

    def read_checkpoint(self, cell: Cell) -> bytes | None:
        """The newest intact checkpoint of a cell, if there is one."""
        for path in self._checkpoint_paths(cell):
            if path.exists():
                try:
                    content = storage.read_bytes(path)
                    tree = storage.loads(content, "checkpoint", str(path))
                except CorruptCheckpointError as error:
                    self.remarks.append(str(error))
                    continue
                if _is(tree.get("fingerprint"), checkpoint_fingerprint(cell)):
                    return content
                self.remarks.append(f"{path} was written by other code of advmdp; the cell starts anew")
        return None


class ContradictionError(InvalidSpecError):
    """A spec that is not a continuation of what a directory holds."""

    def __init__(self, directory: Path, difference: str) -> None:
        super().__init__(
            f"{directory} holds another experiment: {difference}. Results are never overwritten: give another --out, "
            "or put back what is missing"
        )


def is_subset(directory: Path, given: Spec, remarks: list[str]) -> bool:
    """Whether a spec is the experiment of a directory with fewer seeds; ContradictionError if it is another one."""
    path, known = directory / SPEC, _read_manifest(directory)
    there = [] if known is None else list(known["cells"])
    readable = False
    if path.exists():
        try:
            old = Spec(Store(directory).spec_text, str(path), _signatures(known))
        except (InvalidSpecError, CorruptCheckpointError) as error:
            remarks.append(f"{path} was damaged ({error}); it is replaced by the spec that was given")
        else:
            readable = True
            there = [cell.id for cell in old.cells]
            for key in ("measures", "comparators"):
                before, after = list(getattr(old, key)), list(getattr(given, key))
                if before != after:
                    raise ContradictionError(directory, f"{key} were {before}, the spec has {after}")
    now = [cell.id for cell in given.cells]
    missing = sorted(set(there).difference(now), key=there.index)
    if not missing:
        return False
    if readable and set(now) <= set(there) and _without_seeds(there) == _without_seeds(now):
        return True
    raise ContradictionError(directory, _what_is_gone(missing, given))


def _without_seeds(cell_ids: list[str]) -> set[str]:
    return {cell_id.rpartition("__")[0] for cell_id in cell_ids}


def checkpoint_fingerprint(cell: Cell) -> str:
    """What a checkpoint belongs to: the cell, and the code whose state it is; another may go on differently."""
    return f"{cell.fingerprint} {_code_digest()}"


@cache
def _code_digest() -> str:
    """Of the modules of this library, as they lie here: a checkout has one version and many contents."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for module in sorted(root.rglob("*.py")):
        digest.update(f"{module.relative_to(root)} {hashlib.sha256(module.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _what_is_gone(missing: list[str], spec: Spec) -> str:
    """In which way cells that are there are not in the spec."""
    parts = [cell_id.split("__") for cell_id in missing]
    known = [cell.id.split("__") for cell in spec.cells]
    for position, key in enumerate(("worlds", "adversaries", "learners", "episodes", "seeds")):
        here = dict.fromkeys(part[position] for part in known)
        gone = [value for value in dict.fromkeys(part[position] for part in parts) if value not in here]
        if gone:
            return f"{key} had {', '.join(gone)}, the spec has {', '.join(here)}"
    return f"the spec has no cell {missing[0]}"


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = sorted(path.name for path in directory.iterdir())
    except OSError as error:
        raise InvalidSpecError(f"{directory} cannot be made: {error}") from error
    ours = {SPEC, MANIFEST, CELLS, CHECKPOINTS, LOCK}
    strange = [name for name in found if name not in ours and not name.endswith(storage.TEMPORARY)]
    if strange and SPEC not in found:
        raise InvalidSpecError(f"{directory} is not empty ({strange[0]}) and holds no experiment; give another --out")


def _lock(directory: Path) -> io.TextIOWrapper:
    """The lock file, locked; the system frees it when its process ends, however it ends."""
    file = open(directory / LOCK, "a+", encoding="utf-8")  # noqa: SIM115 (it stays open)
    for attempt in range(5):  # a reader that asks whether it is locked holds it for a moment
        try:
            _acquire(file)
            break
        except OSError:
            if attempt < 4:
                time.sleep(0.05)
                continue
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise StoreBusyError(f"{directory} is being written by {holder}; wait for it, or stop it") from None
    file.seek(0)
    file.truncate()
    file.write(f"process {os.getpid()} on {platform.node()}\n")
    file.flush()
    return file


def _acquire(file: io.TextIOWrapper, shared: bool = False) -> None:
    """Lock an open file, or raise OSError; closing it frees the lock."""
    if sys.platform == "win32":  # where locked bytes cannot be read, so one far behind the text is locked
        import msvcrt

        os.lseek(file.fileno(), 2**30, os.SEEK_SET)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def _is_locked(directory: Path) -> bool:
    try:
        with open(directory / LOCK, encoding="utf-8") as file:
            _acquire(file, shared=True)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest, or None if it is missing or damaged."""
    try:
        manifest = json_of(storage.read_bytes(directory / MANIFEST, storage.MOST_JSON))
        checksum = manifest.pop("checksum")
        check_manifest(manifest)
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return cast("dict[str, Any]", manifest) if checksum == _sha256(_plain_json(manifest)) else None


def _signatures(manifest: dict[str, Any] | None) -> dict[str, Any]:
    return {} if manifest is None else manifest.get("signatures", {})


def _is(found: Any, text: str) -> bool:
    """Whether something out of a file, an array perhaps, is this text."""
    return isinstance(found, str) and found == text


def _plain_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        if package != "advmdp":
            return None
        from advmdp import __version__

        return __version__


def _environment() -> dict[str, Any]:
    """Versions, the git revision of this library if it runs from a checkout, and the machine."""
    return {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "git": _git_revision(),
        "machine": {"system": platform.platform(), "processor": _processor(), "cpus": os.cpu_count()},
    }


def _git_revision() -> dict[str, Any] | None:
    folder = str(Path(__file__).parent)

    def git(*arguments: str) -> str:
        command = ["git", "-C", folder, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        # A checkout of this library, not some repository whose folder holds an environment with it.
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return {"revision": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain", "--", "."))}
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    if sys.platform == "linux":
        with suppress(OSError):
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
