"""`octavo eval` and `octavo calibrate` beside transformers in f32: same tokens and windows."""

import json
import subprocess
import sys
from pathlib import Path

import models
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parents[2]


def losses(model, ids: torch.Tensor, window: int) -> torch.Tensor:
    out = []
    for piece in ids.split(window):
        if len(piece) < 2:
            continue
        with torch.no_grad():
            logits = model(piece[None]).logits[0, :-1].double()
        out.append(torch.nn.functional.cross_entropy(logits, piece[1:], reduction="none"))
    return torch.cat(out)


def evaluated(folder, *words) -> dict:
    printed = models.octavo("eval", folder, "--json", *words)
    return json.loads(printed)["models"][-1]["total"]


def test_perplexity_of_a_small_model(model, tmp_path):
    """Random weights: every kind of layer that the folder's models have."""
    peer = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(peer.config.vocab_size, (500,), generator=generator)
    (tmp_path / "ids.json").write_text(json.dumps(ids.tolist()))
    seen = evaluated(model, "--ids", tmp_path / "ids.json", "--window", 64)
    wanted = losses(peer, ids, 64)
    # bf16 weights are exact in f32, and sums differ in their order alone.
    assert seen["log_loss"]["value"] == pytest.approx(wanted.mean().item(), rel=1e-5)
    assert seen["scored"] == len(wanted)


def test_perplexity_of_smollm2(smol):
    tokenizer = AutoTokenizer.from_pretrained(smol)
    ids = tokenizer(models.TEXT.read_text(), return_tensors="pt").input_ids[0][:4096]
    assert len(ids) == 4096
    peer = AutoModelForCausalLM.from_pretrained(smol, dtype=torch.float32).eval()
    wanted = losses(peer, ids, 2048).mean().exp().item()
    seen = evaluated(smol, "--text", models.TEXT, "--tokens", 4096, "--window", 2048)
    print(f"perplexity {seen['perplexity']['value']:.6f}, transformers {wanted:.6f}")
    assert seen["perplexity"]["value"] == pytest.approx(wanted, rel=1e-3)


def statistics_of_both(folder, tokens, tmp_path):
    sys.path.insert(0, str(ROOT / "examples"))
    from collect_statistics import Statistics

    peer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    (tmp_path / "ids.json").write_text(json.dumps(tokens.tolist()))
    models.octavo(
        "calibrate", folder, "--ids", tmp_path / "ids.json", "--window", 256,
        "-o", tmp_path / "ours.safetensors",
    )  # fmt: skip
    collected = Statistics(peer)
    with collected.watching(), torch.no_grad():
        for piece in tokens.split(256):
            peer(piece[None])
    collected.save(str(tmp_path / "theirs.safetensors"), "peer", len(tokens))
    return load_file(tmp_path / "ours.safetensors"), load_file(tmp_path / "theirs.safetensors")


def test_statistics_are_those_of_hooks(smol, tmp_path):
    ids = AutoTokenizer.from_pretrained(smol)(models.TEXT.read_text()).input_ids[:1024]
    ours, theirs = statistics_of_both(smol, torch.tensor(ids), tmp_path)
    assert set(theirs) <= set(ours)
    first = "model.layers.0.self_attn.q_proj"
    # The first layer's input is a norm of the same embedding: a last bit apart at most, where the
    # two round a square root's neighbourhood in another order.
    torch.testing.assert_close(ours[f"{first}.amax"], theirs[f"{first}.amax"], rtol=3e-7, atol=0)
    square = f"{first}.mean_square"
    torch.testing.assert_close(ours[square], theirs[square], rtol=3e-7, atol=0)
    for name, value in theirs.items():
        if name.endswith(".rows"):
            assert torch.equal(ours[name], value)
        elif name.endswith((".amax", ".mean_square")):
            torch.testing.assert_close(ours[name], value, rtol=1e-3, atol=1e-6, msg=name)


def test_the_script_runs_by_itself(smol, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text(models.TEXT.read_text()[:2000])
    script = ROOT / "examples" / "collect_statistics.py"
    out = tmp_path / "stats.safetensors"
    subprocess.run([sys.executable, script, smol, short, out], check=True)
    assert "model.layers.0.mlp.down_proj.block_hessian" in load_file(out)
