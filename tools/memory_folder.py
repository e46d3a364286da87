"""Where tests write their files: in memory, where there is room."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

# Tests write many small files, and on a disk wait for it longer than they work.
MEMORY = Path("/dev/shm")
ROOM = 8 << 30  # a container may have 64 MiB there


def folder_for_files() -> tempfile.TemporaryDirectory | None:
    """A folder in memory for what tests write, where there is room for one."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM:
        return None
    return tempfile.TemporaryDirectory(prefix="octavo-tests-", dir=MEMORY)
