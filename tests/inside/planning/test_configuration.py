from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest

from entrypoints.cli import naming
from entrypoints.contract import cards
from entrypoints.contract.group import Place
from entrypoints.contract.session import BatchPartition
from entrypoints.contract.statuses import UsageError
from entrypoints.devices import selection
from entrypoints.planning.arguments import parse
from entrypoints.planning.resolve import resolve
from entrypoints.system import cgroups, host

CARD = cards.load()["resnet50"]


@pytest.fixture()
def images(tmp_path):
    """A folder that lists as five images of two classes; nobody decodes them here."""
    for name in ("cat/a.jpg", "cat/b.png", "cat/c.JPEG", "dog/d.jpg", "dog/e.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def configured(*argv):
    return resolve(parse(argv), CARD, None)


def test_defaults_come_from_the_card():
    resolved = configured()
    defaults = CARD.defaults["cpu"]["training"]
    assert (resolved.batch_size, resolved.steps) == (defaults["batch_size"], defaults["steps"])
    assert resolved.precision == defaults["precision"]
    assert resolved.threads >= 1 and resolved.data_workers is None


def test_a_device_without_its_own_defaults_takes_those_for_any():
    image = {"framework": "pytorch", "device": "abacus"}
    assert resolve(parse([]), CARD, image).batch_size == CARD.defaults["any"]["training"]["batch_size"]


def test_a_smoke_run_is_small_and_explicit_options_win():
    assert configured("--smoke").steps == 4 and configured("--smoke").batch_size == 2
    assert configured("--smoke", "--batch-size", "5").batch_size == 5


def test_a_smoke_run_on_a_cpu_computes_the_network_of_the_check_unless_it_has_data(tmp_path):
    card, tokens = cards.load()["llama_1b"], tmp_path / "a.tokens"
    smoke = resolve(parse(["llama_1b", "--smoke"]), card, None)
    assert smoke.computed(card).problem["parameters"] < card.problem["parameters"] / 100
    for other in (
        resolve(parse(["llama_1b"]), card, None),
        resolve(parse(["llama_1b", "--smoke"]), card, {"framework": "pytorch", "device": "cuda"}),
        dataclasses.replace(smoke, data="tokens", data_path=str(tokens)),
    ):
        assert other.computed(card) is card


def test_rest_before_a_run_is_for_measurements():
    assert configured().idle_seconds == 5.0 and configured("--smoke").idle_seconds == 0.0
    assert configured("--smoke", "--idle-seconds", "3").idle_seconds == 3.0
    assert (configured().meter, configured().meter_period_seconds) == ("auto", 0.1)


def test_epochs_become_steps_and_a_partial_batch_is_dropped(images):
    resolved = configured("--data", str(images), "--epochs", "3", "--batch-size", "2")
    assert (resolved.samples_per_epoch, resolved.steps_per_epoch, resolved.steps) == (5, 2, 6)
    assert resolved.data == "folder" and resolved.data_path == str(images.resolve())
    synthetic = configured("--epochs", "2", "--samples-per-epoch", "9", "--batch-size", "4")
    assert (synthetic.steps_per_epoch, synthetic.steps) == (2, 4)


def test_a_task_that_a_workload_cannot_do_is_refused_and_passed_over_by_all():
    card = cards.load()["deep_voice_3"]
    with pytest.raises(UsageError, match="--task inference: deep_voice_3"):
        resolve(parse(["--task", "inference"]), card, None)
    for task, capable in (("training", True), ("inference", False)):
        meant, _ = naming.find(parse(["--all", "--task", task]))
        assert (card in meant) is capable and CARD in meant


def test_a_duration_leaves_the_steps_open():
    resolved = configured("--duration", "2.5")
    assert resolved.steps is None and resolved.duration_seconds == 2.5


def test_a_default_warm_up_gives_way_to_a_short_run():
    assert configured("--steps", "2").warmup_steps == 1
    assert configured("--steps", "6").warmup_steps == 3


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--steps", "5", "--warmup-steps", "5"), "5 warm-up of 5 steps leave none to time"),
        (("--steps", "1"), "at least 2 steps"),
        (("--epochs", "2"), "Add --samples-per-epoch"),
        (("--samples-per-epoch", "3", "--batch-size", "4"), "do not fill one step of 4"),
        (("--data-workers", "2"), "--data PATH"),
        (("--concurrency", "2"), "training answers no requests. Add --task inference"),
        (("--data", "/no/such/folder"), "no such file or folder"),
    ],
)
def test_contradictions_are_refused_with_a_remedy(argv, said):
    with pytest.raises(UsageError, match=said):
        configured(*argv)


