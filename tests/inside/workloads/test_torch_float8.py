"""Linear layers in FP8: what they compute, which they are, and that the check finds mistakes in them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from unittest import mock

import pytest

torch = pytest.importorskip("torch")

from probing import probed  # noqa: E402
from small_networks import smaller  # noqa: E402
from torch import nn  # noqa: E402

from entrypoints.contract import cards, reference  # noqa: E402
from entrypoints.contract import float8 as bounds  # noqa: E402
from entrypoints.contract.messages import Probed  # noqa: E402
from entrypoints.contract.session import rule_of  # noqa: E402
from entrypoints.contract.statuses import RunError  # noqa: E402
from entrypoints.devices.pytorch import cpu  # noqa: E402
from entrypoints.results import numerics  # noqa: E402
from entrypoints.workloads.pytorch import build, float8, float8_check, loader  # noqa: E402

CARDS = cards.load()
CPU = torch.device("cpu")
NEW = torch.__version__ >= float8.OLDEST
pytestmark = pytest.mark.skipif(not NEW, reason="this PyTorch has no products of FP8")
SCALINGS = ("tensorwise", "rowwise")
NAMES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def decibels(values, expected):
    """The signal-to-noise ratio of values."""
    return -20 * math.log10(float((values.double() - expected).norm() / expected.norm()))


def matrices(rows=96, inputs=128, outputs=64, outliers=1.0):
    """x, a weight and a gradient in bf16, with normal numbers, of which a few columns are larger."""
    random = torch.Generator().manual_seed(3)
    x, weight, gradient = (
        torch.randn(shape, generator=random) for shape in ((rows, inputs), (outputs, inputs), (rows, outputs))
    )
    x[:, :4] *= outliers
    return x.bfloat16(), (0.02 * weight).bfloat16(), (1e-3 * gradient).bfloat16()


def values_of(name):
    """All finite numbers of a format, in order: each of its 256 patterns, decoded."""
    patterns = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name)).double()
    return patterns[patterns.isfinite()].unique()


def nearest(numbers, name):
    """Numbers in double precision as the nearest of a format, halfway the even one, found among all of them."""
    values = values_of(name)
    above = torch.searchsorted(values, numbers.contiguous()).clamp(1, len(values) - 1)
    low, high = values[above - 1], values[above]
    odd = (above - 1 - len(values) // 2) % 2 == 1  # places from zero: patterns and numbers have the same order
    farther = numbers - low - (high - numbers)
    return torch.where((farther > 0) | ((farther == 0) & odd), high, low)


def in_format(tensor, name, by_row):
    """A matrix in double precision as it is in a format: scaled in fp32, found among its numbers, scaled back."""
    peaks = tensor.abs().amax(1, keepdim=True) if by_row else tensor.abs().max()
    scale = (values_of(name).max().item() / peaks.double()).float()  # whose last bit decides ties
    return nearest((tensor.float() * scale).double(), name) / scale.double()


@pytest.mark.parametrize("scaling", SCALINGS)
def test_products_are_those_of_numbers_in_fp8_in_double_precision(scaling):
    """All three products, against numbers found in a table of the formats, as a computation of its own."""
    x, weight, gradient = matrices(outliers=50.0)
    by_row, (forward, backward) = scaling == "rowwise", NAMES[:2]
    given = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    made = float8.Product.apply(*given, float8.formats(), by_row)
    made.backward(gradient)

    def product(a, b, of_gradient=True):
        return in_format(a, backward if of_gradient else forward, by_row) @ in_format(b, forward, by_row).t()

    assert decibels(made.detach(), product(x, weight, of_gradient=False)) > bounds.EMULATED
    assert decibels(given[0].grad, product(gradient, weight.t())) > bounds.EMULATED
    assert decibels(given[1].grad, product(gradient.t(), x.t())) > bounds.EMULATED


@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_error_of_a_product_is_that_of_its_formats(scaling):
    """28.5 dB forward and 24.6 dB with gradients, whatever the sizes."""
    x, weight, gradient = matrices()
    given = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    made = float8.Product.apply(*given, float8.formats(), scaling == "rowwise")
    made.backward(gradient)
    x, weight, gradient = (each.double() for each in (x, weight, gradient))
    assert decibels(made.detach(), x @ weight.t()) == pytest.approx(28.5, abs=0.7)
    assert decibels(given[0].grad, gradient @ weight) == pytest.approx(24.6, abs=0.7)
    assert decibels(given[1].grad, gradient.t() @ x) == pytest.approx(24.6, abs=0.7)


def test_scales_of_rows_keep_what_outliers_in_other_rows_would_round_away():
    x, weight, _ = matrices()
    x[0] *= 1e6
    expected = x.double() @ weight.double().t()
    by_tensor, by_row = (float8.Product.apply(x, weight, float8.formats(), each) for each in (False, True))
    assert decibels(by_row[1:], expected[1:]) > 28 > 10 > decibels(by_tensor[1:], expected[1:])


@pytest.mark.parametrize("name", NAMES)
def test_the_emulation_rounds_as_the_formats_do(name):
    """All numbers in bf16 that a format can have: those of PyTorch, to the nearest, and beyond it to the largest."""
    numbers = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16).float()
    grid = float8_check.GRIDS[name]
    numbers = numbers[numbers.isfinite()].clamp(-grid.largest, grid.largest)
    expected = numbers.to(getattr(torch, name)).float()
    torch.testing.assert_close(float8_check.on_grid(numbers, grid), expected, rtol=0, atol=0)
    assert grid.largest == torch.finfo(getattr(torch, name)).max


def test_zeros_stay_zeros():
    zeros = torch.zeros(16, 16, dtype=torch.bfloat16)
    for by_row in (False, True):
        assert not float8.product_of_rows(zeros, zeros, float8.formats(), by_row).any()


def test_gpus_without_a_negative_zero_have_their_own_formats():
    assert [str(each)[6:] for each in float8.formats("gfx942:sramecc+")] == list(NAMES[2:])
    assert float8.formats("gfx950") == float8.formats("") == (torch.float8_e4m3fn, torch.float8_e5m2)


def test_what_has_no_product_is_refused_with_its_reason(monkeypatch):
    def product(*_, **__):
        raise RuntimeError("torch._scaled_mm is only supported on compute capability >= 9.0 or 8.9\nmore")

    monkeypatch.setattr(torch, "_scaled_mm", product)
    with pytest.raises(RunError, match=r"no product of FP8 for the CPU \(.* or 8.9\). Take --precision bf16") as raised:
        float8.require(CPU)
    assert raised.value.state == "unsupported"


def test_an_older_pytorch_is_refused(monkeypatch):
    monkeypatch.setattr(float8, "OLDEST", (99, 0))
    with pytest.raises(
        RunError, match="has no products of FP8, from 99.0 on it does. Take --precision bf16, or an image"
    ):
        float8.require(CPU)


def card_of(workload):
    """A card with a small network whose sizes FP8 can have."""
    card = smaller(CARDS[workload])
    vocabulary, width, tied = 96, card.problem["model"]["width"], card.problem["model"]["head"]["tied"]
    fewer = (card.problem["model"]["vocabulary"] - vocabulary) * width * (1 if tied else 2)
    model = {**card.problem["model"], "vocabulary": vocabulary}
    given = {**card.problem["input"], "length": 16}
    problem = {"model": model, "input": given, "parameters": card.problem["parameters"] - fewer}
    return card._replace(problem={**card.problem, **problem})


def converted(workload="llama_1b", scaling="tensorwise"):
    """A small model in FP8, and a batch for it."""
    card = card_of(workload)
    model = build.with_chunked_loss(build.without_randomness(build.model(card, 0)))
    build.load_probe_weights(model)
    return build.in_float8(model, "cpu", scaling), loader.formula_batch(card, 2)


def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def checked(scaling="tensorwise", workload="llama_1b", change=lambda network: None):
    """Names of quantities of layers that are beyond their tolerance."""
    model, batch = converted(workload, scaling)
    change(model.network)
    emulation = float8_check.Emulation(float8.formats(), scaling == "rowwise")
    found = float8_check.of_layers(model, batch, autocast, emulation)
    assert set(found) == set(bounds.OF_LAYERS)
    return {name for name, value in found.items() if value > bounds.TOLERANCES[name]}


@pytest.mark.parametrize(("workload", "scaling"), [("llama_1b", "tensorwise"), ("llama_8b_lora", "rowwise")])
def test_layers_as_they_are_pass(workload, scaling):
    assert not checked(scaling, workload)


def test_matrices_of_blocks_are_in_fp8_and_neither_heads_nor_adapters():
    model, _ = converted("llama_8b_lora")
    names = {name for name, layer in model.network.named_modules() if isinstance(layer, float8.Float8Linear)}
    attention, feed_forward = ("query_key_value", "project"), ("gate", "widen", "narrow")
    each = [*(f"attention.{name}" for name in attention), *(f"feed_forward.{name}" for name in feed_forward)]
    assert names == {f"blocks.{number}.{name}" for number in (0, 1) for name in each}
    assert float8.described(model.network) == (
        "10 of 19 linear layers in float8_e4m3fn, gradients in float8_e5m2, scaled dynamically by tensor, by "
        "torch._scaled_mm; in bf16: decoder, down, up"
    )
    assert float8.described(build.model(card_of("llama_1b"), 0).network) is None


def test_sizes_that_fp8_cannot_have_stay_as_they_are():
    model = build.model(card_of("llama_1b"), 0)
    model.network.blocks[0].feed_forward.gate = nn.Linear(64, 120, bias=False)
    build.in_float8(model, "cpu", "tensorwise")
    first, second = (block.feed_forward.gate for block in model.network.blocks)
    assert not isinstance(first, float8.Float8Linear) and isinstance(second, float8.Float8Linear)


def test_weights_keep_their_names_and_values_and_copies_compute_the_same():
    model, batch = converted()
    plain = build.model(card_of("llama_1b"), 0)
    build.load_probe_weights(plain)
    for (name, weight), (other, expected) in zip(
        model.network.named_parameters(), plain.network.named_parameters(), strict=True
    ):
        assert name == other and weight.equal(expected)
    with torch.no_grad(), autocast():
        outputs = [each.eval()(batch.inputs)[0] for each in (model, build.sharing(model))]
    assert outputs[0].equal(outputs[1])


def test_weights_that_are_not_trained_have_no_product_of_their_gradient():
    model, batch = converted("llama_8b_lora")
    products = mock.Mock(wraps=float8.product_of_rows)
    with mock.patch.object(float8, "product_of_rows", products), autocast():
        model.train()(batch.inputs, batch.targets)[1].backward()
    layers = 10
    assert products.call_count == 2 * layers - 1  # before the first one there is nothing to train, but an adapter


QUANTISED = float8.quantised


def quantising(change):
    return mock.patch.object(float8, "quantised", change)


def scale_not_inverted():
    def change(tensor, dtype, by_row):
        numbers, back = QUANTISED(tensor, dtype, by_row)
        return numbers, 1 / back

    return quantising(change)


def scale_left_out():
    return quantising(lambda tensor, dtype, by_row: (QUANTISED(tensor, dtype, by_row)[0], torch.ones(())))


def maximum_of_another_tensor():
    """As if each tensor had the scale that the one before had."""
    largest = [torch.tensor(1.0)]

    def change(tensor, dtype, by_row):
        most, before = torch.finfo(dtype).max, largest[0]
        largest[0] = tensor.abs().amax().float()
        scale = most / before
        return (tensor.float() * scale).clamp(-most, most).to(dtype).contiguous(), 1 / scale

    return quantising(change)


def maximum_with_its_sign():
    def change(tensor, dtype, by_row):
        most = torch.finfo(dtype).max
        scale = most / tensor.amax().float().abs()
        return (tensor.float() * scale).clamp(-most, most).to(dtype).contiguous(), 1 / scale

    return quantising(change)


def converting(forward, backward):
    given = [getattr(torch, name) for name in (forward, backward)]
    return mock.patch.object(float8, "formats", lambda _="": float8.Formats(*given))


def gradients_in_the_format_of_activations():
    return converting("float8_e4m3fn", "float8_e4m3fn")


def activations_in_the_format_of_gradients():
    return converting("float8_e5m2", "float8_e5m2")


def formats_of_other_gpus():
    return converting("float8_e4m3fnuz", "float8_e5m2fnuz")


def activations_to_the_maximum_of_the_other_format():
    def change(tensor, dtype, by_row):
        scale = torch.finfo(torch.float8_e5m2).max / tensor.abs().amax().float()
        most = torch.finfo(dtype).max
        return (tensor.float() * scale).clamp(-most, most).to(dtype).contiguous(), 1 / scale

    return quantising(change)


def going_back(change):
    return mock.patch.object(float8.Product, "backward", staticmethod(change))


BACKWARD = float8.Product.backward


def gradient_of_weights_not_scaled():
    def change(ctx, gradient):
        of_x, of_weight, *rest = BACKWARD(ctx, gradient)
        _, back = QUANTISED(gradient, ctx.dtypes.backward, by_row=False)
        return (of_x, of_weight / back.bfloat16(), *rest)

    return going_back(change)


def gradient_of_weights_in_bf16():
    """As torchao's recipe of rows with gradients of weights in high precision."""

    def change(ctx, gradient):
        of_x, _, *rest = BACKWARD(ctx, gradient)
        return (of_x, gradient.t() @ ctx.saved_tensors[0], *rest)

    return going_back(change)


