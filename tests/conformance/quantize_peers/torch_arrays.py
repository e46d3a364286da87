"""Arrays to torch and codes back."""

import numpy as np

from quantize_peers.numbers import BF16


def load_torch():
    import torch

    torch.set_num_threads(1)
    return torch


def to_torch(x):
    torch = load_torch()
    if x.dtype == BF16:
        return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(x.copy())


def unpacked(packed):
    packed = packed.numpy()
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], -1)


def bytes_of(tensor):
    return tensor.contiguous().view(load_torch().uint8).numpy()