def test_requests_are_of_one_sample_and_enough_for_a_99th_percentile():
    resolved = configured("--task", "inference", "--concurrency", "40")
    assert (resolved.concurrency, resolved.batch_size) == (40, 1)
    assert resolved.steps - resolved.warmup_steps >= 662
    assert resolved.warmup_steps > 40  # each stream has been answered once, the first alone
    assert resolved.threads >= 1
    assert configured("--task", "inference").concurrency is None


def test_streams_share_the_cores_unless_told_otherwise(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(host, "SYS_CPU", tmp_path)  # nothing there says that two threads are of one core
    monkeypatch.setattr(cgroups, "CGROUP", tmp_path)  # nor of a quota
    threads = [configured("--task", "inference", "--concurrency", count).threads for count in ("1", "3", "8", "9")]
    assert threads == [8, 2, 1, 1]
    assert configured("--task", "inference", "--concurrency", "3", "--threads", "5").threads == 5


def test_streams_decode_for_themselves(images):
    words = ("--task", "inference", "--concurrency", "2", "--data", str(images))
    assert configured(*words).data_workers is None
    with pytest.raises(UsageError, match="each stream decodes its own requests. Leave one out"):
        configured(*words, "--data-workers", "2")


def test_a_folder_that_does_not_suit_is_refused(images):
    with pytest.raises(UsageError, match="5 samples do not fill one step"):
        configured("--data", str(images), "--batch-size", "6")
    with pytest.raises(UsageError, match="for synthetic data"):
        configured("--data", str(images), "--batch-size", "2", "--samples-per-epoch", "5")
    few = CARD._replace(problem={**CARD.problem, "model": {"classes": 1}})
    with pytest.raises(UsageError, match="2 classes, resnet50 knows 1"):
        resolve(parse(["--data", str(images), "--batch-size", "2"]), few, None)


def test_an_image_computes_on_the_cpu_when_told_and_on_nothing_else_than_its_own():
    image = {"framework": "pytorch", "device": "cuda"}
    card = cards.load()["resnet50"]
    configurations = [
        resolve(parse(["resnet50", *words]), card, image) for words in ((), ("--device", "cuda"), ("--device", "cpu"))
    ]
    assert [configuration.device for configuration in configurations] == ["cuda", "cuda", "cpu"]
    assert configurations[2].batch_size == card.defaults["cpu"]["training"]["batch_size"]
    with pytest.raises(UsageError, match="this image is for cuda or cpu. For xpu take an image of the recipe xpu"):
        resolve(parse(["resnet50", "--device", "xpu"]), card, image)


IPU = {"framework": "pytorch", "device": "ipu"}
GAUDI = {"framework": "pytorch", "device": "hpu"}
GPU = {"framework": "pytorch", "device": "cuda"}


def divided(*words, image=IPU):
    return resolve(parse(["resnet50", "--precision", "fp32", *words]), CARD, image).partition


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--batch-size 8", (8, 1, 1, 1, 1, None)),
        ("--batch-size 64 --micro-batch-size 4 --replicas 2", (4, 8, 2, 1, 1, None)),
        ("--batch-size 64 --replicas 4", (16, 1, 4, 1, 1, None)),
        ("--batch-size 64 --replicas 4 --device-iterations 3", (16, 1, 4, 3, 1, None)),
        ("--batch-size 64 --micro-batch-size 4 --task inference", (4, 1, 1, 16, 1, None)),
        ("--batch-size 32 --micro-batch-size 4 --stages 4", (4, 8, 1, 1, 4, "pipelined")),
        ("--batch-size 28 --micro-batch-size 4 --stages 4", (4, 7, 1, 1, 4, "pipelined")),
        ("--batch-size 16 --micro-batch-size 4 --stages 4 --task inference", (4, 1, 1, 4, 4, "pipelined")),
        ("--batch-size 4 --stages 2 --strategy sharded", (4, 1, 1, 1, 2, "sharded")),
        ("--batch-size 4 --stages 3 --strategy phased", (4, 1, 1, 1, 3, "phased")),
        ("--batch-size 40 --task inference --concurrency 2", (40, 1, 1, 1, 1, None)),
    ],
)
def test_a_batch_is_divided_without_a_rest(words, expected):
    partition = divided(*words.split())
    assert tuple(partition)[:6] == expected
    updates = partition.device_iterations if "inference" not in words else 1
    assert partition.samples == int(words.split()[1]) * updates


