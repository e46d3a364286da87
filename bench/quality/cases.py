"""Which recipes are measured, with which policies, and which tools beside octavo."""

from __future__ import annotations

import dataclasses
import itertools

SEARCHED = ("max", "mse", "wmse", "gptq")


@dataclasses.dataclass(frozen=True)
class Case:
    recipe: str  # "mixed": a recipe for each part, within the bits that the policy names
    policy: str  # of scales; "gptq": rounding by GPTQ on scales that `mse` found
    tool: str = "octavo"

    @property
    def name(self) -> str:
        words = (self.recipe, self.policy)
        return " ".join(words if self.tool == "octavo" else (self.tool, *words))

    @property
    def target(self) -> str:
        """What servers load, with the scales that they ask to be shared; recipes of 8 bits, whose
        activations such a folder declares to be 8 bits, too, as weights alone."""
        served = self.recipe in ("nvfp4", "mxfp4", "int4", "mixed")
        return "compressed-tensors" if served else "octavo"

    @property
    def words(self) -> list[str]:
        return self.policy.split()

    @property
    def needs_statistics(self) -> bool:
        return "wmse" in self.words or "statistics" in self.words


def octavo(recipe: str, *policies: str) -> list[Case]:
    return [Case(recipe, policy) for policy in policies]


# Evaluated together, in this order: what decides comes first, should a run be stopped.
BATCHES = [
    octavo("nvfp4", "max", "4over6", "mse", "wmse", "gptq"),
    octavo("mxfp4", *SEARCHED),
    # Choices by errors of weights, and of results; scales are those of `max`.
    octavo("mixed", "4.5bpw", "5.0bpw", "5.0bpw statistics", "5.5bpw", "5.5bpw statistics"),
    # Weights alone, as the recipes above: each tool's own rule, and the best it has.
    [Case(*words, "llm-compressor") for words in (("nvfp4", "rtn"), ("nvfp4", "gptq"))],
    [Case(*words, "llm-compressor") for words in (("mxfp4", "rtn"), ("mxfp4", "gptq"))],
    [Case("nvfp4", policy, "modelopt") for policy in ("max", "mse")],
    octavo("int4", *SEARCHED),
    octavo("mxfp8", *SEARCHED),
    octavo("fp8-1x128", *SEARCHED),
    octavo("fp8-channel", *SEARCHED),
]
CASES = list(itertools.chain.from_iterable(BATCHES))
