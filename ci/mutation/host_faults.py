"""Faults of the host side."""

from __future__ import annotations

from faults import Fault


def _fault(name: str, symbol: str, was: str, becomes: str, *tests: str, side: str = "") -> Fault:
    return Fault(name, f"sifmark{side}", symbol, was, becomes, tests, ".venv")


REGISTRY, LAYERS, TRUST = "tests/unit/test_registry.py", "tests/unit/layers", "tests/unit/trust"
VERSIONS = "tests/unit/results/test_versions.py"
COVERAGE, RUN = "tests/unit/engines/test_sif_coverage.py", "tests/unit/commands/test_run_command.py"
SESSIONS = "tests/unit/results/test_sessions.py"
REPEATING = "tests/unit/engines/test_repeating.py"
REPEATED, LOAD = "tests/unit/commands/test_repeated_runs.py", "tests/unit/doctor/test_host_load.py"
HEADLINES = "tests/unit/report/test_headlines.py"
WORDS = "tests/unit/report/test_words.py"
FIRST_SCREEN = "tests/unit/report/test_first_screen.py"
SPREADSHEETS, RENDER = "tests/unit/core/test_spreadsheets.py", "tests/unit/recipes/test_render.py"
HOSTILE, STORES = "tests/unit/datasets/test_hostile_sources.py", "tests/unit/publish/test_publish_stores.py"
RESULTS = "tests/unit/results/test_load.py"
CONSUMERS, METERING = "tests/unit/results/test_consumers.py", "tests/unit/test_metering.py"
TERMINAL = "tests/unit/results/test_terminal.py"
BUDGET = "tests/unit/studies/test_running.py"
HOST = (
    _fault(
        *("a busy host before a stopped run is not said", "disturbances", "pressure > PRESSED", "False"),
        *(TERMINAL, "-k", "stopped_on_a_busy"),
        side="/results",
    ),
    _fault(
        *("a ratio below its number has no interval", "ratio", "below or self.detail is Detail.SIGNS", "False"),
        *(TERMINAL, "-k", "one_configuration"),
        side="/results",
    ),
    _fault(
        *("a run left out for a budget is not noted", "_leave_out", "self._budget is not None", "False"),
        *(BUDGET, "-k", "budget"),
        side="/studies",
    ),
    _fault(
        *("a failed run passes in JUnit", "_checks", "Status.PASSED if end == _COMPLETED else Status.FAILED"),
        *("Status.PASSED", CONSUMERS, "-k", "fails_in_junit"),
        side="/results",
    ),
    _fault(
        *("a new driver makes another series", "series_of", "name not in _CHANGES", "True"),
        *(CONSUMERS, "-k", "keeps_it"),
        side="/results",
    ),
    _fault(
        *("metrics of both directions go to one file", "_for_action", "each.headlines(direction)"),
        *("each.headlines(*Direction)", CONSUMERS, "-k", "each_direction"),
        side="/results",
    ),
    _fault(
        *("MLPerf's run begins when the process does", "_mllog_lines", "stop - 1000 * trained", "begin"),
        *(CONSUMERS, "-k", "time_that_was_measured"),
        side="/results",
    ),
    _fault(
        *("a rank without a document is not missed", "_summed", "len(documents) < tasks", "False"),
        *(METERING, "-k", "lacks_a_part"),
    ),
    _fault("a device is counted twice", "_summed", "count > 1", "False", METERING, "-k", "does_not_add_up"),
    _fault(
        *("each rank counts every device", "_samplers", "elsewhere(each.facts.source, each.facts.devices)", "None"),
        *(METERING, "-k", "of_the_ranks"),
    ),
    _fault(
        *("failed runs of a crate completed", "run_entity", 'state == "completed"', "True"),
        *("tests/unit/studies/test_study_archive.py", "-k", "ro_crate"),
        side="/studies",
    ),
    _fault(
        *("a result of another run has the key that it was kept under", "unlike_key", "own.key != key", "False"),
        *(RESULTS, "-k", "under_another_key"),
        side="/results",
    ),
    _fault(
        *(
            "arguments of a run need not have its key",
            "unlike_key",
            "key_of(name, own.site, nodes, repeat, words) == key",
        ),
        *("True", RESULTS, "-k", "whatever_it_was_kept_as"),
        side="/results",
    ),
    _fault(
        *("any text is a key", "require_key", "not _KEY.fullmatch(text)", "False", RESULTS, "-k", "no_key"),
        side="/results",
    ),
    _fault(
        *("the errors of a large file are described", "document_problems", "MOST_DESCRIBED", "10**9"),
        *(RESULTS, "-k", "larger_than_any"),
        side="/results",
    ),
    _fault(
        *("points of every schema are exported", "_point_rows", 'document.get("points")', 'document["points"]'),
        *("tests/unit/test_forgeries_benchmark.py", "-k", "traceback and genuine"),
        side="/results",
    ),
    _fault(
        *(
            "a chart has the steps of a run that failed",
            "unsteady_steps",
            "each.observation.id not in excluded",
            "True",
        ),
        *("tests/unit/report/test_figures.py", "-k", "steps"),
        side="/report",
    ),
    _fault(
        *("a latency is shown without its marks", "_quantity", "point.marks", "()", FIRST_SCREEN, "-k", "marks"),
        side="/report",
    ),
    _fault(
        *(
            "cards that say the same need no more words",
            "_apart",
            "len(alike) < 2",
            "True",
            FIRST_SCREEN,
            "-k",
            "cards",
        ),
        side="/report",
    ),
    _fault(
        *("one repeat is enough for a study", "missing_runs", "planned - found", "(planned - planned)"),
        *("tests/unit/report/test_study_outputs.py", "-k", "counted"),
        side="/report",
    ),
    _fault(
        *("what refuses energy refuses all", "compare_each", "each.group in refused", "False"),
        *("tests/unit/report/test_report_page.py", "-k", "refuses"),
    ),
    _fault(
        *("reports ask every schema for checks of runs", "_correctness", 'numerics.get("run_checks", ())'),
        *('numerics["run_checks"]', "tests/unit/test_forgeries_benchmark.py", "-k", "traceback and genuine"),
        side="/report",
    ),
    _fault("a download's digest is not compared", "Registry.download", "arrival.digest == digest", "True", REGISTRY),
    _fault(
        *("an expired token is renewed elsewhere", "log_in", "self._granting.get(scope, challenge)", "challenge"),
        "tests/unit/test_nvcr.py",
    ),
    _fault("a killed fetch begins again", "Registry.download", '"a+b"', '"w+b"', "tests/unit/test_nvcr.py"),
    _fault(
        *(
            "folders of one disk are looked at alone",
            "_require_free",
            "existing_part(folder).stat().st_dev",
            "hash(folder)",
        ),
        "tests/unit/build/test_batch.py",
    ),
    _fault(
        *("a first build has no look at space", "forecast_build", "wheels or 0", "wheels"),
        "tests/unit/engines/test_apptainer_build.py",
    ),
    _fault("a document's digest is not compared", "Registry.blob", "actual != digest", "False", REGISTRY),
    _fault(
        *("a redirect takes the login along", "rebuild_auth", 'prepared_request.headers.pop("Authorization", None)'),
        *("None", REGISTRY),
    ),
    _fault(
        *("a wheel in the cache is believed", "_checked", 'digest != f"sha256:{wheel.sha256}"', "False"),
        *(LAYERS, "tests/unit/recipes"),
    ),
    _fault(
        "an entry of the cache is not compared with its checksum",
        "Entry.use",
        "self._matches(checksum, made_now=attempt > 0)",
        "True",
        LAYERS,
    ),
    _fault(
        *("locks exclude nobody", "file_lock", "fcntl.LOCK_SH if shared else fcntl.LOCK_EX", "fcntl.LOCK_SH"),
        *(LAYERS, "tests/unit/core", "tests/unit/publish"),
    ),
    _fault(
        *("a required signature is not looked for", "check_signature"),
        *("image.inspection.signer(keys) if wanted else None", "None", TRUST),
    ),
    _fault("provenance of another image is taken", "check_provenance", "stated != subjects", "False", TRUST),
    _fault(
        *("a signature that is not valid is taken", "_fingerprint", 'signer["KeyCheck"] and signer["DataCheck"]'),
        *("True", "tests/unit/engines", TRUST, "tests/unit/publish"),
    ),
    _fault(
        *(
            "what is pulled need not be as announced",
            "pull",
            "_require_announced(image, recipe, published.annotations)",
        ),
        *("None", "tests/unit/publish"),
        side="/publish",
    ),
    _fault("the build key leaves out the code", "build_key", "code_hash()", '"0"', "tests/unit/recipes"),
    _fault(
        *("a gate passes what keeps its limit in part", "Gate.keeps", "all(map(self._is_good, bounds))", "True"),
        "tests/unit/results/test_gate.py",
    ),
    _fault(
        *("intervals of half the width", "mean", "standard_errors(count - 1) * math.sqrt(variance(numbers) / count)"),
        *("standard_errors(count - 1) * math.sqrt(variance(numbers) / count) / 2", "tests/unit/results"),
        side="/results",
    ),
    _fault(
        *("a difference that is not shown is one", "verdict", "low <= 1 <= high", "False"),
        "tests/unit/results",
        side="/results",
    ),
    _fault(
        *("sides that ran one after the other took turns", "took_turns", "_alternate(ours, theirs)", "True"),
        *(SESSIONS,),
        side="/results",
    ),
    _fault(
        *("a busy host withholds no verdict", "_doubt", "code in marks", "False", SESSIONS),
        side="/results",
    ),
    _fault(
        *(
            "a gate over many rows fails by chance",
            "Gate.keeps",
            "(1 - self.confidence) / rows",
            "1 - self.confidence",
            SESSIONS,
        ),
    ),
    _fault(
        *(
            "a benchmark that vanished passes a gate",
            "Gate.judge",
            "[] if allow_missing else comparison.unmatched_baselines",
            "[]",
        ),
        *(SESSIONS,),
    ),
    _fault(
        *("what a command started outlives it", "stop_process", "os.killpg(process.pid, signal.SIGKILL)"),
        *("process.kill()", "tests/unit/core/test_process.py"),
        side="/core",
    ),
    _fault("bytes behind the last object are no matter", "_behind", "sif.path.stat().st_size - sif.end", "0", COVERAGE),
    _fault("bytes between objects are no matter", "_gaps", "any(stream.read(size))", "False", COVERAGE),
    _fault(
        *("what is deleted from a SIF stays in it", "sign", "os.truncate(path, read_sif(path).end)", "None", COVERAGE),
        side="/engines/apptainer",
    ),
    _fault(
        *("what somebody added to a layer is taken", "Entry._matches"),
        *("self.verify is not None and not made_now", "False", "tests/unit/layers/test_contents.py"),
    ),
    _fault(
        *("bytecode in a layer is believed", "_verify_site", "sha256_file(expected) != digests[name]", "False"),
        "tests/unit/layers/test_contents.py",
    ),
    _fault(
        *("a cache that others may write to is used", "Entry.use", 'require_unshared(folder, "the cache")', "None"),
        "tests/unit/layers/test_cache.py",
    ),
    _fault(
        *("a smoke run has a network", "Apptainer.isolation_flags"),
        *('["--net", "--network=none"]', "[]", "tests/unit/engines/test_docker_engine.py"),
    ),
    _fault(
        "what structure refuted is started", "_is_distrusted", "(TRUST.name, STRUCTURE.name)", "(TRUST.name,)", TRUST
    ),
    _fault("anybody's challenge gets the login", "Registry.send", "self._is_own(answer)", "True", REGISTRY),
    _fault(
        *("a login goes out unencrypted", "is_protected", "is_loopback(str(parts.hostname))", "True"),
        REGISTRY,
    ),
    _fault(
        *("who gives tokens sends a login elsewhere", "log_in"),
        *("self._ask_for_token(realm, allow_redirects=not login, **asking)", "self._ask_for_token(realm, **asking)"),
        REGISTRY,
    ),
    _fault(
        *("a redirect leads to what others can read", "rebuild_auth"),
        *("not is_protected(str(urls[1]), urlsplit(str(urls[0])).netloc)", "False", REGISTRY),
    ),
    _fault("the beginning of an answer may drip", "_attempt", 'method == "PUT"', "True", REGISTRY),
    _fault(
        *("a document may drip", "read_all", "within(LONGEST, partial(read_document, response))"),
        *("read_document(response)", REGISTRY),
    ),
    _fault("sizes have any number of digits", "read_descriptor", "0 <= size <= LARGEST_SIZE", "0 <= size", REGISTRY),
    _fault("annotations are anything", "_text", "not isinstance(value, str)", "False", REGISTRY, side="/oci"),
    _fault("a tag is any text", "open_store", "_TAG.fullmatch(tag) is None", "False", STORES),
    _fault("an item has no largest size", "read_item", "read_bounded(path, LARGEST)", "path.read_bytes()", HOSTILE),
    _fault(
        *("a pipe is text", "find_texts", "path.suffix.lower() in SUFFIXES and path.is_file()"),
        *("path.suffix.lower() in SUFFIXES", HOSTILE),
    ),
    _fault("a line has no end", "lines", "size > longest", "False", HOSTILE, side="/datasets"),
    _fault("images of any number are held at once", "_read_idx", "size > _LARGEST_IDX", "False", HOSTILE),
    _fault("a device is a tokenizer", "open_tokenizer", "read_document(file)", "None", HOSTILE),
    _fault(
        *("a panic is no error", "_is_of_library", 'type(error).__name__ == "PanicException"', "False"),
        HOSTILE,
    ),
    _fault(
        *("members of an archive differ in case alone", "_check_manifest", "name.lower()", "name"),
        "tests/unit/results/test_archive.py",
    ),
    _fault(
        *("a colour ends a run", "Drawing.write_line", "ValueError", "OSError"),
        "tests/unit/live/test_views.py",
    ),
    _fault(
        *("half a character ends a run", "is_valid", "ValueError", "OSError"),
        "tests/unit/engines/test_progress_pipe.py",
    ),
    _fault(
        *("an image may be replaced after its check", "CheckedImage.require_unchanged"),
        *("file_state(Path(self.address)) != self.state", "False"),
        RUN,
    ),
    _fault(
        *("what another process has done is done again", "StudyRunner._done_by_others"),
        *("outcome.state is RunState.TO_DO or not is_new", "True", "tests/unit/studies/test_running.py"),
    ),
    _fault(
        *("a run outlives its killed study", "_wait", "orders.append(signal.SIGTERM)", "None"),
        "tests/unit/studies/test_supervisor.py",
    ),
    _fault(
        *("runs side by side have the same processors", "Shares._take_some", "file_lock(path, wait=False)"),
        *("file_lock(path, shared=True, wait=False)", "tests/unit/studies/test_shares.py"),
    ),
    _fault("a name may be another image", "_require_same", "info.content == whole.content", "True", RUN),
    _fault(
        *("a copy under another id is a run", "has_copy_of", "set(run_keys(document))"),
        *('{document["id"]}', "tests/unit/results/test_compare.py"),
    ),
    _fault(
        *("rates of all pairs keep their name", "measured_metrics", 'is_in_todays_terms(document["schema_version"])'),
        *("True", VERSIONS),
        side="/results",
    ),
    _fault(
        "a kept baseline keeps its names",
        "_read_repeat",
        "with_full_attention(numbers, group.identity, '', _without)",
        "numbers",
        VERSIONS,
    ),
    _fault(
        "few steps have a 99th percentile",
        "measured_metrics",
        "too_few_steps(steps['count'] - steps['untimed'])",
        "''",
        VERSIONS,
        side="/results",
    ),
    _fault(
        *("a pipe is read", "read_bounded", "not stat.S_ISREG(os.fstat(descriptor).st_mode)", "False"),
        *("tests/unit/core/test_files.py", "tests/unit/test_oci_layout.py"),
    ),
    _fault(
        *("any end of a line is one in a section", "_section", 'body.split("\\n")', "body.splitlines()"),
        "tests/unit/recipes/test_render.py",
    ),
    _fault("a folder ends a comment of a Dockerfile", "comment", "printable(text)", "text", RENDER),
    _fault("a folder begins a section", "_quote_path", "path.isprintable()", "True", RENDER),
    _fault("an error shows passwords", "without_passwords", '_LOGIN.sub("***@", text)', "text", "tests/unit/core"),
    _fault(
        *("a cell of CSV may be a formula", "spreadsheet_text", "shown.lstrip().startswith(_FORMULA)", "False"),
        SPREADSHEETS,
    ),
    _fault("a formula may begin with blanks", "spreadsheet_text", "shown.lstrip()", "shown", SPREADSHEETS),
    _fault("a number becomes a text", "spreadsheet_text", "_NUMBER.fullmatch(shown)", "None", SPREADSHEETS),
    _fault("the head of a table may be a formula", "write_rows", "spreadsheet_text(cell)", "cell", SPREADSHEETS),
    _fault("rounds always go forwards", "turn", "number % 2", "False", REPEATING),
    _fault("one narrow interval ends repeats", "are_enough", "range(LOOKS)", "range(1)", REPEATING),
    _fault(
        *("repeats end when one of several is known", "all_known"),
        "all(unit.measured and all(map(repeats.are_enough, unit.measured.values())) for unit in units)",
        *("any(all(map(repeats.are_enough, unit.measured.values())) for unit in units)", REPEATED),
    ),
    _fault(
        *("results of others are repeats", "values", 'each["provenance"]["command"] == list(arguments)', "True"),
        REPEATED,
    ),
    _fault(
        *("our own work is that of others", "LoadSample.end", "busy - (self._busy or 0) - own"),
        *("busy - (self._busy or 0)", LOAD),
    ),
    _fault("a host is idle in a pause", "wait_until_idle", "idle == IDLE_LOOKS", "idle", LOAD),
    _fault(
        *("a percentage leaves out the end further away", "format_interval", "max(high - value, value - low)"),
        *("min(high - value, value - low)", "tests/unit/results/test_numbers.py"),
    ),
    _fault(
        *("less energy is worse", "judged", "direction is Direction.HIGHER", "direction is not Direction.NONE"),
        HEADLINES,
    ),
    _fault(
        *("a report ranks generation by texts", "Workload.rate", "rates(self.kind)", "()", HEADLINES),
        side="/report",
    ),
    _fault(
        *("a headline names who beats one of several", "Workload.leader", "all(behind)", "any(behind)"),
        WORDS,
    ),
    _fault(
        *("less energy is left of the line", "better_above_one", "direction_of(metric) is not Direction.LOWER"),
        *("direction_of(metric) is Direction.LOWER", WORDS),
    ),
    _fault(
        *("any failure of a system is one of a single device", "Workload.lost"),
        *("fields.get(DEVICES) in (self.fewest, None)", "fields", "tests/unit/report/test_figures.py"),
    ),
)