def test_ranks_may_keep_what_they_divide_on_the_host_and_share_updates_of_a_compiled_model():
    words = ["resnet50", "--replicas", "2", "--strategy"]
    assert resolve(parse([*words, "fsdp", "--offload"]), CARD, GPU).offload
    assert resolve(parse([*words, "zero1", "--compile"]), CARD, None).compile


@pytest.mark.parametrize(
    ("words", "image", "said"),
    [
        ("--batch-size 10 --micro-batch-size 4", IPU, "no multiple of 4 samples"),
        ("--batch-size 4 --micro-batch-size 8", IPU, "no multiple of 8 samples"),
        ("--batch-size 6 --replicas 4", IPU, "times 4 replicas"),
        ("--strategy sharded", IPU, "one stage is all"),
        ("--stages 2 --strategy tensor", IPU, "--strategy tensor is for CPUs and GPUs. Take --strategy pipelined"),
        ("--batch-size 8 --micro-batch-size 4 --stages 4", IPU, "has 2 for each replica"),
        ("--batch-size 24 --micro-batch-size 4 --stages 4", IPU, "filled by 7 micro-batches"),
        ("--batch-size 12 --micro-batch-size 4 --stages 4 --task inference", IPU, "filled by 4 micro-batches"),
        ("--batch-size 4 --task inference --concurrency 1 --stages 2", IPU, "Give --strategy sharded"),
        ("--batch-size 4 --task inference --concurrency 1 --micro-batch-size 2", IPU, "a request is computed at once"),
        (
            "--memory-proportion 0.1,0.2 --stages 4 --batch-size 32 --micro-batch-size 4",
            IPU,
            "has 2 numbers, and --stages",
        ),
        ("--tensor 2 --batch-size 4", IPU, "--tensor is for CPUs and GPUs"),
        ("--memory-proportion 0.1", None, "--memory-proportion is for IPUs"),
        ("--io-tiles 64", GPU, "--io-tiles is for IPUs"),
        ("--io-tiles 33", IPU, "takes an even number"),
        ("--io-tiles 64 --stages 2 --batch-size 12 --micro-batch-size 4", IPU, "none in a pipeline"),
        ("--offload --task inference", IPU, "inference has no optimizer states"),
        ("--batch-size 6 --replicas 3", IPU, "want 3 IPUs"),
        ("--batch-size 6 --stages 3 --strategy sharded", IPU, "want 3 IPUs"),
        ("--find-max-batch --replicas 2", IPU, "on one replica for what"),
        ("--find-max-batch --device-iterations 2", IPU, "on one replica for what"),
        ("--task inference --device-iterations 2", IPU, "follow from --batch-size"),
        ("--device-iterations 2", None, "is for IPUs"),
        ("--replicas 2 --concurrency 2 --task inference", None, "latency is that of one device"),
        ("--replicas 2 --strategy zero2 --offload", None, "a CPU keeps all in the memory of the host"),
        ("--replicas 2 --strategy ddp --offload", GPU, "--offload is for --strategy fsdp, zero2, zero3"),
        ("--offload", GPU, "--offload is for --strategy fsdp, zero2, zero3"),
        ("--replicas 2 --strategy fsdp --offload --precision fp16", GPU, "Take --precision bf16"),
        ("--stages 2", GAUDI, "--stages 2: on Gaudi, devices train by --strategy ddp here"),
        ("--replicas 2 --strategy fsdp", GAUDI, "--strategy fsdp: on Gaudi"),
        ("--replicas 2 --strategy zero1", GAUDI, "--strategy zero1: on Gaudi"),
        ("--stages 2", None, "--stages 2: resnet50 is no row of equal blocks"),
        ("--stages 2", {"framework": "tensorflow", "device": "cpu"}, "only PyTorch cuts models"),
        ("--stages 2 --strategy phased", None, "--stages 2: resnet50 is no row of equal blocks"),
        ("--replicas 2", {"framework": "tensorflow", "device": "ipu"}, "only PyTorch has it here"),
        ("--offload", {"framework": "tensorflow", "device": "ipu"}, "--offload: on IPUs, only PyTorch has it"),
        ("--io-tiles 64", {"framework": "tensorflow", "device": "ipu"}, "Add --device-iterations 2 or more"),
        ("--task inference --micro-batch-size 2", None, "accumulates no gradients"),
        ("--micro-batch-size 2", {"framework": "tensorflow", "device": "cpu"}, "TensorFlow computes a batch at once"),
    ],
)
def test_a_division_that_cannot_be_is_refused(words, image, said):
    with pytest.raises(UsageError, match=said):
        divided(*words.split(), image=image)


