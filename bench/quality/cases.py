"""Which recipes are measured with which scale policies."""

from __future__ import annotations

import dataclasses

POLICIES = ("max", "mse", "wmse")


@dataclasses.dataclass(frozen=True)
class Case:
    recipe: str
    policy: str

    @property
    def name(self) -> str:
        return f"{self.recipe} {self.policy}"

    @property
    def needs_statistics(self) -> bool:
        return self.policy == "wmse"


CASES = [
    *(Case("nvfp4", policy) for policy in ("max", "4over6", "mse", "wmse")),
    *(
        Case(recipe, policy)
        for recipe in ("mxfp4", "mxfp8", "fp8-1x128", "fp8-channel")
        for policy in POLICIES
    ),
]