def rows_of_the_other_axis():
    """Scales of rows where products add up along columns, in the gradient of weights."""

    def change(tensor, dtype, by_row):
        numbers, back = QUANTISED(tensor.t().contiguous(), dtype, by_row)
        return numbers.t().contiguous(), back if back.dim() == 0 else back.mean().expand(len(tensor), 1).contiguous()

    return quantising(change)


def head_converted():
    return mock.patch.object(float8, "CONVERTED", (*float8.CONVERTED, "logits"))


def nothing_converted():
    return mock.patch.object(float8, "CONVERTED", ())


def output_projections_left_out():
    return mock.patch.object(float8, "CONVERTED", ("columns",))


MISTAKES = [
    (scale_not_inverted, "tensorwise"),
    (scale_left_out, "tensorwise"),
    (maximum_of_another_tensor, "tensorwise"),
    (maximum_with_its_sign, "tensorwise"),
    (gradients_in_the_format_of_activations, "tensorwise"),
    (activations_in_the_format_of_gradients, "tensorwise"),
    (formats_of_other_gpus, "tensorwise"),
    (activations_to_the_maximum_of_the_other_format, "tensorwise"),
    (gradient_of_weights_not_scaled, "tensorwise"),
    (gradient_of_weights_in_bf16, "rowwise"),
    (rows_of_the_other_axis, "rowwise"),
    (head_converted, "tensorwise"),
    (nothing_converted, "tensorwise"),
    (output_projections_left_out, "tensorwise"),
]