def test_a_head_on_the_first_ipu_is_a_stage_more():
    """CARAML's case is filled by nine micro-batches, there 128."""
    card = cards.load()["gpt_117m"]
    words = ["gpt_117m", "--stages", "4", "--micro-batch-size", "1", "--batch-size"]
    assert resolve(parse([*words, "9"]), card, IPU).partition[:6] == (1, 9, 1, 4, 4, "pipelined")
    with pytest.raises(UsageError, match="filled by 9 micro-batches"):
        resolve(parse([*words, "8"]), card, IPU)
    assert resolve(parse([*words, "5", "--task", "inference"]), card, IPU).device_iterations == 5


def test_the_correctness_check_has_the_stages_of_the_run():
    """One after the other: its batch fills no pipeline, and a model may not fit one IPU. Elsewhere it is whole."""
    words = ["resnet50", "--stages", "4", "--batch-size", "32", "--micro-batch-size", "4", "--memory-proportion", "0.2"]
    configuration = resolve(parse(words), CARD, IPU)
    whole, halves = (configuration.staged(given, 4) for given in (None, BatchPartition(2, accumulation=2)))
    assert whole is not None and whole[:6] == (4, 1, 1, 1, 4, "sharded") and whole.memory.proportions == [0.2]
    assert halves is not None and halves[:6] == (2, 2, 1, 1, 4, "sharded")
    assert resolve(parse(["resnet50"]), CARD, None).staged(None, 4) is None


def test_ipus_have_defaults_of_their_own():
    """Of as many stages; a smoke run has none."""
    usual = {"device_iterations": 4, "memory_proportion": [0.1, 0.2]}
    defaults = {"ipu": {"training": {**CARD.defaults["ipu"]["training"], **usual}}}
    card = CARD._replace(defaults={**CARD.defaults, **defaults})
    plain, two, own, smoke = (
        resolve(parse(["resnet50", *words.split()]), card, IPU)
        for words in ("", "--stages 2", "--stages 2 --device-iterations 1 --memory-proportion 0.3", "--smoke")
    )
    assert (plain.device_iterations, plain.memory_proportion) == (4, None)
    assert (two.device_iterations, two.memory_proportion) == (4, [0.1, 0.2])
    assert (own.device_iterations, own.memory_proportion) == (1, [0.3])
    assert (smoke.device_iterations, smoke.memory_proportion) == (1, None)


