"""Regular expressions: those of published configs and recipes, and hostile ones."""

from __future__ import annotations

# `ignore`, `exclude` and `targets` behind "re:", as public repositories have them in configs and in
# recipes for llm-compressor and vLLM. The last six look ahead: everything but what they name.
PUBLISHED = [
    r".*lm_head",
    r".*lm_head.*",
    r".*layers\.(0|1)\..*",
    r".*self_attn\.(q|k|v|o)_proj$",
    r".*(q|k|v)_proj$",
    r".*mlp\.gate$",
    r".*mlp.gate$",
    r".*shared_expert_gate$",
    r".*mlp.shared_expert_gate$",
    r".*router",
    r".*self_attn",
    r".*embed_tokens$",
    r".*vision_tower.*",
    r".*multi_modal_projector.*",
    r"vision_model.*",
    r"visual.*",
    r"model\.visual\..*",
    r"model.visual.*",
    r".*conv1d.*",
    r".*linear_attn\.(in_proj_a|in_proj_b|A_log)$",
    r".*(?:router|mlp.gate)$",
    r".*(?:vision_tower|vision_model|visual).*",
    r".*(?:mlp|ffn)\.experts\.\d+\.(?:gate_proj|up_proj|down_proj|w[123])$",
    r".*(?:^|\.)(?:embed|embed_tokens|lm_head|head|shared_head)(?:\.|$).*",
    r".*(?:^|\.)visual(?:\..*)?$",
    r".*(?:_fsdp_wrapped_module\.)?(?:module\.)?(?:model\.)?layers\.3\.mlp\.experts\.(0|7|12)\..*",
    r"model\.layers\.\d+\.mlp\.(gate|up)_proj",
    r"^mtp\..*",
    r".*layers\.(?:[0-9]|1[0-5])\.mlp\.experts\.\d{1,3}\.down_proj",
    r".*\bgate\b.*",
    r"^(?!.*experts).*$",
    r"^(?!.*mlp\.experts).*",
    r"^(?!.*language_model\.model\.layers\.)",
    r"^(?!.*self_attn\.(?:q_proj|k_proj|v_proj)$).*$",
    r"(?!.*experts).*proj",
    r"(?!(?:.*lm_head))(?:.*layers\.1\..*)",
]

NAMES = [
    "lm_head",
    "model.embed_tokens",
    "model.layers.0.self_attn.q_proj",
    "model.layers.1.self_attn.o_proj",
    "model.layers.11.self_attn.kv_b_proj",
    "model.layers.3.mlp.gate",
    "model.layers.3.mlp.gate_proj",
    "model.layers.3.mlp.shared_expert_gate",
    "model.layers.3.mlp.experts.12.down_proj",
    "model.layers.30.mlp.experts.255.up_proj",
    "model.layers.5.linear_attn.conv1d",
    "model.layers.5.linear_attn.in_proj_a",
    "model.visual.blocks.0.attn.qkv",
    "visual.merger",
    "mtp.layers.0.mlp.up_proj",
    "language_model.model.layers.4.mlp.down_proj",
    "vision_tower.encoder.layers.2.self_attn.q_proj",
    "",
]


def hostile() -> dict[str, tuple[str, str]]:
    """Name of each case, an expression and a text: catastrophic ones, many counts, long names."""
    a30, a2000, a1m = "a" * 30, "a" * 2000, "a" * 1_000_000
    nested = "a"
    for _ in range(100_000):
        nested = f"({nested})"
    return {
        "(a+)+$ on 30 a and b": (r"(a+)+$", a30 + "b"),
        "(a+)+$ on 2000 a and b": (r"(a+)+$", a2000 + "b"),
        "(a|aa)+$ on 2000 a and b": (r"(a|aa)+$", a2000 + "b"),
        "(a*)*b on 2000 a": (r"(a*)*b", a2000),
        "(.*)*(.*)*(.*)*x on 2000 a": (r"(.*)*(.*)*(.*)*x", a2000),
        "(?!(a+)+$)b on 2000 a and b": (r"(?!(a+)+$)b", a2000 + "b"),
        "(a?){500}a{500} on 500 a": (r"(a?){500}a{500}", "a" * 500),
        "a{1000}{1000}": (r"a{1000}{1000}", a2000),
        "(a{1000}){1000}": (r"(a{1000}){1000}", a2000),
        "(((a{100}){100}){100}){100}": (r"(((a{100}){100}){100}){100}", a2000),
        "(((){999}){999}){999}": (r"((((){999}){999}){999}){999}", a2000),
        "100 000 groups in each other": (nested, "a"),
        "100 000 brackets left open": ("(" * 100_000, "a"),
        "expression of 1 MB": (a1m, a2000),
        ".*b on a name of 1 MB": (r".*b", a1m),
        r".*\.(x|y)$ on a name of 1 MB": (r".*\.(x|y)$", "a." * 500_000),
        "(.|a)* on a name of 1 MB": (r"(.|a)*z", a1m),
    }
