"""Micro-benchmarks: what they measure is a matter of the machine, and that their results are right is not."""

from __future__ import annotations

import copy
import functools
import json
from typing import Any, cast

import pytest
from program import ROOT, Program, lay

torch = pytest.importorskip("torch")

from entrypoints.contract import cards  # noqa: E402
from entrypoints.contract.group import Place  # noqa: E402
from entrypoints.contract.points import (  # noqa: E402
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    CHECKPOINT,
    COLLECTIVES,
    EMBEDDING_BAG,
    INCOMPARABLE,
    LOOKUPS,
    MATMUL,
    MEMORY_COPY,
    REDUCE_SCATTER,
    ROW,
    SAVING,
    SEND_RECEIVE,
    STAGE,
    TABLE_NUMBERS,
    TOLERANCES_OF_PRODUCTS,
    Point,
    bus_factor,
)
from entrypoints.contract.statuses import RunError, UsageError  # noqa: E402
from entrypoints.planning import measured_peak  # noqa: E402
from entrypoints.planning.arguments import parse  # noqa: E402
from entrypoints.rules.check import violations  # noqa: E402
from entrypoints.worker.point_loop import PointLoop  # noqa: E402
from entrypoints.workloads.pytorch import collectives, embedding_bag, kernels  # noqa: E402