@pytest.mark.parametrize(
    ("precision", "image", "kind"),
    [("fp16", "ipu", "pure"), ("fp32", "ipu", None), ("fp16", "cuda", "mixed"), ("bf16", "cpu", "mixed")],
)
def test_half_precision_is_pure_on_ipus_alone(precision, image, kind):
    options = parse(["resnet50", "--precision", precision])
    assert resolve(options, CARD, {"framework": "pytorch", "device": image}).precision_kind == kind


CUDA = {"framework": "pytorch", "device": "cuda"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--stages 2 --batch-size 8", (4, 2, 1, 1, 2, "pipelined")),
        ("--stages 2 --batch-size 8 --micro-batch-size 1", (1, 8, 1, 1, 2, "pipelined")),
        ("--stages 4 --batch-size 8 --strategy pipelined", (2, 4, 1, 1, 4, "pipelined")),
        ("--tensor 4 --batch-size 8 --strategy tensor", (8, 1, 1, 1, 1, "tensor")),
        ("--tensor 4 --batch-size 8 --task inference", (8, 1, 1, 1, 1, "tensor")),
        ("--stages 2 --tensor 2 --batch-size 8", (4, 2, 1, 1, 2, "pipelined")),
    ],
)
def test_ranks_with_parts_of_a_model_have_the_same_samples(words, expected):
    configuration = resolve(parse(["gpt2", *words.split()]), cards.load()["gpt2"], CUDA)
    assert tuple(configuration.partition)[:6] == expected and configuration.partition.samples == 8
    assert configuration.ranks == configuration.stages * configuration.tensor == configuration.devices
    assert configuration.trained_together and list(configuration.first_ranks) == [0]
    places = [Place(rank, configuration.ranks, rank, configuration.ranks) for rank in range(configuration.ranks)]
    assert {configuration.data_place(place)[:2] for place in places} == {(0, 1)}, "all have the same samples"


