"""One file format for everything that is saved: a zip archive of ``.npy`` arrays (an ordinary ``.npz``)
with one JSON member, checksummed, written durably, and unable to run code when read.

A *tree* is built of dicts with string keys, lists, strings, booleans, numbers, ``None`` and numpy arrays.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import stat
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advmdp._checks import memory
from advmdp.errors import CorruptCheckpointError

_VERSION = 1
_JSON_MEMBER = "tree.json"
_DIGEST_MEMBER = "sha256"
_ARRAY_KEY = "__array__"
#: Bytes of JSON that are read: what it says can take thirty times as much memory, and numbers are kept in arrays.
MOST_JSON = 2**26
#: How the name of a file ends that was being written when the power failed; nobody else's business.
TEMPORARY = ".tmp"


def write(path: str | os.PathLike[str], kind: str, tree: dict[str, Any]) -> None:
    """Write a tree to ``path``; whatever stood there stays intact until the new file is durable.

    A symbolic link stays one: the file that it leads to is replaced.
    """
    target = os.path.realpath(path)
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    replace(target, dumps(kind, tree))


def read(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read a tree of the given kind; anything but an intact file raises CorruptCheckpointError."""
    return loads(read_bytes(path), kind, os.fspath(path))


def read_bytes(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """The bytes of a file, at most so many; by default a third of the memory: what they describe is built beside them.

    CorruptCheckpointError before any is read if there are more.
    """
    most = memory() // 3 if most is None else most
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > most:
            what = f"{status.st_size} bytes long" if stat.S_ISREG(status.st_mode) else "a device or a pipe"
            raise CorruptCheckpointError(f"{os.fspath(path)} is {what}, should be a file of at most {most} bytes")
        return file.read(status.st_size)


def replace(path: str | os.PathLike[str], content: bytes) -> None:
    """Put a file in place of the one at ``path``, in one step, when it is safely on the disk.

    Also in place of a symbolic link: one in a directory that somebody else made must not lead us elsewhere.
    """
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_directory(target.parent)


def dumps(kind: str, tree: dict[str, Any]) -> bytes:
    """A tree as the bytes of a file."""
    arrays: dict[int, tuple[int, NDArray[Any]]] = {}
    document = {"format": "advmdp", "version": _VERSION, "kind": kind, "tree": _pack(tree, arrays)}
    members = {_JSON_MEMBER: json.dumps(document, allow_nan=True).encode()}
    for number, array in arrays.values():
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
        members[f"array_{number}.npy"] = buffer.getvalue()
    members[_DIGEST_MEMBER] = _digest(members)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            # A fixed date: equal content gives equal files.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return file.getvalue()


def loads(content: bytes, kind: str, source: str) -> dict[str, Any]:
    """The tree in the bytes of a file; ``source`` names them in the CorruptCheckpointError if they are not intact."""
    try:
        members = _members(io.BytesIO(content), len(content))
        if members.pop(_DIGEST_MEMBER, b"") != _digest(members):
            raise ValueError("its checksum does not match its content")
        document = json.loads(members.pop(_JSON_MEMBER))
        if document["format"] != "advmdp" or document["version"] != _VERSION:
            raise ValueError(f"format {document['format']!r} version {document['version']!r}")
        found = document["kind"]
        if found == kind:
            tree = _unpack(document["tree"], members)
            if not isinstance(tree, dict):
                raise ValueError("its content is not a mapping")
            return tree
    except MemoryError:
        raise
    except Exception as error:
        raise CorruptCheckpointError(
            f"{source}: not an intact advmdp file ({error}); restore it from a copy, or start anew"
        ) from error
    raise CorruptCheckpointError(f"{source}: holds a {found!r}, should hold a {kind!r}")


def _digest(members: dict[str, bytes]) -> bytes:
    state = hashlib.sha256()
    for name, content in members.items():
        state.update(f"{name}:{len(content)};".encode())
        state.update(content)
    return state.hexdigest().encode()


def _members(file: Any, size: int) -> dict[str, bytes]:
    """The contents by name.  Members are stored, not compressed, so none can be larger than the file."""
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("it has compressed members, which this library never writes")
        if sum(entry.file_size for entry in entries) > size:
            raise ValueError("its members claim to be larger than the file")
        if any(entry.file_size > MOST_JSON for entry in entries if entry.filename == _JSON_MEMBER):
            raise ValueError(f"it has more than {MOST_JSON} bytes of JSON")
        return {entry.filename: archive.read(entry) for entry in entries}


def array(content: bytes) -> NDArray[Any]:
    """The array, of any shape, in the bytes of a ``.npy`` file that holds plain numbers and neither more nor less."""
    buffer = io.BytesIO(content)
    version = np.lib.format.read_magic(buffer)
    if version != (1, 0):
        raise ValueError(f"array of npy version {version}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(buffer)
    data = memoryview(content)[buffer.tell() :]
    if dtype.kind not in "fiub":
        raise ValueError(f"array of type {dtype}")
    # Compared before anything is allocated: a small file cannot ask for a large array.
    count = 1
    for length in shape:
        count *= int(length)
    if any(length < 0 for length in shape) or count * dtype.itemsize != len(data):
        raise ValueError(f"array of shape {shape} in {len(data)} bytes")
    return np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C").copy()


def _pack(node: Any, arrays: dict[int, tuple[int, NDArray[Any]]]) -> Any:
    if isinstance(node, np.ndarray):
        if node.dtype.kind not in "fiub":
            raise TypeError(f"cannot save an array of type {node.dtype}")
        # Shared arrays (time-homogeneous worlds) are written once.
        return {_ARRAY_KEY: arrays.setdefault(id(node), (len(arrays), node))[0]}
    if isinstance(node, dict):
        if any(not isinstance(key, str) or key == _ARRAY_KEY for key in node):
            raise TypeError(f"cannot save a mapping with keys {list(node)}")
        return {key: _pack(value, arrays) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_pack(value, arrays) for value in node]
    if isinstance(node, (np.floating, np.integer, np.bool_)):
        return node.item()
    if node is None or isinstance(node, (str, bool, int, float)):
        return node
    raise TypeError(f"cannot save a {type(node).__name__}")


def _unpack(node: Any, members: dict[str, bytes], built: dict[int, Any] | None = None) -> Any:
    built = {} if built is None else built
    if isinstance(node, dict):
        if set(node) == {_ARRAY_KEY}:
            number = node[_ARRAY_KEY]
            if number not in built:
                built[number] = array(members[f"array_{number}.npy"])
            return built[number]
        return {key: _unpack(value, members, built) for key, value in node.items()}
    if isinstance(node, list):
        return [_unpack(value, members, built) for value in node]
    return node


def _mode(target: Path) -> int:
    """The permissions of the file that is replaced, or those of any new file."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_directory(directory: Path) -> None:
    """Make the rename itself durable (not possible, nor needed, on every platform)."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
