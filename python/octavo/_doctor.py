"""Backends and libraries on this machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any, NamedTuple

from octavo import _octavo


class Backend(NamedTuple):
    """One implementation of the kernels."""

    name: str
    usable: bool
    """Whether it can run on this machine."""
    reason: str
    """Why it can or cannot."""
    description: str


def backends() -> list[Backend]:
    """Every backend, fastest first. The first usable runs, unless OCTAVO_BACKEND names another."""
    return [Backend(*entry) for entry in _octavo.backends()]


def doctor() -> dict[str, Any]:
    """What octavo found on this machine, as plain data, for display and bug reports."""
    try:
        chosen, problem = _octavo.chosen_backend(), None
    except (RuntimeError, ValueError) as error:
        chosen, problem = None, str(error)
    sockets, nodes, cores, cpus = _octavo.usable_cpus()
    products, why = _octavo.product_threads()
    return {
        "octavo": _octavo.version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": {"name": _octavo.cpu_name(), "features": _octavo.cpu_features()},
        "topology": {"sockets": sockets, "nodes": nodes, "cores": cores, "cpus": cpus},
        "threads": _octavo.available_threads(),
        "product_threads": {"count": products, "reason": why},
        "backend": chosen,
        "backend_problem": problem,
        "backends": [entry._asdict() for entry in backends()],
        "cuda": _octavo.cuda_summary(),
        "environment": {
            name: os.environ.get(name) for name in ("OCTAVO_BACKEND", "OCTAVO_THREADS")
        },
        "libraries": {name: _installed(name) for name in ("numpy", "ml_dtypes", "torch")},
    }


def _installed(package: str) -> str | None:
    """The version of a package, without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