@pytest.mark.parametrize(
    ("words", "expected", "samples_of", "firsts"),
    [
        ("--replicas 2 --stages 2", "ddp", [0, 1, 0, 1], [0, 1]),
        ("--replicas 2 --stages 2 --strategy fsdp --compile", "fsdp", [0, 1, 0, 1], [0, 1]),
        ("--replicas 2 --tensor 2", "fsdp", [0, 0, 1, 1], [0, 2]),
        ("--replicas 4 --strategy zero2 --shards 2", "zero2", [0, 1, 2, 3], [0, 1, 2, 3]),
        ("--replicas 2 --stages 2 --tensor 2", "fsdp", [0, 0, 1, 1, 0, 0, 1, 1], [0, 2]),
        ("--replicas 2 --tensor 2 --task inference", "tensor", [0, 0, 1, 1], [0, 2]),
        ("--replicas 2 --task inference", None, [0, 1], [0, 1]),
    ],
)
def test_ranks_of_a_mesh_have_the_samples_of_their_replica(words, expected, samples_of, firsts):
    """Stages are the outermost dimension, and the devices of a block the innermost."""
    configuration = resolve(parse(["gpt2", "--batch-size", "16", *words.split()]), cards.load()["gpt2"], CUDA)
    assert (configuration.strategy, configuration.ranks) == (expected, len(samples_of))
    places = [Place(rank, configuration.ranks, rank, configuration.ranks) for rank in range(configuration.ranks)]
    assert [configuration.data_place(place).rank for place in places] == samples_of
    assert list(configuration.first_ranks) == firsts
    assert configuration.batch_size == 16 == configuration.partition.samples * configuration.replicas


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--strategy pipelined", "Add --stages 2 or more"),
        ("--stages 2 --strategy sharded", "--strategy sharded is for IPUs. Take --strategy pipelined"),
        ("--stages 2 --strategy fsdp", "--strategy fsdp is for training on several devices. Add --replicas 2"),
        (
            "--stages 2 --replicas 2 --strategy pipelined",
            "does not say how replicas train together. Take --strategy fsdp",
        ),
        ("--stages 2 --replicas 2 --strategy zero1", "--stages 2 with --strategy zero1: it wants whole models"),
        ("--tensor 2 --replicas 2 --strategy ddp", "--tensor 2 with --strategy ddp: it wants whole models"),
        ("--stages 2 --task inference", "all stages of a pipeline but one would wait. Take --tensor in its place"),
        ("--tensor 2 --compile --task inference", "parts that answer are not compiled"),
        ("--virtual-stages 2", "there is no pipeline"),
        ("--stages 2 --virtual-stages 8 --batch-size 4", "--stages 2 --virtual-stages 8: gpt2 has 12 blocks"),
        ("--stages 2 --virtual-stages 2 --batch-size 3", "in rounds of 2 micro-batches, and --batch-size 3 has 3"),
        ("--replicas 4 --shards 2", "--shards is for --strategy fsdp, zero2, zero3"),
        ("--replicas 4 --shards 3 --strategy fsdp", "--replicas 4 make no groups of as many"),
        ("--stages 2 --find-max-batch", "on one replica for what"),
        ("--stages 13 --batch-size 13", "gpt2 has 12 blocks"),
        ("--tensor 8", "gpt2 has 12 heads and 3072 inner features, .* Give a divisor of 12"),
        ("--tensor 3", "gpt2 has 128 positions"),
        ("--strategy tensor", "Add --tensor 2 or more"),
        ("--stages 4 --batch-size 2", "a pipeline is filled by 4 micro-batches, and --batch-size 2 has 2"),
    ],
)
def test_what_ranks_with_parts_of_a_model_cannot_do_is_refused(words, said):
    with pytest.raises(UsageError, match=said):
        resolve(parse(["gpt2", *words.split()]), cards.load()["gpt2"], CUDA)


def test_adapters_are_not_divided():
    with pytest.raises(UsageError, match="adapters of llama_8b_lora are not divided. Take --strategy fsdp"):
        resolve(parse(["llama_8b_lora", "--tensor", "2"]), cards.load()["llama_8b_lora"], CUDA)


def test_experts_are_not_divided():
    with pytest.raises(UsageError, match="experts of olmoe_1b_7b are not divided. Take --strategy fsdp"):
        resolve(parse(["olmoe_1b_7b", "--tensor", "2"]), cards.load()["olmoe_1b_7b"], CUDA)


def test_instances_of_ipus_have_their_stages_within():
    options = parse(["gpt2", "--replicas", "4", "--stages", "2", "--micro-batch-size", "1", "--batch-size", "16"])
    configuration = dataclasses.replace(resolve(options, cards.load()["gpt2"], IPU), instances=2)
    assert (configuration.ranks, len(configuration.first_ranks), configuration.partition.replicas) == (2, 2, 2)
    place = Place(1, 2, 1, 2)
    assert configuration.data_place(place) == place, "each has other samples"


def test_parts_of_a_model_answer_no_requests():
    options = parse(["bert_base", "--tensor", "2", "--task", "inference", "--concurrency", "2"])
    with pytest.raises(UsageError, match="requests are answered by one device"):
        resolve(options, cards.load()["bert_base"], CUDA)


def test_a_step_of_several_updates_takes_their_samples():
    words = ["--batch-size", "8", "--device-iterations", "4", "--samples-per-epoch", "100", "--epochs", "2"]
    configuration = resolve(parse(["resnet50", *words]), CARD, IPU)
    assert (configuration.batch_size, configuration.steps_per_epoch, configuration.steps) == (8, 3, 6)
    with pytest.raises(UsageError, match="do not fill one"):
        resolve(parse(["resnet50", *words[:5], "20"]), CARD, IPU)


