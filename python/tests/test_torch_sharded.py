"""Parameters that torch.distributed cuts: values are sharded, codes refuse."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; it is optional")
prune = pytest.importorskip("torch.nn.utils.prune")
fsdp = pytest.importorskip("torch.distributed.fsdp", reason="torch has no torch.distributed")

import octavo.torch as te  # noqa: E402
from octavo.recipe import DelayedScaling, MXFP8BlockScaling  # noqa: E402

if not hasattr(fsdp, "fully_shard") or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no fully_shard, or no gloo", allow_module_level=True)

WAY = "make the layer outside of quantized_model_init"


def mesh(processes):
    return torch.distributed.device_mesh.init_device_mesh("cpu", (processes,))


@pytest.fixture(scope="module", autouse=True)
def one_process(tmp_path_factory):
    store = tmp_path_factory.mktemp("gloo") / "store"
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("recipe", [MXFP8BlockScaling(), DelayedScaling()])
def test_codes_are_not_sharded(recipe):
    with te.quantized_model_init(recipe=recipe):
        layer = te.Linear(32, 32, device="cpu")
    before = layer.weight
    with pytest.raises(RuntimeError, match=WAY):
        fsdp.fully_shard(layer, mesh=mesh(1))
    assert layer.weight is before
    with pytest.raises(RuntimeError, match=WAY):
        torch.distributed.tensor.distribute_module(
            layer,
            mesh(1),
            lambda name, module, on: module.register_parameter(
                "weight",
                torch.nn.Parameter(torch.distributed.tensor.distribute_tensor(module.weight, on)),
            ),
        )
    assert layer.weight is before


@pytest.mark.filterwarnings("ignore")  # torch's, about FSDP1 and about the CPU
def test_codes_are_not_flattened():
    """FSDP1 takes weights out of their modules and puts views of one flat parameter there."""
    with te.quantized_model_init(recipe=MXFP8BlockScaling()):
        layer = te.Linear(32, 32, device="cpu")
    before = layer.weight
    with pytest.raises(RuntimeError, match=WAY):
        fsdp.FullyShardedDataParallel(layer, device_id=torch.device("cpu"))
    assert layer.weight is before
    with pytest.raises(RuntimeError, match=WAY):
        torch.nn.utils.parametrizations.weight_norm(layer)
    assert layer.weight is before


@pytest.mark.filterwarnings("ignore")  # torch's, about the old weight_norm
@pytest.mark.parametrize(
    "change",
    [
        lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
        lambda layer: torch.nn.utils.weight_norm(layer),
        lambda layer: torch.nn.utils.spectral_norm(layer),
    ],
)
def test_codes_are_not_computed_from_others(change):
    """These take the weight out of the module past its own functions."""
    with te.quantized_model_init(recipe=MXFP8BlockScaling()):
        layer = te.Linear(32, 32, device="cpu")
    before = layer.weight.quantized
    with pytest.raises(RuntimeError, match=WAY):
        change(layer)
    assert layer.weight.quantized is before
    assert layer(torch.ones(2, 32)).shape == (2, 32)


def test_values_are_pruned():
    layer = te.Linear(32, 32, device="cpu")
    prune.l1_unstructured(layer, "weight", 0.5)
    assert (layer.weight == 0).float().mean() == 0.5
    with te.autocast(recipe=MXFP8BlockScaling()):
        layer(torch.ones(2, 32)).sum().backward()
    assert (layer.weight_orig.grad[layer.weight == 0] == 0).all()


def trained(layer, x, recipe, steps=2):
    """The outputs of some steps of SGD."""
    optimizer = torch.optim.SGD(layer.parameters(), 0.5)
    found = []
    for _ in range(steps):
        with te.autocast(recipe=recipe):
            y = layer(x)
        found.append(y.detach().clone())
        y.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return found


@pytest.mark.parametrize("recipe", [None, MXFP8BlockScaling(), DelayedScaling()])
def test_values_are_sharded_and_trained(recipe):
    torch.manual_seed(0)
    x = torch.randn(16, 32)
    plain = te.Linear(32, 32, device="cpu")
    sharded = te.Linear(32, 32, device="cpu")
    sharded.load_state_dict(plain.state_dict())
    fsdp.fully_shard(sharded, mesh=mesh(1))
    for want, got in zip(trained(plain, x, recipe), trained(sharded, x, recipe), strict=True):
        assert torch.equal(want, got)


def of_fsdp1(layer):
    return fsdp.FullyShardedDataParallel(layer, device_id=torch.device("cpu"))


@pytest.mark.filterwarnings("ignore")  # torch's, about FSDP1 and about the CPU
@pytest.mark.parametrize("recipe", [None, MXFP8BlockScaling(), DelayedScaling()])
def test_values_are_flattened_and_trained(recipe):
    torch.manual_seed(0)
    x = torch.randn(16, 32)
    plain = te.Linear(32, 32, device="cpu")
    wrapped = of_fsdp1(copy.deepcopy(plain))
    for want, got in zip(trained(plain, x, recipe), trained(wrapped, x, recipe), strict=True):
        assert torch.equal(want, got)


@pytest.mark.filterwarnings("ignore")
def test_codes_that_fsdp1_is_told_to_ignore_stay_codes():
    with te.quantized_model_init(recipe=MXFP8BlockScaling()):
        codes = te.Linear(32, 32, device="cpu")
    model = torch.nn.Sequential(te.Linear(32, 32, device="cpu"), codes)
    plain = copy.deepcopy(model)
    wrapped = fsdp.FullyShardedDataParallel(
        model, device_id=torch.device("cpu"), ignored_modules=[codes]
    )
    assert type(codes.weight) is type(plain[1].weight)
    x = torch.randn(16, 32)
    with te.autocast(recipe=MXFP8BlockScaling()):
        assert torch.equal(plain(x), wrapped(x))


def two_processes(rank, store):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    x = torch.randn(16, 32)
    plain, sharded = te.Linear(32, 32, device="cpu"), te.Linear(32, 32, device="cpu")
    sharded.load_state_dict(plain.state_dict())
    fsdp.fully_shard(sharded, mesh=mesh(2))
    assert sharded.weight.to_local().shape == (16, 32)
    # The gradient is the mean over two processes that have the same rows: the same numbers.
    for want, got in zip(
        trained(plain, x, MXFP8BlockScaling()),
        trained(sharded, x, MXFP8BlockScaling()),
        strict=True,
    ):
        assert torch.equal(want, got)
    first, second = te.Linear(32, 32, device="cpu"), te.Linear(32, 32, device="cpu")
    second.load_state_dict(first.state_dict())
    for want, got in zip(
        trained(first, x, MXFP8BlockScaling()),
        trained(of_fsdp1(second), x, MXFP8BlockScaling()),
        strict=True,
    ):
        assert torch.equal(want, got)
    with te.quantized_model_init(recipe=MXFP8BlockScaling()):
        codes = te.Linear(32, 32, device="cpu")
    with pytest.raises(RuntimeError, match=WAY):
        fsdp.fully_shard(codes, mesh=mesh(2))
    torch.distributed.destroy_process_group()


def test_between_two_processes(tmp_path):
    torch.multiprocessing.spawn(two_processes, (str(tmp_path / "store"),), nprocs=2)
