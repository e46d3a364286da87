import models
import pytest


@pytest.fixture(scope="session", params=["llama", "moe"])
def model(request, tmp_path_factory):
    """A folder with a model in bf16; its name is the kind."""
    return models.make(request.param, tmp_path_factory.mktemp("models") / request.param)