def test_the_cpu_accumulates_too():
    assert divided("--batch-size", "8", "--micro-batch-size", "2", image=None)[:2] == (2, 4)


def test_outside_of_images_any_device_may_be_named_and_auto_looks_for_one(monkeypatch, tmp_path):
    assert resolve(parse(["resnet50", "--device", "cuda"]), CARD, None).device == "cuda"
    with pytest.raises(UsageError, match="cpu or cuda or hpu or ipu or xpu"):
        resolve(parse(["resnet50", "--device", "abacus"]), CARD, None)
    for name in selection.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(selection, "SIGNS", {f"{tmp_path}/nvidia0": "cuda", f"{tmp_path}/ipu*": "ipu"})
    assert selection.choose(["cpu", "cuda"]) == ("cpu", f"there is no {tmp_path}/nvidia0")
    (tmp_path / "ipu0").touch()
    assert resolve(parse(["resnet50", "--device", "auto"]), CARD, None).device == "ipu"
    assert resolve(parse(["resnet50", "--device", "auto"]), CARD, {**IPU, "device": "cuda"}).device == "cpu"
    (tmp_path / "nvidia0").touch()
    assert selection.choose(["cpu", "cuda", "ipu"]) == ("cuda", f"{tmp_path}/nvidia0 is here")


@pytest.mark.parametrize(
    ("made", "kind"),
    [(".ipuof.conf.d/p.conf", "ipu"), ("dev/nvidia11", "cuda"), ("dev/nvidiactl", "cpu")]
    + [("dev/accel/accel_controlD0", "hpu"), ("dev/accel/accel0", "cpu")],
)
def test_what_a_driver_or_a_partition_leaves(monkeypatch, tmp_path, made, kind):
    for name in selection.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    at_root = {sign if sign.startswith("~") else f"{tmp_path}{sign}": of for sign, of in selection.SIGNS.items()}
    monkeypatch.setattr(selection, "SIGNS", at_root)
    (tmp_path / made).parent.mkdir(parents=True)
    (tmp_path / made).touch()
    assert selection.choose(["cpu", "cuda", "hpu", "ipu", "xpu"]).kind == kind
    monkeypatch.setenv("IPUOF_CONFIG_PATH", "/etc/ipuof.conf")
    assert selection.choose(["cpu", "cuda", "ipu", "xpu"]) == ("ipu", "IPUOF_CONFIG_PATH is set")


def test_tensorflow_computes_the_usual_micro_batch_of_ipus_at_once():
    configuration = resolve(parse(["resnet50"]), CARD, {**IPU, "framework": "tensorflow"})
    assert (configuration.batch_size, configuration.gradient_accumulation, configuration.precision) == (20, 1, "fp32")
    assert (configuration.memory_proportion, configuration.device_iterations) == ([0.16], 1)
    with pytest.raises(UsageError, match="only PyTorch has it here"):
        resolve(parse(["resnet50", "--replicas", "2"]), CARD, {**IPU, "framework": "tensorflow"})


def test_tensorflow_does_several_updates_in_a_call_of_an_ipu():
    image = {**IPU, "framework": "tensorflow"}
    plain = resolve(parse(["bert_base"]), cards.load()["bert_base"], image)
    assert (plain.device_iterations, plain.memory_proportion, plain.io_tiles) == (2, [0.25], None)
    words = "resnet50 --device-iterations 4 --io-tiles 32 --memory-proportion 0.2 --batch-size 8"
    partition = resolve(parse(words.split()), CARD, image).partition
    assert (partition.samples, partition.device_iterations, partition.memory[:2]) == (32, 4, ([0.2], 32))


@pytest.mark.parametrize("task", ["training", "inference"])
def test_half_precision_in_tensorflow_on_gpus_is_mixed(task):
    words = ["resnet50", "--precision", "fp16", "--task", task]
    assert resolve(parse(words), CARD, XLA).precision_kind == "mixed"