@pytest.mark.parametrize(("mistake", "scaling"), MISTAKES, ids=lambda each: getattr(each, "__name__", each))
def test_a_mistake_is_found(mistake, scaling):
    emulation = float8_check.Emulation(float8.formats(), scaling == "rowwise")
    with mistake():
        model, batch = converted(scaling=scaling)
        found = float8_check.of_layers(model, batch, autocast, emulation)
    assert any(not value <= bounds.TOLERANCES[name] for name, value in found.items())


def test_a_run_of_one_scaling_does_not_pass_as_the_other():
    model, batch = converted(scaling="rowwise")
    found = float8_check.of_layers(model, batch, autocast, float8_check.Emulation(float8.formats(), by_row=False))
    assert found[bounds.OUTPUTS] > bounds.TOLERANCES[bounds.OUTPUTS]


def with_biases(network):
    for number, layer in enumerate(float8.convertible(network)):
        layer.bias = nn.Parameter(0.3 * torch.sin(torch.arange(layer.out_features) + number))


@contextlib.contextmanager
def bias_left_out():
    forward = float8.Float8Linear.forward

    def change(layer, x):
        kept, layer.bias = layer.bias, None
        try:
            return forward(layer, x)
        finally:
            layer.bias = kept

    with mock.patch.object(float8.Float8Linear, "forward", change):
        yield


