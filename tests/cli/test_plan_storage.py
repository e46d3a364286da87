"""Processes that share a plan: storage without locks or with stale handles, clocks that differ."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from shared_plan import contents, shared  # noqa: E402


def compiled(folder: Path, name: str, source: str) -> Path:
    (folder / f"{name}.c").write_text(source)
    library = folder / f"{name}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / f"{name}.c"], check=True)
    return library


def test_without_locks(octavo, plan, whole, tmp_path):
    """Storage that has no locks, as NFS may have none: none is asked for."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler for the library that takes locks away")
    library = compiled(
        tmp_path,
        "nolocks",
        "#include <errno.h>\n#include <stdlib.h>\n"
        "int flock(int f, int o) { errno = ENOLCK; return -1; }\n"
        "int lockf(int f, int c, long n) { abort(); }\n",
    )
    env = {"LD_PRELOAD": str(library)}
    running = [shared(octavo, rank, 3, env=env) for rank in range(3)]
    assert [one.wait(100) for one in running] == [0, 0, 0]
    assert contents(octavo.folder / "out") == whole


def test_clocks_that_disagree(octavo, plan, whole):
    """Machines whose clocks differ by years: none is compared with another's."""
    faketime = shutil.which("faketime")
    if faketime is None:
        pytest.skip("no faketime (Debian: apt-get install faketime)")
    words = [octavo.path, "quantize", "--plan", "plan.json", "-o", "out", "--world", "3"]
    running = [
        subprocess.Popen(
            [faketime, "-f", shift, *map(str, words), "--rank", str(rank)],
            cwd=octavo.folder,
            env=octavo.environment(),
            stdout=subprocess.DEVNULL,
        )
        for rank, shift in enumerate(["-3y", "+0", "+5y"])
    ]
    assert [one.wait(100) for one in running] == [0, 0, 0]
    assert contents(octavo.folder / "out") == whole


def test_storage_that_says_stale(octavo, plan, whole, tmp_path):
    """NFS, where another machine replaced a file since it was looked up: looking again helps."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler for the library that plays NFS")
    library = compiled(
        tmp_path,
        "stale",
        r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
static _Atomic unsigned calls;
static int stale(const char* path) {
  if (strstr(path, "/octavo-work") == NULL || atomic_fetch_add(&calls, 1) % 3 != 0) return 0;
  errno = ESTALE;
  return 1;
}
#define REAL(type, name) static type* real; if (!real) real = (type*)dlsym(RTLD_NEXT, name)
typedef int Open(const char*, int, ...);
typedef int Stat(const char*, struct stat*);
typedef int Rename(const char*, const char*);
typedef DIR* OpenDir(const char*);
int open(const char* path, int flags, ...) {
  REAL(Open, "open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return stale(path) ? -1 : real(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  REAL(Open, "open64");
  va_list more;
  va_start(more, flags);
  const mode_t mode = va_arg(more, mode_t);
  va_end(more);
  return stale(path) ? -1 : real(path, flags, mode);
}
int stat(const char* path, struct stat* to) {
  REAL(Stat, "stat");
  return stale(path) ? -1 : real(path, to);
}
int lstat(const char* path, struct stat* to) {
  REAL(Stat, "lstat");
  return stale(path) ? -1 : real(path, to);
}
int rename(const char* from, const char* to) {
  REAL(Rename, "rename");
  return stale(from) ? -1 : real(from, to);
}
DIR* opendir(const char* path) {
  REAL(OpenDir, "opendir");
  return stale(path) ? NULL : real(path);
}
""",
    )
    env = {"LD_PRELOAD": str(library)}
    running = [shared(octavo, rank, 3, env=env) for rank in range(3)]
    said = [one.communicate(timeout=100)[1] for one in running]
    assert [one.returncode for one in running] == [0, 0, 0], said
    assert contents(octavo.folder / "out") == whole
    assert not (octavo.folder / "out" / "octavo-work").exists()
