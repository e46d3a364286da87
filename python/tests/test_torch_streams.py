"""Memory for results comes from the stream that writes it: the choice, without a device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")
from octavo._arrays import torch_arrays  # noqa: E402
from octavo._arrays.torch_arrays import TORCH  # noqa: E402

CURRENT = 80


class Cuda:
    """torch.cuda of a machine with a device: memory is the host's, and `seen` has the stream that
    was current when it was made."""

    def __init__(self):
        self.current, self.seen, self.entered = CURRENT, [], 0

    def current_stream(self, device):
        assert device == 0
        return SimpleNamespace(cuda_stream=self.current)

    def default_stream(self, device):
        assert device == 0
        return SimpleNamespace(cuda_stream=0)

    def ExternalStream(self, address, device):  # noqa: N802
        # torch makes a new stream for 0, and has ids of its own for odd numbers.
        assert device == 0 and address != 0 and address % 2 == 0
        return SimpleNamespace(cuda_stream=address)

    def stream(self, given):
        cuda = self

        class Context:
            def __enter__(self):
                cuda.entered += 1
                self.before, cuda.current = cuda.current, given.cuda_stream

            def __exit__(self, *error):
                cuda.current = self.before

        return Context()


@pytest.fixture
def cuda(monkeypatch):
    cuda = Cuda()
    for name in ("empty", "empty_like"):
        made = getattr(torch, name)

        def make(*args, _made=made, **options):
            cuda.seen.append(cuda.current)
            return _made(*args, **options)

        monkeypatch.setattr(torch, name, make)
    for name in ("current_stream", "default_stream", "ExternalStream", "stream"):
        monkeypatch.setattr(torch.cuda, name, getattr(cuda, name))
    monkeypatch.setattr(torch_arrays, "_device", lambda index: "cpu")
    return cuda


@pytest.mark.parametrize(
    ("given", "expected"), [(CURRENT, CURRENT), (96, 96), (0, 0), (1, 0), (2, 2)]
)
def test_memory_is_of_the_stream_that_writes_it(cuda, given, expected):
    TORCH.empty("float32", (4,), 0, given)
    address, owner = TORCH.allocator(0, given)(16)
    assert address == owner.data_ptr() and owner.nbytes == 16
    owner = TORCH._array(torch.ones(3, 2).t())
    owner.cuda, owner.stream = 0, given
    TORCH.new("float32", (2, 3), owner, "test")
    assert TORCH.new("float32", (2, 3), owner, "test", like=owner).strides == owner.strides
    assert cuda.seen == [expected] * 4
    assert cuda.current == CURRENT
    assert cuda.entered == (0 if given == CURRENT else 4)  # the current one costs nothing


def test_without_a_stream_it_is_the_current_one(cuda):
    TORCH.allocator(0)(16)
    assert cuda.seen == [CURRENT] and cuda.entered == 0


def test_the_stream_comes_back_after_an_error(cuda):
    with pytest.raises(RuntimeError):
        TORCH.empty("float32", (-4,), 0, 96)
    assert cuda.current == CURRENT


def test_the_cpu_has_no_streams(cuda):
    assert TORCH.allocator(-1, 96) is None
    TORCH.new("float32", (2,), TORCH.describe(torch.ones(2), "test", stream=96), "test")
    assert TORCH.describe(torch.ones(2)._neg_view(), "test", stream=96).obj[0] == -1
    assert cuda.entered == 0
