"""The index file: what a wide index took time to compute, beside the database.

It is a cache. A checksum tells whether it is whole, and every code in it names the vector it was made of, so that no
file, however old, damaged or foreign, can make an answer wrong; what it does not know is computed again. It is replaced
in one step, by a file that is whole.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import tempfile
import time
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

_logger = logging.getLogger("memstore.index_file")
_MAGIC: Final = b"\nmemstore index 2\n"
_DIGEST_BYTES: Final = 32
_TRAILER_BYTES: Final = len(_MAGIC) + _DIGEST_BYTES
_READ: Final = 2**20
"""Bytes that are read at once for the checksum."""
_UNFINISHED: Final = ".unfinished"
_FORGOTTEN_AFTER: Final = 3600.0
"""Seconds after which an unfinished file is one whose writer has died."""


class IndexFile:
    """The file that belongs to a database.

    Args:
        database: The database's path.
    """

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + "-index")

    @property
    def size(self) -> int:
        """Bytes on disk."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def load(self) -> Mapping[str, Any] | None:
        """Read the arrays that were saved; None where there is no whole file."""
        try:
            with self.path.open("rb") as file:
                length = max(0, os.fstat(file.fileno()).st_size - _TRAILER_BYTES)
                expected = _MAGIC + _digest(file, length)
                if file.read() != expected:
                    _logger.warning("%s is damaged, or of another version; it is made anew", self.path)
                    return None
                file.seek(0)
                with np.load(file, allow_pickle=False) as arrays:
                    return {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return None

    def save(self, arrays: Mapping[str, Any]) -> bool:
        """Replace the file; where that fails the old one stays, the log says so, and the answer is no."""
        try:
            self._save(arrays)
        except OSError as error:
            _logger.warning("%s could not be written (%s); it is only a cache", self.path, error.strerror)
            return False
        return True

    def _save(self, arrays: Mapping[str, Any]) -> None:
        self._clear()
        descriptor, name = tempfile.mkstemp(_UNFINISHED, self.path.name + ".", self.path.parent)  # made 0600
        try:
            with os.fdopen(descriptor, "w+b") as file:
                np.savez(file, **arrays)
                length = file.seek(0, os.SEEK_END)
                file.seek(0)
                digest = _digest(file, length)
                file.seek(length)
                file.write(_MAGIC + digest)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise

    def _clear(self) -> None:
        """Delete what writers that died have left."""
        for left in self.path.parent.glob(f"{glob.escape(self.path.name)}.*{_UNFINISHED}"):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _FORGOTTEN_AFTER:
                    left.unlink()


def _digest(file: BinaryIO, length: int) -> bytes:
    """Take the checksum of the first bytes of a file, which is read up to there."""
    found = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    while length > 0 and (part := file.read(min(_READ, length))):
        found.update(part)
        length -= len(part)
    return found.digest()
