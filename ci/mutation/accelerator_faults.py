"""Faults of what is for accelerators: proofs, bounds, defaults, compilation, streams, states of devices, fast paths."""

from __future__ import annotations

from faults import Fault

PROOF, PROVE = "tests/inside/proof/test_proof.py", "tests/unit/commands/test_prove_command.py"
BOUNDS, DEFAULTS = "tests/inside/results/test_roofline.py", "tests/inside/planning/test_device_defaults.py"
EXECUTION, GPU = "tests/inside/devices/test_torch_execution.py", "tests/inside/devices/test_torch_gpu.py"
ROCM, IPU = "tests/inside/devices/test_torch_rocm.py", "tests/inside/devices/test_torch_ipu.py"
TRANSFER, LOAD = "tests/inside/devices/test_torch_transfer.py", "tests/inside/metering/test_load.py"
DECODING, LAMB = "tests/inside/workloads/test_torch_decoding.py", "tests/inside/workloads/test_torch_optimizers.py"
COMPILED = '_on(device, name, *FAST, "--compile", "--steps", "30", "--warmup-steps", "5")'
VISIBLE = "torch.arange(kept[0].shape[3], device=token.device) {} position"
BUCKETS = "ZeroRedundancyOptimizer(groups, of_share, parameters_as_bucket_view={})"
PACKED = "torch.ops.mkl._mkl_linear(x, self.packed, self.weight, {}, self.rows)"


def _plain(name: str, symbol: str, was: str, becomes: str, *tests: str, side: str = "") -> Fault:
    return Fault(name, f"entrypoints{side}", symbol, was, becomes, tests, "py38")


def _software(name: str, symbol: str, was: str, becomes: str) -> Fault:
    return _plain(name, symbol, was, becomes, "tests/inside/system/test_gpu_software.py", side="/system")


def _torch(name: str, symbol: str, was: str, becomes: str, *tests: str, side: str = "") -> Fault:
    return Fault(name, f"entrypoints{side}", symbol, was, becomes, tests, "torch_new")


def _host(name: str, symbol: str, was: str, becomes: str, *tests: str) -> Fault:
    return Fault(name, "sifmark", symbol, was, becomes, tests, ".venv")


def _judge(name: str, symbol: str, was: str, becomes: str) -> Fault:
    return _plain(name, symbol, was, becomes, PROOF, "-k", "what_a_judge_says", side="/proof")