CPU = torch.device("cpu")
SHORT = ("--largest-size", 16384, "--steps", 4, "--warmup-steps", 1, "--threads", 1, "--meter", "none")
OLD = torch.__version__ < collectives.COMPLETE_GLOO


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Results of two ranks and of products, by operation; tests only read them."""
    program = Program(ROOT, tmp_path_factory.mktemp("folder"))
    return {
        ALL_REDUCE: program.result(ALL_REDUCE, "--replicas", 2, *SHORT),
        MATMUL: program.result(MATMUL, "--largest-size", 512, *SHORT[2:]),
    }


@pytest.mark.parametrize(
    "operation", [pytest.param(name, marks=[pytest.mark.full] * (name != ALL_REDUCE)) for name in COLLECTIVES]
)
def test_two_ranks_do_what_the_formula_says(program, measured, operation):
    document = measured.get(operation) or program.result(operation, "--replicas", 2, *SHORT)
    if OLD and operation == REDUCE_SCATTER:
        assert document["status"]["state"] == "unsupported" and document["status"]["phase"] == "import"
        assert f"there is none in PyTorch {torch.__version__}" in document["status"]["message"]
        return
    assert (document["status"]["state"], document["numerics"]["state"]) == ("completed", "passed"), document["status"]
    rows, metrics = document["points"]["measured"], document["metrics"]
    assert [(row["size"], row["calls"]) for row in rows] == [(1024, 20), (4096, 20), (16384, 20)]
    assert all(row["verified"] and row["deviation"] == 0.0 for row in rows)
    for row in rows:
        algorithm, bus = row["algorithm_bandwidth_gb_per_second"], row["bus_bandwidth_gb_per_second"]
        assert algorithm == pytest.approx(row["size"] / row["seconds"]["p50"] / 1e9)
        assert bus == pytest.approx(algorithm * {ALL_REDUCE: 1.0, SEND_RECEIVE: 1.0}.get(operation, 0.5))
    assert metrics["peak_bandwidth"]["value"] == max(row["bus_bandwidth_gb_per_second"] for row in rows)
    assert metrics["small_message_latency"]["value"] == rows[0]["seconds"]["p50"]
    assert document["steps"]["units"] == 4 * 2 * 20 * (1024 + 4096 + 16384)
    omitted = document["points"]["omitted"]
    assert omitted[0] == {"size": 65536, "reason": "larger than 16384 (--largest-size)"} and len(omitted) == 8


@pytest.mark.parametrize(("operation", "largest", "sizes"), [(MEMORY_COPY, "4K", 2), (MATMUL, "512", 2)])
def test_one_device_copies_and_multiplies(program, measured, operation, largest, sizes):
    words = ("--largest-size", largest, "--steps", 3, "--warmup-steps", 1, "--meter", "none")
    document = measured.get(operation) or program.result(operation, *words)
    assert (document["status"]["state"], document["numerics"]["state"]) == ("completed", "passed"), document["status"]
    rows, metrics = document["points"]["measured"], document["metrics"]
    assert len(rows) == sizes and all(row["verified"] for row in rows)
    if operation == MATMUL:
        assert metrics["peak_flops"]["value"] == max(row["flop_per_second"] for row in rows)
        assert metrics["achieved_flops"]["value"] is None and metrics["fraction_of_bound"]["value"] is None
        assert metrics["peak_bandwidth"]["value"] is None
    else:
        assert metrics["cached_bandwidth"]["value"] == max(row["bus_bandwidth_gb_per_second"] for row in rows)
        assert metrics["memory_bandwidth"]["value"] is None and metrics["memory_bandwidth"]["reason"]
        assert document["points"]["last_level_cache"]["value"] > 0
        assert metrics["achieved_flops"]["value"] is None


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (("all_reduce",), "all_reduce is between ranks"),
        (("matmul", "--replicas", 2), "--replicas 2: matmul is of one device"),
        (("checkpoint", "--replicas", 2), "--replicas 2: checkpoint is of one device"),
        (("host_device",), "on a CPU the host is the device, and nothing is copied"),
        (("memory_copy", "--batch-size", 2), "--batch-size: memory_copy has buffers of its own sizes"),
        (("memory_copy", "--precision", "tf32"), "--precision tf32: memory_copy has no such elements"),
        (("memory_copy", "--largest-size", 100), "memory_copy begins with 1024"),
        (("lstm", "--largest-size", 100), "--largest-size is for micro-benchmarks"),
    ],
)
def test_what_cannot_be_measured_is_wrong_usage(program, words, cause):
    code, _, errors = program.run(*words)
    assert code == 2 and cause in errors


def test_there_is_nothing_to_check_before_a_run(program):
    code, _, errors = program.run("matmul", "--check")
    assert code == 0 and "check of matmul: skipped, a micro-benchmark verifies its results in every run" in errors


@pytest.mark.full
def test_sizes_that_do_not_fit_are_left_out_by_name(program):
    limited = ("--smoke", "--largest-size", "1G", "--meter", "none", "--memory-limit", "900M")
    document = program.result("memory_copy", *limited)
    assert document["status"]["state"] == "completed", document["status"]
    reasons = {row["size"]: row["reason"] for row in document["points"]["omitted"]}
    assert {2**28, 2**30} <= set(reasons)
    for size, reason in reasons.items():
        expected = f"its buffers of {2 * size >> 20} MiB are more than" if size <= 2**30 else "larger than"
        assert reason.startswith(expected), reason


class Ring:
    """All ranks of a collective in one process, after each other: their sources, and the target of one of them."""

    def __init__(self, operation: str, rank: int, world: int) -> None:
        points = [Point(operation, 8 * 3 * 4 * world, 2), Point(operation, 4096 * 4 * world, 2)]
        self.buffers = [
            collectives.CollectiveBuffers(operation, points, Place(each, world, each, world), CPU, torch.float32)
            for each in range(world)
        ]
        self.own, self.rank, self.world = self.buffers[rank], rank, world

    def result(self, count: int, operation: str):
        """What the collective of the rank gives, by the definition of its name."""
        sources = torch.stack([each.source[:count] for each in self.buffers])
        chunk = count // self.world
        return {
            ALL_REDUCE: sources.sum(0),
            ALL_GATHER: sources[:, :chunk].flatten(),
            REDUCE_SCATTER: sources.sum(0)[self.rank * chunk : (self.rank + 1) * chunk],
            ALL_TO_ALL: sources[:, self.rank * chunk : (self.rank + 1) * chunk].flatten(),
            SEND_RECEIVE: sources[(self.rank - 1) % self.world],
        }[operation]

    def deviation(self, operation: str, wrong=lambda result: result) -> float:
        """The deviation of a result that `wrong` makes of the right one, in which NaN are left as they were."""

        def call(_, target, __: Place) -> None:
            result = wrong(self.result(len(target), operation).clone())
            before = target[: len(result)].clone()
            target[: len(result)] = torch.where(result.isnan(), before, result)

        self.own.collective = call
        return max(self.own.deviation(number) for number in range(2))


def untouched(result):
    result[len(result) // 2] = float("nan")
    return result


def swapped(result):
    return torch.cat(list(result.chunk(3))[::-1])


MUTANTS = {
    "untouched": (untouched, COLLECTIVES),
    "mean": (lambda result: result / 3, (ALL_REDUCE, REDUCE_SCATTER)),
    "doubled": (lambda result: result * 2, COLLECTIVES),
    "swapped": (swapped, (ALL_REDUCE, ALL_GATHER, ALL_TO_ALL, SEND_RECEIVE)),
    "shifted": (lambda result: result.roll(1), COLLECTIVES),
}


@pytest.mark.parametrize("operation", COLLECTIVES)
@pytest.mark.parametrize("rank", [0, 2])
def test_right_results_have_no_deviation_and_wrong_ones_do(operation, rank):
    ring = Ring(operation, rank, 3)
    assert ring.deviation(operation) == 0.0
    for name, (wrong, operations) in MUTANTS.items():
        if operation in operations:
            assert ring.deviation(operation, wrong) > 1e-3, name


@pytest.mark.parametrize("operation", [ALL_REDUCE, REDUCE_SCATTER, SEND_RECEIVE])
def test_a_rank_that_keeps_its_own_numbers_is_seen(operation):
    ring = Ring(operation, 1, 3)
    ring.own.collective = lambda source, target, _: target.copy_(source)
    assert ring.own.deviation(1) > 1e-3


@pytest.mark.parametrize("world", [2, 64, 500])
def test_sums_are_exact_in_half_precision_whatever_their_order(world):
    positions = torch.arange(collectives.PERIOD)
    inputs = torch.stack([collectives.numbers(positions, rank, world) for rank in range(world)])
    assert (
        int(inputs.max()) == 5 and int((inputs > 0).sum(0).max()) == min(world, 32) and int(inputs.sum(0).max()) <= 160
    )
    added = torch.zeros(len(positions), dtype=torch.bfloat16)
    for rank in range(world):
        added += inputs[rank].bfloat16()
    assert torch.equal(added.long(), inputs.sum(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [5, 64, 100])
def test_products_are_those_of_the_matrices(dtype, size, monkeypatch):
    products = kernels.MatrixProducts([Point(MATMUL, size, 1)], CPU, dtype)
    most = TOLERANCES_OF_PRODUCTS["fp32" if dtype == torch.float32 else "bf16"]
    assert products.deviation(0) <= most
    left, right, product = products.matrices(0)
    assert torch.equal(product.float(), (left.double() @ right.double()).to(dtype).float())
    right_one = kernels.MatrixProducts.call

    def mutated(wrong):
        def call(self, number):
            right_one(self, number)
            wrong(*self.matrices(number))

        monkeypatch.setattr(kernels.MatrixProducts, "call", call)
        return products.deviation(0)

    assert mutated(lambda a, b, c: c.copy_(c.t().clone())) > most
    assert mutated(lambda a, b, c: c.copy_(a @ b.t())) > most
    assert mutated(lambda a, b, c: c[-1, -1].add_(c.abs().max())) > most
    assert mutated(lambda a, b, c: c[0, 1].fill_(float("nan"))) == INCOMPARABLE


def test_timed_products_are_of_normal_numbers_and_verified_ones_of_the_pattern():
    torch.manual_seed(1)
    products = kernels.MatrixProducts([Point(MATMUL, 64, 1), Point(MATMUL, 128, 1)], CPU, torch.float32)
    for number in (1, 0):
        products.fill(number)
        for factor in products.matrices(number)[:2]:
            assert abs(float(factor.mean())) < 0.05 and abs(float(factor.std()) - 1) < 0.05
            assert len(factor.unique()) > 0.99 * factor.numel()
    assert products.deviation(1) == 0.0
    assert set(products.matrices(1)[0].unique().tolist()) == {-1.0, 0.0, 1.0}
    products.fill(1)
    assert len(products.matrices(1)[0].unique()) > 1000


@pytest.mark.parametrize("count", [1, kernels.PERIOD + 1, 3 * kernels.AT_ONCE // 2])
def test_a_copied_buffer_has_the_numbers_of_its_places(count):
    buffer = torch.empty(count)
    kernels.write(buffer)
    place = torch.arange(count) % kernels.PERIOD
    assert torch.equal(buffer.long(), place * place % kernels.PERIOD % kernels.LARGEST)
    assert kernels.difference(buffer) == 0.0
    buffer[-1] += 1
    assert kernels.difference(buffer) > 0.0


def test_a_copy_that_misses_an_element_or_a_page_is_seen(monkeypatch):
    copies = kernels.MemoryCopies([Point(MEMORY_COPY, 65536, 1)], CPU, torch.float32)
    assert copies.deviation(0) == 0.0
    right_one = kernels.MemoryCopies.call

    def exchanged(target):
        target[:1024], target[1024:2048] = target[1024:2048].clone(), target[:1024].clone()

    for wrong in (lambda target: target[7].fill_(float("nan")), exchanged, lambda target: target[-1].add_(1)):

        def call(self, number, wrong=wrong):
            right_one(self, number)
            wrong(self.target)

        monkeypatch.setattr(kernels.MemoryCopies, "call", call)
        assert copies.deviation(0) > 1e-3


@pytest.fixture()
def bags(monkeypatch):
    """Tables that are a thousandth of those of the card, with points of 1, 3 and 30 samples."""

    def of(dtype):
        monkeypatch.setattr(embedding_bag, "ROWS_PER_LOOKUP", 20)
        torch.manual_seed(1)
        each = embedding_bag.OF_A_SAMPLE * ROW * torch.empty(0, dtype=dtype).element_size()
        return embedding_bag.Bags([Point(EMBEDDING_BAG, each * count, 1) for count in (1, 3, 30)], CPU, dtype)

    return of


def in_tables_of_their_own(bags, rows):
    """The sums of rows of samples by an operation for each table."""
    tables = bags.tables.split([20 * count for count in LOOKUPS])
    first = [20 * sum(LOOKUPS[:number]) for number in range(len(LOOKUPS))]
    parts = zip(rows.split(LOOKUPS, 1), tables, first)
    return torch.stack(
        [torch.nn.functional.embedding_bag(part - start, table, mode="sum") for part, table, start in parts], 1
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bags_are_those_of_a_table_each(bags, dtype):
    if dtype == torch.bfloat16 and torch.__version__ < (2, 0):
        with pytest.raises(RunError, match=r"embedding_bag in bf16: PyTorch .* has none on CPUs: .* --precision fp32"):
            embedding_bag.require(EMBEDDING_BAG, "cpu", "bf16")
        return
    embedding_bag.require(EMBEDDING_BAG, "cpu", "bf16" if dtype == torch.bfloat16 else "fp32")
    operation = bags(dtype)
    for number, samples in enumerate((1, 3, 30)):
        rows = operation.looked_up(number)
        assert rows.shape == (samples, 214)
        made, expected = operation.sums(rows), in_tables_of_their_own(operation, rows)
        assert made.dtype == dtype and torch.equal(made, expected) and float(made.float().std()) > 1
        assert operation.deviation(number) == 0.0


def test_calls_look_up_rows_of_their_own_and_each_row_is_as_likely(bags):
    operation = bags(torch.float32)
    calls = [operation.looked_up(1) for _ in range(11)]
    assert torch.equal(torch.cat(calls[:10]), operation.indices) and torch.equal(calls[10], calls[0])
    rows = embedding_bag.drawn(5000, CPU)
    counts = torch.bincount(rows.flatten(), minlength=214 * 20).float()
    assert len(counts) == 214 * 20 and counts.mean() == 250
    assert abs(float(counts.std()) - 250**0.5) < 1 and float((counts - 250).abs().max()) < 6 * 250**0.5


MISTAKES_OF_BAGS = {
    "a look-up is left out": lambda bags, rows: bags.sums(rows) - bags.tables[rows[:, :1]],
    "rows are those beside": lambda bags, rows: bags.sums((rows + 1) % len(bags.tables)),
    "tables are exchanged": lambda bags, rows: bags.sums(rows).flip(1),
    "samples are exchanged": lambda bags, rows: bags.sums(rows).flip(0),
    "sums are means": lambda bags, rows: bags.sums(rows) / torch.tensor(LOOKUPS)[:, None],
    "a sum is not written": lambda bags, rows: torch.where(rows[:, :1, None] >= 0, torch.nan, bags.sums(rows)),
}


@pytest.mark.parametrize("name", MISTAKES_OF_BAGS)
def test_wrong_sums_of_rows_are_seen(bags, monkeypatch, name):
    operation = bags(torch.float32)
    wrong, right_one = MISTAKES_OF_BAGS[name], embedding_bag.Bags.sums

    class Right:
        tables, sums = operation.tables, functools.partial(right_one, operation)

    monkeypatch.setattr(operation, "sums", functools.partial(wrong, Right))
    assert operation.deviation(2) > 1e-3


def test_sizes_of_tables_are_those_of_samples():
    card = cards.load()[EMBEDDING_BAG].problem
    assert (len(LOOKUPS), sum(LOOKUPS)) == (26, 214) and bus_factor(EMBEDDING_BAG, 1) == pytest.approx(240 / 214)
    assert [size / (214 * 128 * 4) for size in card["input"]["sizes"]] == [4**power for power in range(8)]
    assert cards.load()[EMBEDDING_BAG].memory["microbenchmark_elements_per_unit"] == TABLE_NUMBERS + 26 * 128


@pytest.mark.full  # its tables take 2 GB
def test_a_device_looks_up_rows(program):
    words = ("--largest-size", 438272, "--steps", 3, "--warmup-steps", 1, "--threads", 1, "--meter", "none")
    document = program.result(EMBEDDING_BAG, *words)
    assert (document["status"]["state"], document["numerics"]["state"]) == ("completed", "passed"), document["status"]
    rows = document["points"]["measured"]
    assert [row["size"] for row in rows] == [109568, 438272] and all(row["deviation"] == 0.0 for row in rows)
    assert document["metrics"]["peak_bandwidth"]["value"] == max(row["bus_bandwidth_gb_per_second"] for row in rows)


@pytest.fixture()
def saved(tmp_path, monkeypatch):
    """Two sizes of a checkpoint in each mode, in a folder of their own."""
    checkpoint = pytest.importorskip("entrypoints.workloads.pytorch.checkpoint")
    if torch.__version__ < checkpoint.SINCE:
        with pytest.raises(RunError, match=r"has no torch.distributed.checkpoint.async_save .* from 2.6 on it has"):
            checkpoint.require(CHECKPOINT, "cpu", "fp32")
        pytest.skip("it is refused here")
    monkeypatch.chdir(tmp_path)
    points = [Point(CHECKPOINT, size * checkpoint.PART, 1, mode=mode) for size in (1, 2) for mode in SAVING]
    operation = checkpoint.Checkpoints(points, CPU, torch.bfloat16)
    yield operation
    operation.close()
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_what_was_saved_is_loaded_also_if_the_state_changes_while_it_is_written(saved, tmp_path):
    assert [saved.deviation(number) for number in range(6)] == [0.0] * 6
    for number in range(6):
        saved.fill(number)
        saved.call(number)
        assert (saved.pending is not None) == (saved.points[number].mode == STAGE)
    saved.fill(0)
    files = [path for path in tmp_path.rglob("*.distcp") if path.is_file()]
    assert sum(path.stat().st_size for path in files) > 2 << 24, "bf16 takes as many bytes as any other"


def test_a_checkpoint_that_lacks_or_confuses_numbers_is_seen(saved, monkeypatch):
    import torch.distributed.checkpoint as checkpoints

    right_save, right_load = checkpoints.save, checkpoints.load

    class Later:
        """An asynchronous save that reads the state when its caller has gone on."""

        def __init__(self, state, storage_writer):
            self.rest = {"state_dict": state, "storage_writer": storage_writer}

        def result(self):
            right_save(**self.rest)

    with monkeypatch.context() as broken:
        broken.setattr(checkpoints, "async_save", Later)
        assert saved.deviation(1) == INCOMPARABLE
    for tensor, number in zip(saved.tensors, range(2)):
        tensor.copy_(numbers_of(number, tensor))

    def exchanged(state, **rest):
        right_load(state, **rest)
        first, second = (state[name].clone() for name in ("part.0", "part.1"))
        state["part.0"].copy_(second)
        state["part.1"].copy_(first)

    monkeypatch.setattr(checkpoints, "load", exchanged)
    assert saved.deviation(3) > 1e-3
    monkeypatch.setattr(checkpoints, "load", right_load)


def numbers_of(number, tensor):
    from entrypoints.workloads.pytorch import checkpoint

    return checkpoint.numbers(number, tensor)


@pytest.mark.full
def test_checkpoints_are_measured_in_each_mode(program):
    words = ("--largest-size", "16M", "--steps", 3, "--warmup-steps", 1, "--meter", "none")
    document = program.result(CHECKPOINT, *words)
    if torch.__version__ < (2, 6):
        assert document["status"]["state"] == "unsupported"
        return
    assert (document["status"]["state"], document["numerics"]["state"]) == ("completed", "passed"), document["status"]
    rows, metrics = document["points"]["measured"], document["metrics"]
    assert [row["mode"] for row in rows] == ["save", "async_blocked", "async_save"]
    assert rows[1]["algorithm_bandwidth_gb_per_second"] is None
    assert rows[1]["seconds"]["p50"] < rows[2]["seconds"]["max"]
    share = rows[1]["seconds"]["p50"] / rows[0]["seconds"]["p50"]
    assert metrics["checkpoint_blocked_fraction"]["value"] == pytest.approx(share)
    assert metrics["peak_bandwidth"]["value"] == max(rows[row]["bus_bandwidth_gb_per_second"] for row in (0, 2))
    lies = {
        "points-are-those-of-the-card": lambda forged: forged["points"]["measured"][0].pop("mode"),
        "rates-follow-from-seconds": lambda forged: forged["points"]["measured"][1].update(
            algorithm_bandwidth_gb_per_second=1.0
        ),
        "peaks-are-the-largest-points": lambda forged: forged["metrics"]["checkpoint_blocked_fraction"].update(
            value=share / 2
        ),
    }
    for code, lie in lies.items():
        forged = copy.deepcopy(document)
        lie(forged)
        assert f"[{code}]" in "".join(violations(forged)), code


def test_factors_are_those_of_nccl_tests():
    """https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"""
    assert [bus_factor(ALL_REDUCE, ranks) for ranks in (2, 4, 8)] == [1.0, 1.5, 1.75]
    assert [bus_factor(name, 4) for name in (ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL)] == [0.75, 0.75, 0.75]
    assert bus_factor(SEND_RECEIVE, 4) == 1.0 and bus_factor(MEMORY_COPY, 1) == 2.0


@pytest.mark.parametrize(("operation", "precision"), [(REDUCE_SCATTER, "fp32"), (ALL_REDUCE, "bf16")])
def test_what_old_versions_of_gloo_lack_is_unsupported(monkeypatch, operation, precision):
    monkeypatch.setattr(collectives, "COMPLETE_GLOO", (99, 0))
    with pytest.raises(RunError, match=r"there is none in PyTorch .* by gloo") as refusal:
        collectives.require(operation, "cpu", precision)
    assert refusal.value.state == "unsupported"
    collectives.require(operation, "cuda", precision)


def test_a_wrong_result_is_a_fault_of_its_point():
    ring = Ring(ALL_REDUCE, 0, 2)
    ring.own.collective = lambda source, target, _: target.copy_(source)
    sent: list[Any] = []
    points = [Point(ALL_REDUCE, 192, 2), Point(ALL_REDUCE, 32768, 2)]
    loop: Any = PointLoop(cast(Any, None), ring.own, points, "fp32", sent.append)
    faults = loop.verify()
    assert len(faults) == 2 and faults[0].startswith("all reduce 192: the result deviates by")
    assert len(sent[0].deviations) == 2 and min(sent[0].deviations) > 1e-3


@pytest.mark.full
def test_a_wrong_result_of_a_run_ends_as_a_failed_correctness_check(tmp_path):
    """A copy that writes nothing, in the tree of an image: the document says which point, and exits with 5."""
    program = Program(lay(tmp_path / "sifmark", framework="pytorch", device="cpu", recipe="cpu"), tmp_path)
    module = tmp_path / "sifmark" / "entrypoints" / "workloads" / "pytorch" / "kernels.py"
    text = module.read_text("utf-8")
    whole = "self.target[:count].copy_(self.source[:count])"
    broken = text.replace(whole, whole.replace(":count", ": count - 1"))
    assert broken != text
    module.write_text(broken, "utf-8")
    document = program.result("memory_copy", "--largest-size", "4K", *SHORT[2:])
    assert (document["status"]["state"], document["status"]["exit_code"]) == ("numerics_mismatch", 5)
    message = "memory copy 1024: the result has numbers that are not finite, or that were never written and 1 more"
    assert document["status"]["message"] == message
    assert [(row["verified"], row["deviation"]) for row in document["points"]["measured"]] == 2 * [(False, None)]


LIES: list[tuple[str, str, Any, str]] = [
    (ALL_REDUCE, "points.measured.2.seconds.p50", lambda value: value / 10, "rates-follow-from-seconds"),
    (ALL_REDUCE, "points.measured.1.bus_bandwidth_gb_per_second", lambda value: value * 2, "rates-follow-from-seconds"),
    (ALL_REDUCE, "points.measured.1.seconds", None, "rates-follow-from-seconds"),
    (ALL_REDUCE, "points.measured.0.calls", 5, "points-are-those-of-the-card"),
    (ALL_REDUCE, "points.measured.0.size", 2048, "points-are-those-of-the-card"),
    (ALL_REDUCE, "points.omitted", [], "points-are-those-of-the-card"),
    (ALL_REDUCE, "points.operation", "all_gather", "points-are-those-of-the-card"),
    (ALL_REDUCE, "configuration.largest_size", 4096, "points-are-those-of-the-card"),
    (ALL_REDUCE, "points", None, "points-are-those-of-the-card"),
    (ALL_REDUCE, "points.measured.0.verified", False, "points-are-verified"),
    (ALL_REDUCE, "points.measured.0.deviation", 0.5, "points-are-verified"),
    (ALL_REDUCE, "points.tolerance", 0.5, "points-are-verified"),
    (ALL_REDUCE, "points.element_bytes", 2, "points-are-verified"),
    (
        ALL_REDUCE,
        "numerics.run_checks.0",
        {"check": "results", "state": "passed", "faults": ["no"]},
        "points-are-verified",
    ),
    (ALL_REDUCE, "metrics.peak_bandwidth.value", lambda value: value * 1.01, "peaks-are-the-largest-points"),
    (ALL_REDUCE, "metrics.small_message_latency.value", 1e-9, "peaks-are-the-largest-points"),
    (ALL_REDUCE, "numerics.run_checks", [], "completed-run-is-checked"),
    (ALL_REDUCE, "steps.units", lambda value: value * 2, "units-are-steps-times-batch"),
    (ALL_REDUCE, "workload.task", "sampling", "points-are-those-of-the-card"),
    (MATMUL, "metrics.peak_flops.value", lambda value: value * 2, "peaks-are-the-largest-points"),
    (MATMUL, "points.measured.1.flop_per_second", lambda value: value * 2, "rates-follow-from-seconds"),
    (MATMUL, "metrics.achieved_flops.value", 1e12, "operations-follow-from-the-throughput"),
]


@pytest.mark.full  # the gate breaks each rule by a forgery, in test_rules
@pytest.mark.parametrize(
    ("operation", "path", "change", "code"), LIES, ids=[f"{path}-{code}" for _, path, _, code in LIES]
)
def test_a_lie_about_points_breaks_a_rule_by_name(measured, operation, path, change, code):
    forged = copy.deepcopy(measured[operation])
    *parents, last = (int(key) if key.isdigit() else key for key in path.split("."))
    part = forged
    for key in parents:
        part = part[key]
    part[last] = change(part[last]) if callable(change) else change
    assert f"[{code}]" in "".join(violations(forged)), violations(forged)


@pytest.mark.parametrize(("of_points", "of_steps"), [(1000.0, 1.0), (1.0, 10000.0)], ids=["long", "short"])
def test_points_that_do_not_fit_the_window_break_a_rule(measured, of_points, of_steps):
    forged = copy.deepcopy(measured[ALL_REDUCE])
    for row in forged["points"]["measured"]:
        row["seconds"] = {name: value * of_points for name, value in row["seconds"].items()}
    forged["steps"]["seconds"] = [seconds * of_steps for seconds in forged["steps"]["seconds"]]
    assert "[points-fill-the-window]" in "".join(violations(forged))


@pytest.mark.full
def test_a_workload_is_compared_with_the_measured_peak_of_its_device(measured, program, tmp_path):
    peak = tmp_path / "peak.json"
    peak.write_text(json.dumps(measured[MATMUL]), "utf-8")
    assert measured[MATMUL]["numerics"]["state"] == "passed"
    words = ("lstm", "--task", "inference", "--steps", 6, "--warmup-steps", 2, "--batch-size", 2, "--meter", "none")
    asked = (*words, "--skip-numerics", "--measured-peak", peak)
    document = program.result(*asked)
    flops = measured[MATMUL]["metrics"]["peak_flops"]["value"]
    achieved = document["metrics"]["achieved_flops"]["value"]
    assert document["metrics"]["utilisation_of_measured_peak"]["value"] == pytest.approx(achieved / flops)
    assert document["configuration"]["measured_peak"]["result"] == measured[MATMUL]["id"]
    forged = copy.deepcopy(document)
    forged["metrics"]["utilisation_of_measured_peak"]["value"] *= 2
    assert "[operations-follow-from-the-throughput]" in "".join(violations(forged))
    forged = copy.deepcopy(document)
    forged["configuration"]["measured_peak"]["device"] = "another"
    assert "[operations-follow-from-the-throughput]" in "".join(violations(forged))
    other = copy.deepcopy(measured[MATMUL])
    other["accelerator"]["name"] = "Abacus"
    peak.write_text(json.dumps(other), "utf-8")
    status = program.result(*asked)["status"]
    assert status["state"] == "unsupported" and "it is of Abacus, and this device is" in status["message"]


def forged_peak(document, path, value):
    forged = copy.deepcopy(document)
    part = forged
    *parents, last = path
    for key in parents:
        part = part[key]
    part[last] = value
    return forged


@pytest.mark.parametrize(
    ("path", "value", "cause"),
    [
        (("workload", "name"), "lstm", "it is a result of lstm. Give a result of matmul"),
        (("configuration", "precision"), "bf16", "it is in bf16, and this run in fp32"),
        (("status", "state"), "crashed", "it is crashed with correctness passed"),
        (("numerics", "state"), "failed", "it is completed with correctness failed"),
        (("metrics",), {}, "it is no result of sifmark with schema 1.1 or later"),
    ],
)
def test_what_is_no_measured_peak_is_refused_by_name(measured, tmp_path, path, value, cause):
    place = tmp_path / "peak.json"
    place.write_text(json.dumps(forged_peak(measured[MATMUL], path, value)), "utf-8")
    with pytest.raises(UsageError, match=cause):
        measured_peak.read(parse(["lstm", "--measured-peak", str(place)]), "fp32", "cpu", 1)


def test_a_measured_peak_that_is_not_there_or_of_no_single_rank_is_refused(tmp_path):
    place = str(tmp_path / "none.json")
    with pytest.raises(UsageError, match="it cannot be read"):
        measured_peak.read(parse(["lstm", "--measured-peak", place]), "fp32", "cpu", 1)
    with pytest.raises(UsageError, match="which 2 ranks share"):
        measured_peak.read(parse(["lstm", "--measured-peak", place, "--replicas", "2"]), "fp32", "cpu", 2)
