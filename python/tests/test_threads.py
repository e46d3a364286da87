"""The GIL is released, threads do not change results, and a forked child works."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import threading
import time

import numpy as np
import pytest

import octavo as ov


@pytest.mark.parametrize("function", ["encode", "decode"])
def test_gil_is_released(function, monkeypatch):
    monkeypatch.setenv("OCTAVO_BACKEND", "reference")  # slow on purpose
    x = np.random.default_rng(0).normal(size=1 << 22).astype(np.float32)
    codes = ov.encode(x, "e4m3fn")
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks.append(time.perf_counter())

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        begin = time.perf_counter()
        while time.perf_counter() - begin < 0.2:
            start = time.perf_counter()
            if function == "encode":
                ov.encode(x, "e4m3fn", threads=1)
            else:
                ov.decode(codes, threads=1)
            end = time.perf_counter()
    finally:
        stop.set()
        ticker.join()
    # The other thread ran while the last call did: with the GIL held it could not have.
    during = [t for t in ticks if start + 0.1 * (end - start) < t < end - 0.1 * (end - start)]
    assert end - start > 0.005 and during


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64])
def test_threads_do_not_change_results(threads):
    x = np.random.default_rng(0).normal(size=1_000_003).astype(np.float32) * 100
    for kwargs in ({}, {"rounding": "stochastic", "seed": 9}, {"overflow": "ieee"}):
        one, one_counts = ov.encode(x, "e4m3fn", threads=1, counts=True, **kwargs)
        many, many_counts = ov.encode(x, "e4m3fn", threads=threads, counts=True, **kwargs)
        np.testing.assert_array_equal(one.view(np.uint8), many.view(np.uint8))
        assert one_counts == many_counts
    np.testing.assert_array_equal(ov.decode(one, threads=1), ov.decode(one, threads=threads))


def test_calls_from_many_threads():
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=rng.integers(1, 200_000)).astype(np.float32) for _ in range(32)]
    expected = [ov.encode(x, "e5m2", threads=1).view(np.uint8) for x in inputs]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda x: ov.encode(x, "e5m2").view(np.uint8), inputs))
    for mine, theirs in zip(results, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def _child(format: ov.Format, x: np.ndarray) -> bytes:
    return ov.encode(x, format, threads=2).tobytes()


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes(method):
    x = np.random.default_rng(0).normal(size=1 << 20).astype(np.float32)
    f = ov.format("e4m3fn")
    expected = ov.encode(
        x, f, threads=2
    ).tobytes()  # the parent's pool is running when the child begins
    with multiprocessing.get_context(method).Pool(2) as pool:
        results = [pool.apply_async(_child, (f, x)) for _ in range(4)]
        assert all(result.get(timeout=60) == expected for result in results)
    assert ov.encode(x, f, threads=2).tobytes() == expected
