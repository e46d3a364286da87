"""Statistics of a torch model's activations, as `octavo calibrate` writes them.

For models that octavo does not run: any torch module whose Linear layers see what they should when
`run` is called. From a program of yours:

    statistics = Statistics(model, hessians="block16")
    with statistics.watching(), torch.no_grad():
        for ids in batches:
            model(ids)
    statistics.save("stats.safetensors", model="my model", tokens=number_of_tokens)

or, with a model of transformers and a text:

    python collect_statistics.py MODEL TEXT stats.safetensors

Sums are f64 in the order of the rows; docs/numerics/statistics.md describes the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys

import torch
from safetensors.torch import save_file

BLOCK = 16


class _Sums:
    """Of one Linear's input."""

    def __init__(self, width: int, blocks: bool):
        self.rows = 0
        self.amax = torch.zeros(width, dtype=torch.float32)
        self.squares = torch.zeros(width, dtype=torch.float64)
        count = -(-width // BLOCK)
        self.blocks = torch.zeros(count, BLOCK, BLOCK, dtype=torch.float64) if blocks else None

    def add(self, x: torch.Tensor) -> None:
        x = x.detach().reshape(-1, x.shape[-1]).to("cpu")
        if not len(x):
            return
        self.rows += len(x)
        self.amax = torch.maximum(self.amax, x.abs().amax(0).float())
        wide = x.double()
        self.squares += wide.square().sum(0)
        if self.blocks is not None:
            wide = torch.nn.functional.pad(wide, (0, len(self.blocks) * BLOCK - wide.shape[1]))
            wide = wide.reshape(len(wide), -1, BLOCK).transpose(0, 1)  # [blocks, rows, 16]
            self.blocks += wide.transpose(1, 2) @ wide


class Statistics:
    """What passes into every torch.nn.Linear of a module."""

    def __init__(self, model: torch.nn.Module, hessians: str = "block16"):
        if hessians not in ("block16", "none"):
            raise ValueError(f"got hessians={hessians!r}; expected 'block16' or 'none'")
        self._linears = {
            name: module
            for name, module in model.named_modules()
            # The head is no layer: octavo calibrate leaves it out, too.
            if isinstance(module, torch.nn.Linear) and name != "lm_head"
        }
        self._blocks = hessians == "block16"
        self._sums: dict[str, _Sums] = {}

    @contextlib.contextmanager
    def watching(self):
        hooks = [
            module.register_forward_pre_hook(self._hook(name))
            for name, module in self._linears.items()
        ]
        try:
            yield self
        finally:
            for hook in hooks:
                hook.remove()

    def _hook(self, name: str):
        def add(module: torch.nn.Linear, inputs: tuple[torch.Tensor, ...]) -> None:
            sums = self._sums.setdefault(name, _Sums(module.in_features, self._blocks))
            sums.add(inputs[0])

        return add

    def save(self, path: str, model: str, tokens: int, texts: list[str] | None = None) -> None:
        tensors = {}
        for name, sums in self._sums.items():
            rows = max(sums.rows, 1)
            tensors[f"{name}.amax"] = sums.amax
            tensors[f"{name}.mean_square"] = (sums.squares / rows).float()
            if sums.blocks is not None:
                tensors[f"{name}.block_hessian"] = (sums.blocks / rows).float().contiguous()
            tensors[f"{name}.rows"] = torch.tensor([sums.rows])
        # Without a fingerprint the file is taken for any model whose layers are as wide.
        metadata = {
            "format": "octavo.statistics",
            "version": "1",
            "model": model,
            "model_fingerprint": "0" * 16,
            "tokens": str(tokens),
            "texts": json.dumps(texts or []),
            "made_by": f"collect_statistics.py, torch {torch.__version__}",
        }
        save_file(tensors, path, metadata)


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("usage: collect_statistics.py MODEL TEXT stats.safetensors")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source, text_path, out = sys.argv[1:]
    with open(text_path, encoding="utf-8") as file:
        text = file.read()
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    ids = AutoTokenizer.from_pretrained(source)(text, return_tensors="pt").input_ids[0]
    window = min(2048, model.config.max_position_embeddings)
    statistics = Statistics(model)
    pieces = [piece for piece in ids.split(window) if len(piece) > 1]
    with statistics.watching(), torch.no_grad():
        for piece in pieces:
            model(piece[None])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    tokens = sum(len(piece) for piece in pieces)
    statistics.save(out, source, tokens, [f"{text_path} ({digest})"])


if __name__ == "__main__":
    main()
