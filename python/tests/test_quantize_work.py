"""How the work is done: without the GIL, with any number of threads, in little memory; and what
survives a copy, a pickle and another process."""

from __future__ import annotations

import concurrent.futures
import copy
import multiprocessing
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import octavo as ov

PRESETS = ov.preset_names()


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def parts(q: ov.QuantizedTensor) -> list[bytes | None]:
    arrays = (q.codes, q.scales, q.tensor_scale, q.columnwise_codes, q.columnwise_scales)
    return [None if array is None else array.tobytes() for array in arrays]


@pytest.mark.parametrize("function", ["quantize", "dequantize", "requantize", "amax", "fp8"])
def test_gil_is_released(function, monkeypatch):
    monkeypatch.setenv("OCTAVO_BACKEND", "reference")  # slow on purpose
    x = values(1 << 11, 1 << 10)
    q = ov.quantize(x, "mxfp8")
    work = {
        "quantize": lambda: ov.quantize(x, "mxfp8", threads=1),
        "dequantize": lambda: ov.dequantize(q, threads=1),
        "requantize": lambda: ov.requantize(q, "fp8", threads=1),
        "amax": lambda: ov.amax(np.broadcast_to(x, (16, *x.shape)), threads=1),
        "fp8": lambda: ov.fp8_quantize(x, threads=1),
    }[function]
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.wait(0.0005):
            ticks.append(time.perf_counter())

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        begin, ran_throughout = time.perf_counter(), False
        while not ran_throughout and time.perf_counter() - begin < 10:
            start = time.perf_counter()
            work()
            took = time.perf_counter() - start
            during = [(t - start) / took for t in ticks if 0.1 < (t - start) / took < 0.9]
            ran_throughout = len(during) > 2 and min(during) < 0.4 and max(during) > 0.6
    finally:
        stop.set()
        ticker.join()
    # The other thread ran all through one long call. With the GIL held it could get in between two
    # lines of Python at most.
    assert took > 0.01 and ran_throughout


@pytest.mark.parametrize("name", PRESETS)
def test_threads_do_not_change_a_byte(name):
    x = values(700, 333)
    rounding = {"rounding": "stochastic", "seed": 5}
    for scaling in (
        ov.preset(name).replace(columnwise=True),
        ov.preset(name).replace(**rounding),
        ov.preset(name).replace(policy="mse"),
    ):
        one, one_counts = ov.quantize(x, scaling, threads=1, counts=True)
        for threads in (0, 2, 3, 16):
            many, many_counts = ov.quantize(x, scaling, threads=threads, counts=True)
            assert parts(many) == parts(one) and many_counts == one_counts
            assert (ov.dequantize(many, threads=threads) == ov.dequantize(one, threads=1)).all()


def test_calls_from_many_threads():
    inputs = [values(rows, 321) for rows in range(1, 200, 7)]
    expected = [parts(ov.quantize(x, "nvfp4", threads=1)) for x in inputs]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda x: parts(ov.quantize(x, "nvfp4")), inputs)) == expected


MEASURE = """
import numpy as np
import octavo as ov

def peak():  # of this program; what getrusage says begins with what its parent had
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

scaling = {scaling}
ov.quantize(np.ones((256, 1024), np.float32), scaling, threads=2)  # threads and code are there
x = np.ones((1 << 13, 1 << 13), np.float32)                        # 256 MiB, all of it touched
before = peak()
q = ov.quantize(x, scaling, threads=2)
print(peak() - before, q.nbytes)
"""


@pytest.mark.parametrize(
    "scaling",
    [
        "'fp8'",
        "'fp8-channel'",
        "'mxfp8'",
        "ov.preset('fp8-block').replace(columnwise=True)",
        "ov.preset('nvfp4').replace(columnwise=True)",
        "ov.preset('mxfp8').replace(policy='mse')",
    ],
)
def test_memory_is_the_result_and_a_little_scratch(scaling):
    """256 MiB in; beside the result, 1 MiB a thread and the rounding of the result's parts up to
    huge pages of 2 MiB: four parts at most. A copy of the input in float32 would be 256 MiB."""
    setup = f"import sys; sys.path[:0] = {sys.path!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", setup + MEASURE.format(scaling=scaling)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    grown, nbytes = map(int, done.stdout.split())
    assert nbytes <= grown + (1 << 20)  # or else nothing was measured
    assert grown <= nbytes + 2 * (1 << 20) + 4 * (2 << 20)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("protocol", [2, 5])
def test_pickle(name, library, protocol, torch):
    x = values(20, 50)
    x = x if library == "numpy" else torch.from_numpy(x).bfloat16()
    q = ov.quantize(x, ov.preset(name).replace(columnwise=True))
    again = pickle.loads(pickle.dumps(q, protocol))
    assert repr(again) == repr(q) and again.scaling == q.scaling and again.dtype == q.dtype
    assert type(again.codes) is type(q.codes) and again.codes.dtype == q.codes.dtype
    assert again.__reduce__()[1][-1][0].tobytes() == q.__reduce__()[1][-1][0].tobytes()
    assert (ov.dequantize(again) == ov.dequantize(q)).all()


def test_pickle_that_does_not_fit():
    restore, (shape, source, scaling, family, memory) = ov.quantize(
        values(4, 32), "mxfp8"
    ).__reduce__()
    for wrong in ((8, 32), (4, 64)):
        with pytest.raises(ValueError, match="got codes that do not fit"):
            restore(wrong, source, scaling, family, memory)
    with pytest.raises(ValueError, match="got tensor_scale that do not fit"):
        restore(
            (4, 32),
            source,
            ov.preset("nvfp4"),
            family,
            [memory[0][:64], memory[0][:8]] + [None] * 4,
        )


def test_copies():
    q = ov.quantize(values(4, 64), "nvfp4")
    shared, own = copy.copy(q), copy.deepcopy(q)
    assert parts(shared) == parts(own) == parts(q)
    q.codes[0, 0] ^= 1
    assert parts(shared) == parts(q) != parts(own)


def _child(scaling: ov.Scaling, x: np.ndarray) -> ov.QuantizedTensor:
    return ov.quantize(x, scaling, threads=2)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes(method):
    x, scaling = values(512, 512), ov.preset("nvfp4").replace(columnwise=True)
    expected = ov.quantize(x, scaling, threads=2)  # the parent's pool runs when the child begins
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert parts(pool.apply_async(_child, (scaling, x)).get(timeout=60)) == parts(expected)