PROOFS = (
    _judge("steps shorter than their window hold", "time", "abs(total / window - 1)", "total / window - 1"),
    _judge("graphs that were not replayed hold", "graphs", "HELD if replayed else FAILED", "HELD"),
    _judge("a device beats its bound in a proof", "throughput", "share <= 1", "True"),
    _judge("a stopped run without a step holds", "limit", "steps > 0", "True"),
    _plain(
        *("a proof of graphs compiles nothing", "of_device", COMPILED, COMPILED.replace('"--compile", ', "")),
        *(PROOF, "-k", "experiments_ask"),
    ),
    _plain(
        *("a proof of streams has no single client", "of_device", "(1, CLIENTS)", "(CLIENTS, CLIENTS)"),
        *(PROOF, "-k", "experiments_ask"),
    ),
    _plain(
        *("a correctness check that crashed is not provable", "_findings", "ends.get(outcome.state, FAILED)"),
        *("ends.get(outcome.state, NOT_PROVABLE)", PROOF, "-k", "correctness_check"),
        side="/proof",
    ),
    _plain(
        *("a run of a proof takes all its time", "Proof.share", "SHARE * self.left()", "self.left()"),
        *(PROOF, "-k", "leaves_time"),
    ),
    _plain(
        *("a run of a proof gets an order again and again", "Proof.start", "self.orders.signals[passed_on:]"),
        *("self.orders.signals", PROOF, "-k", "passed_on_once"),
    ),
    _plain(
        *("a page hides what failed below", "_claims", 'STATES.index(each["state"])', "0", PROOF, "-k", "page_begins"),
        side="/proof",
    ),
    _plain(
        *("a page forbids its own style", "render", "STYLE.encode()", 'b""', PROOF, "-k", "page_allows"),
        side="/proof",
    ),
    _host(
        *("an image may be replaced before its proof", "_in_image", "image.require_unchanged()", "None", PROVE),
    ),
    _host("a proof is overwritten", "prove_device", "(folder / names.PROOF).exists()", "False", PROVE),
)
ROOFLINES = (
    _plain(
        *("a token is computed while another is read", "bound", "math.fsum(map(max, computing, moving))"),
        *("max(math.fsum(computing), math.fsum(moving))", BOUNDS),
    ),
    _plain(
        "a text needs the pairs that it does not see", "seen_pairs", "most + 1", "2 * most", BOUNDS, side="/results"
    ),
    _plain("requests share no weights", "_bytes", "weights / streams", "weights", BOUNDS, side="/results"),
    _plain(
        *("states on the host are read from the device", "_bytes", 'configuration.get("offload")', "False", BOUNDS),
        side="/results",
    ),
    _plain(
        *("an impossible throughput is valid", "throughput_is_possible", "throughput <= highest.throughput", "True"),
        BOUNDS,
    ),
    _plain(
        *("a simulated device has the bound of a real one", "throughput_is_possible"),
        *('facts.document["provenance"]["simulated"]', "False", BOUNDS),
    ),
)
CONFIGURATIONS = (
    _plain(
        *("the first GPU with bf16 has none", "_precision", "device.capability >= least", "device.capability > least"),
        DEFAULTS,
        side="/planning",
    ),
    _plain(
        *("a GPU of AMD computes in TF32", "_precision", 'precision == "tf32" and device.capability is None', "False"),
        DEFAULTS,
        side="/planning",
    ),
    _plain("each trial of a search compiles", "_obstacle", "options.find_max_batch", "False", DEFAULTS),
    _software("Triton needs no compiler", "fault_of_compiler", "compiler is None", "False"),
    _software("Triton needs no headers", "fault_of_compiler", 'not Path(include, "Python.h").is_file()', "False"),
    _software("a compiler that fails compiles", "fault_of_compiler", "done.returncode == 0", "True"),
    _software("Triton looks for the driver itself", "driver_for_triton", "not (BOUND / LIBCUDA).exists()", "True"),
    _software(
        *("a driver library as new as the driver is newer", "newer_driver"),
        *("_major(_version(library.name)) > _major(host)", "_major(_version(library.name)) >= _major(host)"),
    ),
    _software("a driver library need not start", "newer_driver", "_starts(library.parent)", "True"),
    _software(
        *("the driver library in use is always the host's", "driver_library"),
        *('next((name for name in names if "." in name), None) or kernel_driver()', "kernel_driver()"),
    ),
    _plain(
        *(
            "older packages of the base come before ours",
            "arrange_path",
            "[ROOT, *ours, *kept]",
            "[ROOT, *kept, *ours]",
        ),
        *("tests/inside/cli/test_program.py", "-k", "older_packages"),
    ),
    _plain(
        *("packages in a home folder are imported", "arrange_path", 'entry.rstrip("/") not in dropped', "True"),
        *("tests/inside/cli/test_program.py", "-k", "home_folder"),
    ),
    _plain(
        *("any Python runs an image", "other_python", 'built["python"] == running', "True"),
        *("tests/inside/cli/test_program.py", "-k", "another_python"),
    ),
    _host(
        *("an interpreter of root is for everybody", "_fault", "_HOME in folders", "False"),
        "tests/unit/layers/test_interpreter.py",
    ),
    _host(
        *("an interpreter may have any version", "_fault", "version[1] != python", "False"),
        "tests/unit/layers/test_interpreter.py",
    ),
    _plain("a usual micro-batch fills any pipeline", "partition", "batch_size >= filling * step", "True", DEFAULTS),
    _torch(
        *("a model without graphs records them", "compile_model", "with_graphs if graphs else without", "with_graphs"),
        *(GPU, "-k", "replayed_as_graphs"),
    ),
    _torch(
        *("a first compilation is another one", "_recompilations", "count - 1", "count", EXECUTION, "-k", "captured"),
    ),
)
STREAMS = (
    _plain(
        *("the host runs ahead", "Loop.step", "len(self.pending) >= AHEAD", "False"),
        *("tests/inside/worker/test_loop.py", "-k", "ahead"),
    ),
    _torch(
        *("a step does not wait for its copy", "received", "stream.wait_event(transit.arrived)", "None"),
        *(TRANSFER, "-k", "is_copied_while"),
    ),
    _torch(
        *("batches pile up on the device", "CopyingFeed.__init__", "queue.Queue(AHEAD)", "queue.Queue()"),
        *(TRANSFER, "-k", "few_batches"),
    ),
    _torch(
        *("the window's peak has what was taken before", "GpuSession.reset_peak_memory"),
        *("self.runtime.reset_peak_memory_stats()", "None", GPU, "-k", "peak_of_the_window"),
    ),
)
EXAMINED = (
    _plain(
        *("traffic before the window counts", "risen", "interpolated(times, values, window[0])", "values[0]", LOAD),
        *("-k", "those_of_the_window"),
    ),
    _plain(
        *("a counter in other units is believed", "_limits", "seconds <= FASTEST * length + STEP", "True", LOAD),
        *("-k", "faster_than_time"),
        side="/metering",
    ),
    _host(
        *("pure half precision is compared with mixed", "_settings", "precision_kind(configuration) or MIXED", "MIXED"),
        *("tests/unit/results/test_compare.py", "-k", "mixed_or_pure"),
    ),
    _plain(
        *("kills before a run are of it", "Child.oom_killed", "after > self.oom_kills_before", "after > 0"),
        *("tests/inside/runs/test_faults.py", "-k", "only_kills"),
    ),
)
COMPUTED = (
    _torch(
        *("classes that are too many count", "loss_and_gradients", "-math.inf", "0.0"),
        *(DECODING, "-k", "loss_in_chunks"),
    ),
    _torch(
        *("shards without numbers shift the norms of others", "squares", "next(norms) if shard.numel() else nothing"),
        *("next(norms, nothing)", "tests/inside/devices/test_torch_shards.py"),
    ),
    _torch(
        *("the slowest kernel of attention is taken", "AttentionChoice.take", "lambda name: measured[name]"),
        *("lambda name: -measured[name]", "tests/inside/devices/test_torch_attention.py"),
    ),
    _torch(
        *("groups that are computed together have the weights of the first", "merged", "parts[:, place]"),
        *("parts[:, 0]", "tests/inside/devices/test_torch_grouping.py", "-k", "same_outputs"),
    ),
    _torch(
        *("the slowest number of groups is taken", "_fastest", "min(times, key=lambda groups: times[groups])"),
        *(
            "max(times, key=lambda groups: times[groups])",
            "tests/inside/devices/test_torch_grouping.py",
            "-k",
            "fastest",
        ),
    ),
    _torch(
        *("shards of frozen weights are wide", "narrow_frozen", "not parameter.requires_grad", "False"),
        *("tests/inside/devices/test_torch_one_rank.py", "-k", "frozen"),
    ),
    _torch(
        *("zero1 sends tensor by tensor", "SharedOptimizer.optimizer"),
        *(BUCKETS.format("together"), BUCKETS.format("False")),
        *("tests/inside/devices/test_torch_one_rank.py", "-k", "one_message"),
    ),
    _torch(
        *("convolutions lose their memory format to zero1", "SharedOptimizer.optimizer"),
        *("all(weight.is_contiguous() for weight in model.parameters())", "True"),
        *("tests/inside/devices/test_torch_one_rank.py", "-k", "memory_format"),
    ),
    _torch(
        *("a loss in chunks ignores what follows it", "ChunkedLoss.backward", "gradient / len(by_rows)"),
        *("1 / len(by_rows)", DECODING, "-k", "loss_in_chunks"),
    ),
    _torch(
        *(
            "a new token does not see itself",
            "Transformer.decode_step_static",
            VISIBLE.format("<="),
            VISIBLE.format("<"),
        ),
        *(DECODING, "-k", "memory_of_one_shape"),
    ),
    _torch(
        *("a graph is replayed for texts of another size", "ReplayedGeneration.prefill"),
        *("self.own.kept[0].shape != first.kept[0].shape", "False", DECODING, "-k", "another_size"),
    ),
    _torch(
        *("packed weights have no bias", "PackedLinear.forward", PACKED.format("self.bias"), PACKED.format("None")),
        *(DECODING, "-k", "packed"),
    ),
    _torch(
        *("LAMB takes tensor by tensor", "bundles", "BUNDLE_LIMITS.get(parameter.device.type, BUNDLE_LIMIT)", "0"),
        *(LAMB, "-k", "half_as_many"),
    ),
    _torch(
        *("a step of nothing is scaled", "Lamb.trust", "(size > 0) & (length > 0)", "size > 0", LAMB),
        *("-k", "of_nothing"),
        side="/workloads/pytorch",
    ),
    _torch(
        *("LAMB counts the steps that it skips", "Lamb.fused_steps", "count -= self.skipped", "pass"),
        *(LAMB, "-k", "overflows"),
    ),
    _torch(
        *("LAMB decays weights in a step that it skips", "Lamb.trust", "trust * (1 - self.found_inf)", "trust"),
        *(LAMB, "-k", "overflows"),
    ),
    _torch(
        *("each model of a process has a memory format of its own", "choose_layout", "LAYOUT.reason", "False"),
        *(ROCM, "-k", "chooses_once"),
        side="/devices",
    ),
    _plain(
        *("an import after the rest is in it", "_importing", "min(imported, rest[1])", "imported"),
        *("tests/inside/metering/test_meters_sampling.py", "-k", "imported_while"),
    ),
    _plain(
        *("the import lasts until the rest is over", "_phase_seconds", "Waited", "Evaluated"),
        *("tests/inside/metering/test_meters_sampling.py", "-k", "imported_while"),
    ),
    _plain(
        *("whoever likes may have waited", "Protocol._waited", "not self.waits", "False"),
        *("tests/inside/runs/test_protocol.py", "-k", "is_to_wait"),
    ),
    _torch(
        *("a reduced JPEG is cut as if it were whole", "resized", "edge / reduced", "edge"),
        *("tests/inside/data/test_images.py", "-k", "fraction_of_its_size"),
        side="/data",
    ),
    _torch(
        *("an image that lies is cut as if it stood", "upright_size", "file.getexif().get(ORIENTATION) in LYING"),
        *("False", "tests/inside/data/test_images.py", "-k", "fraction_of_its_size"),
        side="/data",
    ),
    _torch(
        *("parts of a checkpoint may be exchanged", "numbers", "sequence(len(tensor) + part, tensor.device)[part:]"),
        *("sequence(len(tensor), tensor.device)", "tests/inside/workloads/test_torch_points.py", "-k", "confuses"),
        side="/workloads/pytorch",
    ),
    _torch(
        *("a save that is only begun has a bandwidth", "TimedPoint.bandwidth", "self.point.mode != STAGE", "True"),
        *("tests/inside/workloads/test_torch_points.py", "-k", "each_mode"),
    ),
    _plain(
        *("a rank that sees only its GPU is bound to no processors", "addresses", "_of_number(module.address, number)"),
        *("module.address(number)", "tests/inside/metering/test_meters_vendors.py", "-k", "is_near_the_gpu"),
    ),
    _torch(
        *("MIOpen's search is timed", "_seconds", "number == WARM_UP", "number == 0", ROCM, "-k", "first_calls"),
        side="/devices",
    ),
    _torch(
        *("ranks choose a memory format each", "choose_layout", "agreed(float(fastest is torch.channels_last))"),
        *("fastest is torch.channels_last", ROCM, "-k", "format_of_the_first"),
    ),
    _torch(
        *("a tied head weighs on the last IPU", "beginnings", "tied_head(network) is not None", "False"),
        *(IPU, "-k", "first_stage_alone"),
        side="/devices",
    ),
)
ACCELERATORS = (*PROOFS, *ROOFLINES, *CONFIGURATIONS, *STREAMS, *EXAMINED, *COMPUTED)