def test_a_missing_bias_is_found_where_a_comparison_with_fp32_would_not():
    assert not checked(change=with_biases)
    with bias_left_out():
        assert bounds.OUTPUTS in checked(change=with_biases)


def sessions(scaling="tensorwise"):
    """A small network in FP8 and one in fp32, from the same first weights, and a batch for both."""
    card = card_of("llama_1b")
    rule = rule_of(card.problem, 2)
    models = [build.model(card, 0) for _ in range(2)]
    build.in_float8(models[0], "cpu", scaling)
    opened = [cpu.open_session(model, rule, precision) for model, precision in zip(models, ("fp8", "fp32"))]
    return (*opened, loader.formula_batch(card, 2))


@pytest.mark.parametrize("scaling", SCALINGS)
def test_a_network_is_as_near_to_fp32_as_fp8_can_be(scaling):
    session, single, batch = sessions(scaling)
    found = session.float8_network(single, batch)
    assert set(found) == {bounds.OUTPUT, bounds.GRADIENTS}
    assert all(1e-3 < value <= bounds.TOLERANCES[name] for name, value in found.items()), found


def test_a_network_that_computes_rubbish_is_far_from_fp32():
    with gradient_of_weights_not_scaled():
        session, single, batch = sessions()
        assert session.float8_network(single, batch)[bounds.GRADIENTS] > bounds.TOLERANCES[bounds.GRADIENTS]
    with scale_left_out():
        session, single, batch = sessions()
        assert session.float8_network(single, batch)[bounds.OUTPUT] > bounds.TOLERANCES[bounds.OUTPUT]


