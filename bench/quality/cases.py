"""Which recipes are measured, with which policies, and which tools beside octavo."""

from __future__ import annotations

import dataclasses
import itertools

WEIGHTED = ("max", "mse", "wmse", "gptq max", "gptq wmse", "gptq mse")
SERVED = ("nvfp4", "mxfp4", "int4", "mixed")  # as weights alone, with scales that servers share


@dataclasses.dataclass(frozen=True)
class Case:
    recipe: str  # "mixed": a recipe for each part, within the bits that the policy names
    policy: str  # of scales; "gptq max": rounding by GPTQ on the scales of that policy
    tool: str = "octavo"

    @property
    def name(self) -> str:
        words = (self.recipe, self.policy)
        return " ".join(words if self.tool == "octavo" else (self.tool, *words))

    @property
    def target(self) -> str:
        """What servers load; recipes of 6 and 8 bits, whose activations such a folder declares to
        be codes, too, as weights alone."""
        return "compressed-tensors" if self.recipe in SERVED else "octavo"

    @property
    def words(self) -> list[str]:
        return self.policy.split()

    @property
    def is_gptq(self) -> bool:
        return self.words[0] == "gptq"

    @property
    def scale_policy(self) -> str:
        return self.words[-1] if self.is_gptq else self.policy

    @property
    def needs_statistics(self) -> bool:
        return "wmse" in self.words or "statistics" in self.words


def octavo(recipe: str, *policies: str) -> list[Case]:
    return [Case(recipe, policy) for policy in policies]


def peer(tool: str, recipe: str, *policies: str) -> list[Case]:
    return [Case(recipe, policy, tool) for policy in policies]


# Evaluated together, in this order: what decides comes first, should a run be stopped.
BATCHES = [
    octavo("nvfp4", "max", "4over6", "mse", "wmse"),
    octavo("nvfp4", "gptq max", "gptq wmse"),
    octavo("mxfp4", "max", "mse", "gptq max"),
    # Weights alone, as the recipes above: each tool's own rule, and the best it has.
    peer("llm-compressor", "nvfp4", "rtn", "gptq"),
    # Choices by errors of weights, and of results; scales are those of `max`.
    octavo("mixed", "5.0bpw", "5.0bpw statistics", "5.5bpw", "5.5bpw statistics"),
    peer("modelopt", "nvfp4", "max", "mse"),
    peer("llm-compressor", "mxfp4", "rtn", "gptq"),
    octavo("mixed", "4.5bpw", "4.5bpw statistics"),
    octavo("nvfp4", "gptq mse"),
    octavo("mxfp4", "wmse", "gptq wmse", "gptq mse"),
    octavo("int4", *WEIGHTED),
    # Of 6 and 8 bits: little is lost, and little to be won back.
    octavo("fp8-block", *WEIGHTED),
    octavo("fp8-channel", *WEIGHTED),
    octavo("mxfp8", *WEIGHTED),
    octavo("mxfp6", *WEIGHTED),
    octavo("int8-channel", *WEIGHTED),
    octavo("fp8", *WEIGHTED),
    octavo("fp8-1x128", *WEIGHTED),
]
CASES = list(itertools.chain.from_iterable(BATCHES))
