"""Files that appear whole or not at all, and their digests."""

import hashlib
import os
from pathlib import Path


def write_atomically(path: Path, content: bytes) -> None:
    """After a crash at any moment the file is either the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def sha256(content: bytes) -> str:
    """The SHA-256 digest, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