def test_the_correctness_check_has_both_parts(monkeypatch):
    """Of the network that the check of a run has, over fewer tokens."""
    load = reference.load

    def smaller_check(card):
        stored = load(card)
        assert stored is not None
        return dataclasses.replace(stored, batch_size=1, input={"length": 32})

    monkeypatch.setattr(reference, "load", smaller_check)
    quantities = probed("llama_1b", "fp8")
    assert set(quantities) == set(bounds.TOLERANCES)
    stored = smaller_check(CARDS["llama_1b"]).in_float8()
    messages = [Probed("fp8", *quantity) for quantity in quantities.items()]
    assert numerics.compare_with_reference(messages, stored, "fp8").state == "passed"


def test_a_session_says_which_layers_are_in_fp8():
    session, _, batch = sessions()
    session.train(batch)
    assert session.executed().facts["float8"].startswith("10 of 11 linear layers in float8_e4m3fn")


def test_blocks_that_are_computed_again_have_the_same_gradients():
    gradients = []
    for again in (False, True):
        model, batch = converted()
        model = build.recomputed(model) if again else model
        with autocast():
            loss = model.train()(batch.inputs, batch.targets)[1]
        loss.backward()
        gradients.append([weight.grad for weight in model.parameters()])
    for first, second in zip(*gradients):
        torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.full
def test_what_dynamo_and_autograd_trace_computes_the_same():
    """Without the code that TorchInductor would write, which takes a minute to compile."""
    x, _, gradient = matrices()
    layer = nn.Linear(128, 64)
    layer.__class__ = float8.converted_class(nn.Linear)
    layer.dtypes, layer.by_row = float8.formats(), True
    results = []
    for called in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
        given = x.clone().requires_grad_()
        layer.zero_grad()
        made = called(given)
        made.backward(gradient)
        results.append((made.detach(), given.grad, layer.weight.grad, layer.bias.grad))
    for first, second in zip(*results):
        torch.testing.assert_close(first, second)


def of_torchao(by_row):
    """torchao's configuration with our formats and scales; its recipe of rows has others: E4M3 for gradients, too."""
    config = pytest.importorskip("torchao.float8.config", reason="torchao is the independent check of the newest torch")
    names = config.ScalingGranularity
    casts = [
        config.CastConfig(scaling_granularity=names.AXISWISE if by_row else names.TENSORWISE) for _ in range(3)
    ]  # which remember the format of what they are for
    roles = ("cast_config_input", "cast_config_weight", "cast_config_grad_output")
    return config.Float8LinearConfig(**dict(zip(roles, casts)), emulate=True)


@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("name", NAMES[:2])
def test_numbers_in_fp8_are_those_of_torchao_bit_by_bit(scaling, name):
    of_torchao(False)
    from torchao.float8 import float8_utils

    granularity = of_torchao(scaling == "rowwise").cast_config_input.scaling_granularity
    for matrix in (*matrices(outliers=50.0), torch.zeros(16, 16)):
        dtype = getattr(torch, name)
        scale = float8_utils.tensor_to_scale(matrix, dtype, scaling_granularity=granularity, axiswise_dim=1)
        expected = float8_utils.to_fp8_saturated(matrix.float() * scale, dtype)
        made, inverse = float8.quantised(matrix, dtype, scaling == "rowwise")
        assert torch.equal(made.view(torch.uint8), expected.view(torch.uint8))
        assert torch.equal(inverse, scale.reciprocal())


@pytest.mark.parametrize("scaling", SCALINGS)
def test_layers_compute_what_those_of_torchao_do(scaling):
    """Output, and gradients of input, weight and bias, against torchao's emulation, whose products are in fp32."""
    by_row = scaling == "rowwise"
    configuration = of_torchao(by_row)
    from torchao.float8.float8_linear import Float8Linear as TorchaoLinear

    x, weight, gradient = matrices(outliers=50.0)
    plain = nn.Linear(*reversed(weight.shape)).to(x.dtype)
    plain.weight.data = weight
    ours, theirs = copy.deepcopy(plain), TorchaoLinear.from_float(copy.deepcopy(plain), configuration)
    ours.__class__ = float8.Float8Linear
    ours.dtypes, ours.by_row = float8.formats(), by_row
    made = []
    for layer in (ours, theirs):
        given = x.clone().requires_grad_()
        output = layer(given)
        output.backward(gradient)
        made.append((output.detach(), given.grad, layer.weight.grad, layer.bias.grad))
    emulated = float8_check.Emulation(float8.formats(), by_row)
    of_x, of_weight = emulated.gradients(plain, x, gradient)
    emulation = (emulated.output(plain, x), of_x, of_weight, made[1][3])
    for own, expected, ours_emulated in zip(made[0], made[1], emulation):
        assert own.dtype == expected.dtype == torch.bfloat16
        for values in (own, ours_emulated.detach()):
            assert float8_check.deviation(values, expected.float()) < 10 ** (-bounds.EMULATED / 20)
