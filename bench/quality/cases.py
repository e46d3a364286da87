"""Which recipes are measured, with which policies, and which tools beside octavo."""

from __future__ import annotations

import dataclasses

SEARCHED = ("max", "mse", "wmse", "gptq")


@dataclasses.dataclass(frozen=True)
class Case:
    recipe: str
    policy: str  # of scales; "gptq": rounding by GPTQ on scales that `mse` found
    tool: str = "octavo"

    @property
    def name(self) -> str:
        words = (self.recipe, self.policy)
        return " ".join(words if self.tool == "octavo" else (self.tool, *words))

    @property
    def needs_statistics(self) -> bool:
        return self.policy == "wmse"


CASES = [
    *(Case("nvfp4", policy) for policy in ("max", "4over6", "mse", "wmse", "gptq")),
    *(
        Case(recipe, policy)
        for recipe in ("mxfp4", "mxfp8", "fp8-1x128", "fp8-channel")
        for policy in SEARCHED
    ),
    # Weights alone, as the recipes above: each tool's own rule, and the best it has.
    Case("nvfp4", "rtn", "llm-compressor"),
    Case("nvfp4", "gptq", "llm-compressor"),
    Case("mxfp4", "rtn", "llm-compressor"),
    Case("mxfp4", "gptq", "llm-compressor"),
    Case("nvfp4", "max", "modelopt"),
    Case("nvfp4", "mse", "modelopt"),
]
