"""Faults of the in-image code."""

from __future__ import annotations

from faults import Fault


def _fault(name: str, symbol: str, was: str, becomes: str, environment: str, *tests: str, side: str = "") -> Fault:
    return Fault(name, f"entrypoints{side}", symbol, was, becomes, tests, environment)


NUMERICS = "tests/inside/worker/test_torch_numerics.py"
RUN_CHECKS, GRADIENTS = "tests/inside/worker/test_torch_run_checks.py", "tests/inside/workloads/test_torch_gradients.py"
ADAPTERS = "tests/inside/workloads/test_torch_adapters.py"
SEQUENCES = "tests/inside/workloads/test_torch_sequences.py"
FLOAT8 = "tests/inside/workloads/test_torch_float8.py"
POINTS = "tests/inside/workloads/test_torch_points.py"
MIXTURES = "tests/inside/workloads/test_torch_mixtures.py"
MEETING = "tests/inside/runs/test_meeting.py"
DATA = "tests/inside/data"
INSIDE = (
    _fault(
        *("stride in the first convolution", "Bottleneck", "convolution(channels_in, width, 1)"),
        *("convolution(channels_in, width, 1, stride)", "torch_new", NUMERICS, "-k", "as_it_is_passes and resnet50"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("a gate and what it gates are mixed up", "SwiGLU.forward", "functional.silu(self.gate(x)) * self.widen(x)"),
        *("self.gate(x) * functional.silu(self.widen(x))", "torch_new", SEQUENCES, "-k", "of_transformers and llama"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("long waves are stretched without a blend", "rotary_rates"),
        "(context * rates / (2 * math.pi) - low) / (high - low)",
        *("(context * rates / (2 * math.pi) - low).sign()", "torch_new", SEQUENCES, "-k", "of_transformers and llama"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("scales of FP8 are quotients in single precision", "quantised", "largest.double()", "largest.float()"),
        *("torch_new", FLOAT8, "-k", "in_double_precision"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("calls look up the rows of the call before", "Bags.looked_up", "self.next = first + samples"),
        *("first, self.next = 0, samples", "torch_new", POINTS, "-k", "rows_of_their_own"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("sums of rows in tables are compared with themselves", "Bags.deviation", "self.expected(of)", "made.float()"),
        *("torch_new", POINTS, "-k", "wrong_sums"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("scales of FP8 are not undone", "quantised", "1 / scale", "torch.ones_like(scale)", "torch_new", FLOAT8),
        *("-k", "layers_as_they_are or in_double_precision"),
        side="/workloads/pytorch",
    ),
    _fault(
        *(
            "gradients are in the format of activations",
            "Product.backward",
            "(ctx.dtypes.backward, ctx.dtypes.forward)",
        ),
        *("(ctx.dtypes.forward, ctx.dtypes.forward)", "torch_new", FLOAT8, "-k", "layers_as_they_are"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("a bias is left out in FP8", "Float8Linear.forward", "product + self.bias.to(product.dtype)", "product"),
        *("torch_new", FLOAT8, "-k", "missing_bias"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("the head is in FP8, too", "convertible", "role in CONVERTED", "role in (*CONVERTED, roles.LOGITS)"),
        *("torch_new", FLOAT8, "-k", "layers_as_they_are"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("operations in FP8 take as long as others", "_computing", "part.in_fp8 / roof.fp8"),
        *("part.in_fp8 / roof.operations", "py38", "tests/inside/results/test_roofline.py", "-k", "its_own_peak"),
        side="/results",
    ),
    _fault(
        *("weights of experts are renormalised the other way", "Router.forward"),
        *("self.renormalised", "not self.renormalised", "torch_new", MIXTURES, "-k", "weights_of_the_scores"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("all texts have the same experts at a place", "Router.in_turn", "(texts + places)", "places"),
        *("torch_new", MIXTURES, "-k", "new_tokens"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("what experts make stays in their order", "Experts.forward", "Reordered.apply(made, back, order)", "made"),
        *("torch_new", SEQUENCES, "-k", "of_transformers and olmoe"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("a window is larger by one", "attend_in_blocks", "(back < window)", "(back <= window)"),
        *("torch_new", MIXTURES, "-k", "in_one_operation"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("a place sees a sink of its own", "attend", "before = (0, 0, 1, 0)", "before = (0, 0, 0, 1)"),
        *("torch_new", MIXTURES, "-k", "in_one_operation"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("a token reads all experts", "_read_share"),
        *('max(0.0, 1 - tokens * experts["per_token"] / experts["count"])', "0.0"),
        *("py38", "tests/inside/results/test_roofline.py", "-k", "experts_than"),
        side="/results",
    ),
    _fault(
        *("keys are dealt out to queries in turn", "GroupedQueryAttention.attend"),
        *("each.repeat_interleave(group, dim=1)", "each.repeat(1, group, 1, 1)"),
        *("torch_new", SEQUENCES, "-k", "the_reference_s and llama_1b"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("every query has a key in the cache", "_generation", "heads.kv_heads", "heads.heads"),
        *("py38", "tests/inside/results/test_roofline.py", "-k", "group_of_queries"),
        side="/results",
    ),
    _fault(
        *("the gradient of a head is made for nobody", "chunked_cross_entropy", "weight.requires_grad", "True"),
        *("torch_new", ADAPTERS, "-k", "nothing_computes"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("an adapter is scaled by its alpha alone", "AdaptedLinear", 'rule["alpha"] / rule["rank"]', 'rule["alpha"]'),
        *("torch_new", SEQUENCES, "-k", "of_transformers and lora"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("the network is trained with its adapters", "network", "built.requires_grad_(False)", "None"),
        *("torch_new", ADAPTERS),
        side="/workloads/pytorch",
    ),
    _fault(
        *("weights that are not trained have states", "estimate", 'trained * states_of(card.problem["optimizer"])'),
        *('states_of(card.problem["optimizer"])', "py38", "tests/inside/worker/test_memory_estimate.py"),
        side="/worker",
    ),
    _fault(
        *("RMSNorm decays", "LAYERS", "RMSNorm", "nn.LayerNorm"),
        *("torch_new", SEQUENCES, "-k", "twenty_steps and llama_1b"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("gradients not clipped", "update", "self.gradient_norm is not None", "False", "torch_new"),
        *(NUMERICS, "-k", "as_it_is_passes and bert_large"),
        side="/devices/pytorch/shared",
    ),
    _fault(
        *("micro-batches count whole", "scaled", "loss / self.accumulation_steps", "loss", "torch_new"),
        *("tests/inside/workloads/test_torch_learning.py", "-k", "micro_batches"),
    ),
    _fault(
        *("copies in caches count as copies in memory", "bandwidths", "rate.size >= cache.left_from", "rate.size > 0"),
        *("py38", "tests/inside/results/test_copies.py"),
        side="/results",
    ),
    _fault(
        *("whole numbers are multiplied in the timed window", "MatrixProducts.fill", "factor.normal_()"),
        *("factor.fill_(1)", "torch_new", POINTS, "-k", "normal"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("a rule that raises ends in a traceback", "_kept", "Exception", "ArithmeticError"),
        *("py38", "tests/inside/rules/test_rules.py", "-k", "raises_whatever"),
        side="/rules",
    ),
    _fault(
        *("rules judge what is too large", "violations", 'beyond or document["status"]["state"] == UNJUDGED'),
        *('document["status"]["state"] == UNJUDGED', "py38", "tests/inside/rules/test_rules.py", "-k", "by_no_other"),
        side="/rules",
    ),
    _fault(
        *("lists of a result have any length", "_sizes", "len(value) > MOST_ENTRIES", "False", "py38"),
        *("tests/inside/rules/test_rules.py", "-k", "judged_by_no_other"),
        side="/rules",
    ),
    _fault(
        *("rules work as long as a number says", "ranks_are_all_there", "facts.ranks if facts.ranks > 1 else 0"),
        *("len(list(range(facts.ranks))) if facts.ranks > 1 else 0", "py38"),
        *("tests/inside/rules/test_rules.py", "-k", "how_much_work"),
        side="/rules",
    ),
    _fault(
        *("memory may be negative", "facts_are_amounts", "value < 0", "value < -1e9", "py38"),
        *("tests/inside/rules/test_rules.py", "-k", "forgery_breaks"),
        side="/rules",
    ),
    _fault(
        *(
            "one slow call is no part of a sweep",
            "rates_follow_from_seconds",
            'seconds["max"] > longest',
            "False",
            "py38",
        ),
        *("tests/inside/rules/test_rules.py", "-k", "cannot_do"),
        side="/rules",
    ),
    _fault(
        *("synchronisation dropped before an answer", "infer_request", "self.wait_for_request()", "None", "torch_new"),
        "tests/inside/devices/test_torch_gpu.py",
    ),
    _fault(
        *("milliseconds taken for seconds", "seconds_between", "milliseconds / 1000", "milliseconds", "torch_new"),
        "tests/inside/devices/test_torch_gpu.py",
    ),
    _fault(
        *("a manifest counts more than fits", "read"),
        *('file["samples"] * LEAST.get(document["format"], 1) > file["bytes"]', "False"),
        *("py38", f"{DATA}/test_formats.py"),
        side="/data",
    ),
    _fault(
        *("all errors of a manifest are looked at", "_require_form"),
        *("islice(checker.iter_errors(document), MOST_ERRORS)", "checker.iter_errors(document)"),
        *("py38", f"{DATA}/test_formats.py"),
    ),
    _fault(
        *("a device is data", "open_source", "path.is_dir() or path.is_file()", "path.exists()"),
        *("py38", f"{DATA}/test_formats.py"),
    ),
    _fault(
        *("a header of a shard has any size", "_Headers.read", "0 <= size <= LONGEST_HEADER", "True"),
        *("py38", f"{DATA}/test_shards.py"),
    ),
    _fault(
        *("a sample of a shard has any size", "_content", "min(header.size, most)", "header.size"),
        *("py38", f"{DATA}/test_shards.py"),
    ),
    _fault(
        *("an image has any size", "read_whole", "size > LARGEST", "False", "py38", f"{DATA}/test_folder.py"),
    ),
    _fault(
        *("idx files unpack to anything", "_chunks", "most and (piece := stream.read1(min(CHUNK, most)))"),
        *("(piece := stream.read1(CHUNK))", "py38", f"{DATA}/test_idx.py"),
    ),
    _fault(
        *("every format of Pillow is decoded", "opened", "Image.open(io.BytesIO(content), formats=FORMATS)"),
        *("Image.open(io.BytesIO(content))", "torch_new", f"{DATA}/test_images.py"),
        side="/data",
    ),
    _fault(
        *("images of all sizes are decoded", "opened", "size > MOST_PIXELS", "False"),
        *("torch_new", f"{DATA}/test_images.py"),
        side="/data",
    ),
    _fault(
        *("all scans of a JPEG are decoded", "opened", "size * content.count(SCAN) > MOST_SCANNED", "False"),
        *("torch_new", f"{DATA}/test_images.py"),
        side="/data",
    ),
    _fault(
        *("answers are nested to any depth", "_questions", "RecursionError", "RuntimeWarning"),
        *("torch_new", f"{DATA}/test_answers.py"),
    ),
    _fault(
        *("a row of a table has no end", "_lines", "len(line) == LONGEST_LINE", "False"),
        *("py38", f"{DATA}/test_table.py"),
        side="/data",
    ),
    _fault(
        *("a name does what it likes to a terminal", "Progress.note", "printable(text)", "text"),
        *("py38", "tests/inside/runs/test_progress.py"),
    ),
    _fault(
        *("a check shows no sign of life", "Progress.beat", "self.pace.phase not in STEPPED", "False"),
        *("py38", "tests/inside/runs/test_progress.py", "-k", "lives"),
    ),
    _fault(
        *("the time left is that of steps alone", "Pace.left", "max(self.seconds, self.window_seconds)"),
        *("self.seconds", "py38", "tests/inside/runs/test_progress.py", "-k", "the_clock"),
    ),
    _fault(
        *("few steps have a 99th percentile in an image", "step_time_p99", "not why", "True", "py38"),
        *("tests/inside/results/test_metrics.py",),
    ),
    _fault(
        *("threads that sleep are said to spin", "spins", "map(_PASSIVE.match, each)", "[]", "py38"),
        *("tests/inside/system/test_openmp.py",),
    ),
    _fault(
        *("a job within a job counts", "job", "next((name for name in JOB_VARIABLES if environment.get(name)), None)"),
        *("next((name for name in reversed(JOB_VARIABLES) if environment.get(name)), None)",),
        *("py38", "tests/inside/system/test_session.py"),
        side="/system",
    ),
    _fault(
        *("synchronisation dropped at a phase's edge", "Loop.settle", "self.session.synchronise()", "None", "py38"),
        "tests/inside/worker/test_loop.py",
    ),
    _fault(
        *("transition accepted the wrong way", "HamiltonianMonteCarlo.next_state", "threshold < ratio"),
        *("threshold > ratio", "torch_new", "tests/inside/workloads/test_torch_chains.py"),
    ),
    _fault(
        *("no bias correction in TensorFlow", "share", "self.updates * float(np.log(np.float64(np.float32(beta))))"),
        *("-50.0 + 0 * self.updates", "tf_new", "tests/inside/workloads/test_tf_layers.py", "-k", "adam or lamb"),
    ),
    _fault(
        *("a wide tolerance of the numerics", "_compare_precision", "item.share > 1", "item.share > 100", "py38"),
        "tests/inside/results/test_numerics.py",
    ),
    _fault(
        *("not a number matches", "share", "self.value / self.tolerance if math.isfinite(self.value) else math.inf"),
        *("self.value / self.tolerance", "py38", "tests/inside/results/test_numerics.py"),
    ),
    _fault(
        *("energy by the right edge alone", "integrated", "(b[0] - a[0]) * (a[1] + b[1]) / 2"),
        *("(b[0] - a[0]) * b[1]", "py38", "tests/inside/metering"),
    ),
    _fault(
        *("a counter that wraps loses its range", "gain", "after - before + top", "after - before", "py38"),
        "tests/inside/metering",
    ),
    _fault(
        *("watt-seconds taken for watt-hours", "units_per_watt_hour", "joules / 3600", "joules", "py38"),
        *("tests/inside/results/test_metrics.py", "tests/inside/metering"),
    ),
    _fault(
        *("every rank counts the devices", "_take", "taken.bind(address)", "None", "py38"),
        "tests/inside/runs/test_metered.py",
    ),
    _fault(
        *("memory limit in the wrong unit", "limit_process", "mib * MIB", "mib * MIB * 1024", "py38"),
        *("tests/inside/system/test_memory.py", "tests/inside/runs/test_batch_search.py"),
    ),
    _fault(
        *("only the child is killed", "_kill", "os.killpg(self.process.pid, signal.SIGKILL)"),
        *(
            "os.kill(self.process.pid, signal.SIGKILL)",
            "py38",
            "tests/inside/runs/test_faults.py",
            "-k",
            "what_a_child_started",
        ),
    ),
    _fault(
        *("no lock on a file of lines", "ResultLines.write", "fcntl.flock(descriptor, fcntl.LOCK_EX)", "None", "py38"),
        "tests/inside/runs/test_output.py",
    ),
    _fault(
        *("a torn line is not ended", "ResultLines.write", 'b"\\n" * bool(torn)', 'b""', "py38"),
        *("tests/inside/runs/test_series.py", "tests/inside/runs/test_output.py", "-k", "torn"),
    ),
    _fault(
        *("a result is not synced to the disk", "draft_file", "os.fsync(file.fileno())", "None", "py38"),
        "tests/inside/runs/test_output.py",
    ),
    _fault(
        *("results are not checked by their schema", "problems", "errors[:limit]", "errors[:0]", "py38"),
        "tests/inside/runs/test_output.py",
    ),
    _fault(
        *("the search ends one early", "Bracket.next", "self.fails - self.fits > 1", "self.fails - self.fits > 2"),
        *("py38", "tests/inside/runs/test_batch_search.py"),
    ),
    _fault(
        *("a record's length is believed", "count", "checksum is not None and checksum != masked(crc32c(header[:8]))"),
        *("False", "py38", "tests/inside/data/test_records.py"),
    ),
    _fault(
        *("warm-up counts as measured", "window", "self.timed_steps", "self.warmup_steps + self.timed_steps", "py38"),
        *("tests/inside/results", "tests/inside/worker/test_outside_clock.py"),
    ),
    _fault(
        *("a loss above the target reaches it", "reached", 'evaluation.loss <= target["value"]', "True", "py38"),
        "tests/inside/worker/test_target_pursuit.py",
    ),
    _fault(
        *("a bias without effect needs a gradient", "Span.without_effect", "yield self.ends.bias", "yield from ()"),
        *("torch_new", GRADIENTS, "-k", "bert_base"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("a shift that is lost needs a gradient", "mark_lost_shifts", "block.shift_is_lost = lost", "pass"),
        *("torch_new", GRADIENTS, "-k", "mobilenet_v3_small"),
    ),
    _fault(
        *("no weight needs a gradient", "units", "without_effect(network)", "network.parameters()", "torch_new"),
        *(RUN_CHECKS, "-k", "left_out"),
        side="/workloads/pytorch",
    ),
    _fault(
        *("half precision must not round", "answers", "NEAR.get(precision, NEAR_ELSEWHERE)", 'NEAR["fp32"]'),
        *("torch_new", RUN_CHECKS, "-k", "adds_up"),
        side="/worker",
    ),
    _fault(
        *("strangers at the port are let in", "_proves"),
        *('hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())', "True"),
        *("py38", MEETING, "-k", "forged"),
    ),
    _fault(
        *("a hello may be played back", "Stranger.hello", "secrets.token_hex(BYTES // 2)", '"0" * BYTES', "py38"),
        *(MEETING, "-k", "second_time"),
    ),
    _fault(
        *("what a task says is not covered by its proof", "proof", "[word, *nonces, *said]", "[word, *nonces]", "py38"),
        *(MEETING, "-k", "one_byte"),
        side="/runs",
    ),
    _fault(
        *("strangers may take their time", "Door.arrivals", "time.monotonic() > stranger.until", "False", "py38"),
        *(MEETING, "-k", "says_nothing"),
    ),
    _fault(
        *("a first line may have any length", "Line.read", "self.longest", "LONGEST_LINE", "py38"),
        *(MEETING, "-k", "long_first"),
    ),
    _fault(
        *("a nested line ends the launch", "Line.read", "RecursionError", "KeyError", "py38"),
        *(MEETING, "-k", "choke"),
    ),
    _fault(
        *("another user's process is let in", "_require_own_process", "user != os.geteuid()", "False", "py38"),
        *(MEETING, "-k", "another_user"),
    ),
    _fault(
        *("a task talks to whoever listens", "_introduced", 'not _proves(answer[0][2:], secret, "head", nonces)'),
        *("False", "py38", MEETING, "-k", "talk_to"),
    ),
    _fault(
        *("a secret that others can read is believed", "_secret_in_file", "0o077", "0", "py38"),
        *(MEETING, "-k", "not_believed"),
    ),
    _fault(
        *("a secret in a folder of others is believed", "_own_folder", "0o022", "0", "py38"),
        *(MEETING, "-k", "not_believed"),
    ),
    _fault(
        *("ranks get the secret of their launch", "given_secret", "environment.pop", "environment.get", "py38"),
        *("tests/inside/runs/test_hub.py", "-k", "nobody_sees"),
    ),
    _fault(
        *("ranks are where their task says", "Follower._heard", "message._replace(host=self.address)", "message"),
        *("py38", MEETING, "-k", "connected_from"),
    ),
    _fault(
        *("an ending of any form counts", "_ending", "not right", "False", "py38"),
        *(MEETING, "-k", "no_ending"),
    ),
    _fault(
        *("ranks hear of the first one alone", "converse", "configuration.ranks if message.everyone else 1", "1"),
        *("tf_new", "tests/inside/runs/test_tf_ranks.py", "-k", "train_as_one"),
    ),
    _fault(
        *("a stop by signal is no stop", "keep_order", "len(self.orders.signals) > 1", "False", "py38"),
        *("tests/inside/runs/test_faults.py", "-k", "second_signal"),
    ),
    _fault(
        *("nodes of one device keep whole copies", "Parallelism.mesh", "near > 1", "near > 0", "torch_new"),
        *("tests/inside/devices/test_torch_strategies.py", "-k", "form_a_mesh"),
        side="/contract",
    ),
    _fault(
        *(
            "stages read other samples",
            "Configuration.data_place",
            "place.rank // self.tensor % self.replicas",
            "place.rank",
            "py38",
        ),
        *("tests/inside/planning/test_configuration.py", "-k", "samples"),
        side="/planning",
    ),
    _fault(
        *("stages of a replica count twice", "combined", "[own[rank] for rank in firsts]", "own", "py38"),
        "tests/inside/results/test_ranks.py",
        side="/results",
    ),
)