def test_a_usual_micro_batch_gives_way_where_it_divides_no_batch():
    configuration = resolve(parse(["resnet50"]), CARD, IPU)
    assert (configuration.batch_size, configuration.micro_batch_size) == (480, 20)
    assert configuration.gradient_accumulation == 24
    assert resolve(parse(["resnet50", "--smoke"]), CARD, IPU).partition[:6] == (2, 1, 1, 1, 1, None)
    assert divided("--batch-size", "30")[:6] == (30, 1, 1, 1, 1, None)
    assert divided("--batch-size", "40", "--replicas", "2")[:6] == (20, 1, 2, 1, 1, None)
    assert divided("--find-max-batch", "--batch-size", "40").micro_batch == 40


CUDA = {"framework": "pytorch", "device": "cuda"}
XLA = {"framework": "tensorflow", "device": "cuda"}


@pytest.mark.parametrize(
    ("words", "image", "mode", "replayed"),
    [
        ("", CUDA, None, False),
        ("--compile", CUDA, "reduce-overhead", True),
        ("--compile auto --task inference", CUDA, "reduce-overhead", True),
        ("--compile auto --task inference --concurrency 2", CUDA, "default", False),
        ("--compile auto --batch-size 8 --micro-batch-size 4", CUDA, "default", False),
        ("--compile auto --batch-size 8 --replicas 2", CUDA, "default", False),
        ("--compile", {**CUDA, "device": "xpu"}, "default", False),
        ("--compile", GAUDI, "default", False),
        ("--compile", None, "default", False),
        ("--compile", XLA, "default", False),
        ("--compile default", CUDA, "default", False),
        ("--compile max-autotune", CUDA, "max-autotune", True),
        ("--compile=max-autotune --batch-size 8 --micro-batch-size 4", CUDA, "max-autotune", False),
        ("--compile max-autotune", None, "max-autotune", False),
    ],
)
def test_auto_takes_the_mode_that_fits_device_and_workload(words, image, mode, replayed):
    resolved = resolve(parse(words.split()), CARD, image)
    assert (resolved.compile, resolved.replayed) == (mode, replayed)


@pytest.mark.parametrize(
    ("words", "image", "said"),
    [
        ("--compile reduce-overhead", None, "and not for cpu. Take --compile default"),
        ("--compile reduce-overhead --batch-size 8 --micro-batch-size 4", CUDA, "micro-batches of one update"),
        ("--compile reduce-overhead --task inference --concurrency 2", CUDA, "requests of several threads"),
        ("--compile max-autotune", XLA, "XLA has no modes. Take --compile"),
        ("--compile max-autotune", GAUDI, "hpu_backend has no modes. Take --compile"),
        ("--compile reduce-overhead", GAUDI, "hpu_backend has no modes. Take --compile"),
        ("--compile --warmup-steps 2", CUDA, "--warmup-steps 3 or more, or --compile default"),
        ("--compile --steps 3", CUDA, "Ask for at least 4 steps"),
    ],
)
def test_a_mode_without_effect_is_refused(words, image, said):
    with pytest.raises(UsageError, match=said):
        resolve(parse(words.split()), CARD, image)


@pytest.mark.parametrize("words", ["--smoke --compile", "--steps 4 --compile", "--steps 5 --compile --task inference"])
def test_graphs_are_recorded_before_the_timed_window(words):
    """The first call runs without a graph, the second records it, the third replays it."""
    assert resolve(parse(words.split()), CARD, CUDA).warmup_steps >= 3


@pytest.mark.parametrize("words", ["--compile resnet50", "resnet50 --compile", "--compile auto resnet50"])
def test_a_workload_may_follow_a_bare_compile(words):
    assert (parse(words.split()).workload, parse(words.split()).compile) == ("resnet50", "auto")


def test_true_asks_for_the_best_mode_as_in_a_study():
    asked: Any = True
    assert resolve(parse([])._replace(compile=asked), CARD, CUDA).compile == "reduce-overhead"
