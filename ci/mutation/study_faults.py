"""Faults of studies."""

from __future__ import annotations

from faults import Fault

FILES, PLANS = "tests/unit/studies/test_study_files.py", "tests/unit/studies/test_study_plans.py"
JOBS, RUNNING = "tests/unit/studies/test_slurm.py", "tests/unit/studies/test_running.py"
ARCHIVES, EXPORTS = "tests/unit/results/test_archive.py", "tests/unit/studies/test_exports.py"
STARTS = "tests/unit/studies/test_same_start.py"
SCRIPTS = "tests/unit/studies/test_scripts.py"
FOLDERS = "tests/unit/studies/test_hostile_folders.py"
ANONYMOUS = "tests/unit/report/test_anonymous_fields.py"
HOSTILE = "tests/images/test_hostile.py"
PROCESSES = "tests/unit/core/test_process.py"
POWER = "tests/unit/core/test_power_cut.py"
PACKING = "tests/unit/studies/test_study_archive.py"

ACCEPTANCE, HISTORY = "tests/unit/studies/test_acceptance.py", "tests/unit/studies/test_explained_history.py"
QUICK = "tests/unit/doctor/test_quick_screening.py"
REGISTER, PUSHED = "tests/unit/report/test_register.py", "tests/unit/publish/test_publish_results.py"


def _fault(name: str, symbol: str, was: str, becomes: str, *tests: str) -> Fault:
    return Fault(name, "sifmark/studies", symbol, was, becomes, tests, ".venv")


def _core_fault(name: str, symbol: str, was: str, becomes: str, test: str) -> Fault:
    return Fault(name, "sifmark/core", symbol, was, becomes, (test,), ".venv")


def _report_fault(name: str, symbol: str, was: str, becomes: str) -> Fault:
    return Fault(name, "sifmark/report", symbol, was, becomes, (ANONYMOUS,), ".venv")


def _check_fault(name: str, symbol: str, was: str, becomes: str) -> Fault:
    return Fault(name, "sifmark/engines", symbol, was, becomes, (HOSTILE,), ".venv")


def _docker_fault(name: str, folder: str, symbol: str, was: str, becomes: str) -> Fault:
    return Fault(name, folder, symbol, was, becomes, (HOSTILE,), ".venv")


def _archive_fault(name: str, symbol: str, was: str, becomes: str) -> Fault:
    return Fault(name, "sifmark/results", symbol, was, becomes, (ARCHIVES,), ".venv")


def _script_fault(name: str, symbol: str, was: str, becomes: str) -> Fault:
    return Fault(name, "sifmark", symbol, was, becomes, (SCRIPTS,), ".venv")


def _start_fault(name: str, symbol: str, was: str, becomes: str) -> Fault:
    return Fault(name, "sifmark", symbol, was, becomes, (STARTS,), ".venv")


def _quick_fault(name: str, symbol: str, was: str, becomes: str) -> Fault:
    return Fault(name, "sifmark/doctor", symbol, was, becomes, (QUICK,), ".venv")


def _register_fault(name: str, symbol: str, was: str, becomes: str) -> Fault:
    return Fault(name, "sifmark/report/site", symbol, was, becomes, (REGISTER,), ".venv")


def _pushed_fault(name: str, symbol: str, was: str, becomes: str) -> Fault:
    return Fault(name, "sifmark/publish", symbol, was, becomes, (PUSHED,), ".venv")


STUDIES = (
    _register_fault("no signature is checked", "_read", "signer_of(Path(file), self.keys)", "self.keys[0]"),
    _register_fault("whoever signs a run again shares it", "_collect", "earlier == signer", "True"),
    _register_fault(
        "a rank needs no verdict", "_ranked", "ratio(point.row, other.row, point.metric).verdict == MORE", "True"
    ),
    _register_fault("a busy host has a rank", "_doubt", "ratio(point.row, point.row, point.metric).withheld", "''"),
    _register_fault("what does not compare is ranked", "_alike", "not _problems([*others, example])", "True"),
    _register_fault(
        "settings may differ in a ranking",
        "_configuration",
        "{**settings, DEVICES: fields.get(DEVICES)}",
        "{DEVICES: fields.get(DEVICES)}",
    ),
    _pushed_fault(
        "a result refers to any image", "push_results", "image.annotations.get(IDENTITY) != identity", "False"
    ),
    _pushed_fault(
        "an artifact has files of any name", "_fetch", "set(titles) - {results[0], results[0] + SUFFIX}", "set()"
    ),
    _pushed_fault("an artifact of another image is read", "_fetch", "manifest.subject.digest != image", "False"),
    _script_fault("words of scripts are not quoted", "word", "shlex.quote(text)", "text"),
    _script_fault("a pattern of paths is a command", "pattern", "word(match[0])", "match[0]"),
    _script_fault("a folder of a script is code", "shell_files", "word(str(folder))", "str(folder)"),
    _script_fault("an option of a job loses backslashes", "_quoted", "text.replace('\\\\', '\\\\\\\\')", "text"),
    _script_fault("an option of a job has several lines", "_quoted", "require_line(str(value))", "str(value)"),
    _script_fault(
        "a colon divides a path", "Bind.text", "re.sub('[:\\\\\\\\]', '\\\\\\\\\\\\g<0>', str(part))", "str(part)"
    ),
    _start_fault("Slurm's plain Apptainer loses binds", "_binds", "system.bind", "()"),
    _start_fault("a job by sifmark loses binds", "_command", "bind_options(image.binds)", "[]"),
    _start_fault(
        "a bind above the current folder makes it read-only", "binds_of", "bind.target in here.parents", "False"
    ),
    Fault(
        *("a link out of the current folder is not followed", "sifmark/engines", "_beside"),
        *("Bind(place, bind.writable)", "bind"),
        *(("tests/unit/engines/test_binds.py",), ".venv"),
    ),
    _script_fault("an image is taken for an option", "image_of", "file.is_file()", "False"),
    _fault(
        "a cell of JUBE ends in it", "_table_cell", "spreadsheet_text(text).replace(_SEPARATOR, ',')", "text", EXPORTS
    ),
    _script_fault("Slurm replaces percent signs of folders", "_log_pattern", "folder.replace('%', '%%')", "folder"),
    _script_fault("a log goes to a path with a backslash", "_log_pattern", "'\\\\' in folder", "False"),
    _script_fault("a module of a site is a command", "_setup", "word(module)", "module"),
    _script_fault(
        "JUBE replaces what follows a dollar sign", "_python", "literal.replace('$', chr(92) + 'x24')", "literal"
    ),
    _script_fault("JUBE doubles a dollar sign", "_word", "word(text).replace('$', \"$''\")", "word(text)"),
    _script_fault("the name of a study is any text", "require_name", "not is_name(path.stem)", "False"),
    _fault("weak scaling keeps the batch", "_batch_size", "int(size) * division.devices", "int(size)", FILES),
    _fault("a key depends on the order of a file", "arguments_of", "sorted(texts)", "texts", FILES),
    _fault("a cell that is excepted runs", "cells_of", "not _matches_any(cell, group.except_)", "True", FILES),
    _fault("repeats are left out", "expand", "run.repeats", "1", FILES),
    _fault("a million runs are expanded", "_require_size", "runs > MOST_RUNS", "False", FILES),
    _fault(
        "contradictions are left to the runs", "_require_possible", "not problem or number == MOST_TRIED", "True", FILES
    ),
    _fault("an invalid result is done", "entry_of", "result.problems", "()", PLANS),
    _fault(
        *("a failed run is done again unasked", "status_of", "retry in (FAILED, status.reason.cause)", "True", PLANS)
    ),
    _fault(
        *("a changed result is not validated again", "entry_for", "file_state(planned.result)"),
        *("file_state(planned.result.parent)", PLANS),
    ),
    _fault(
        *("a forged result of the same size and date is done", "entry_for", "file_state(planned.result)"),
        *("file_state(planned.result)[:4]", PLANS),
    ),
    _core_fault("a record of strange types is read", "as_record", "isinstance(value, hints[name])", "True", FOLDERS),
    _core_fault(
        *("a pipe in place of a lock is waited for", "is_held", "os.O_RDONLY | os.O_NONBLOCK", "os.O_RDONLY", FOLDERS)
    ),
    Fault(
        *(
            "a text that nobody called public is shown",
            "sifmark/results",
            "_field",
            "None if _has_texts(rule) else ''",
            "''",
        ),
        *(("tests/unit/results/test_catalogue.py",), ".venv"),
    ),
    _check_fault("root's rights are kept in a check", "_unprivileged", "os.geteuid() != 0", "True"),
    _check_fault("a check shows home", "Apptainer.isolation_flags", "'--contain'", "'--pid'"),
    _check_fault("a check shares memory with the host", "Docker.isolation_flags", "'--ipc=private'", "'--ipc=host'"),
    Fault(
        *("a name in a SIF ends earlier than for Apptainer", "sifmark/engines", "_descriptors"),
        *("name.rstrip(b'\\0')", "name.split(b'\\0')[0]"),
        *(("tests/unit/engines/test_sif.py",), ".venv"),
    ),
    _check_fault("a container outlives its check", "run_isolated", "engine.end_run(name)", "None"),
    _check_fault("what a name means by then is run", "check_image", "engine.pinned(address)", "address"),
    _check_fault("a printed command names what a name means", "printed_command", "engine.pinned(address)", "address"),
    _check_fault("the start of a name's image is not compared", "Docker.image_info", "image.identity()", "'same'"),
    _check_fault(
        "a name of another image is not set again", "Docker._is_name_of", "name.identity() == whole.identity()", "True"
    ),
    _check_fault(
        *("a look at an image leaves its volumes", "DockerDaemon.container"),
        *("container.remove(v=True, force=True)", "container.remove(force=True)"),
    ),
    Fault(
        *("a configuration of megabytes reaches the engine", "sifmark/engines", "DockerInspection.__init__"),
        *("len(compact_json(self.config)) > _LONGEST_CONFIGURATION", "False"),
        *(("tests/unit/engines/test_docker_engine.py",), ".venv"),
    ),
    _docker_fault("stages look at different images", "sifmark/trust", "verify", "engine.pinned(address)", "address"),
    _docker_fault("doctor starts another image", "sifmark/doctor", "check_image", "engine.pinned", "str"),
    _docker_fault(
        *("what a name means by then is pushed", "sifmark/publish", "_send"),
        "docker.daemon.tag(identifier, target, repositories.tag)",
        "docker.daemon.tag(docker.address(name), target, repositories.tag)",
    ),
    _docker_fault(
        *("what the engine pushed is not looked at", "sifmark/publish", "_send"),
        *("identifier not in (manifest.config.digest, digest)", "False"),
    ),
    _core_fault("what prints for ever is read for ever", "PipeReader.run", "self._stop()", "None", PROCESSES),
    _report_fault(
        "an anonymous report names the study of the current folder", "_place", "report.results.anonymous", "False"
    ),
    _report_fault("an anonymous report names its study", "_study", "not anonymous", "True"),
    _report_fault("an anonymous site names locked folders", "_unreadable", "results.labels", "None"),
    _core_fault("a file is not on the disk before its name", "atomic_path", "_synchronise(draft)", "None", POWER),
    _core_fault("a name is not on the disk", "atomic_path", "_synchronise_folder(target.parent)", "None", POWER),
    Fault(
        *("a result's name is not on the disk", "entrypoints/runs", "draft_file", "_sync_folder(folder)", "None"),
        *(("tests/inside/runs/test_output.py",), "py38"),
    ),
    _fault("an event leads to another file", "_is_plain", "_PLAIN.fullmatch(name)", "True", FOLDERS),
    _fault(
        *("more devices than a system has", "_place_problem", "system.devices * min(nodes, division.nodes)"),
        *("division.devices", PLANS),
    ),
    _fault("a precision that a device lacks", "_resolved", "configuration.precision not in supported", "False", PLANS),
    _fault(
        *("the folder of another study is used", "folder_of"),
        *("(owner.name, owner.title) != (study.name, study.title)", "False", PLANS),
    ),
    _fault("a run that waits or is done is submitted again", "_Jobs.free", "_is_free(each, found)", "True", JOBS),
    _fault("a result of another run is done", "ResultEntry.of_run", "not difference", "True", PLANS),
    _fault("nodes take results of other runs", "_is_free", "found.result.is_of_another", "False", JOBS),
    _fault("a node that fails makes a run fail", "_of_task", "task.state in _AGAIN", "False", JOBS),
    _fault("what ran out of time gets the same time", "limit_of", "max(wanted, at_least)", "wanted", JOBS),
    _fault("an array has more elements than allowed", "arrays_of", "own.max_array_size", "9", JOBS),
    _fault("a tab divides an argument", "require_line", "_CONTROL.search(text)", "None", JOBS),
    _fault(
        *("a lost job is waited for", "_active", "evidence.answer not in (Answer.SILENT, Answer.HIDDEN)"),
        *("False", JOBS),
    ),
    _fault("a job of another cluster is taken for one's own", "_answered", "task.cluster == cluster", "True", JOBS),
    _fault("a job of another ID is taken for one's own", "_own", "task.task == job", "True", JOBS),
    _fault("what is cancelled near its limit has failed", "_of_end", "not end.cancelled", "True", JOBS),
    _fault("a host without the device makes a run fail", "entry_of", "state in _NOTHING_MEASURED", "False", RUNNING),
    _fault("a node without the program is asked again", "_Jobs.excluded", "event.job", "False", JOBS),
    _fault("a run that is held blocks later shapes", "arrays_of", "shapes[shape.system] == 1", "True", JOBS),
    _fault(
        "a refused array leaves files",
        "_remove",
        "(array.list, array.script)",
        "()",
        JOBS,
    ),
    _archive_fault(
        *("a member of an archive need not have its hash", "_read_member"),
        *('digest.hexdigest() != entry["sha256"]', "False"),
    ),
    _archive_fault(
        "a link in an archive is taken for a file", "_require_header", "header == _header(name, size)", "True"
    ),
    _archive_fault("something may follow an archive", "_require_end", "stream.read(1)", "b''"),
    _fault("links lead into an archive", "_is_file", "not path.is_symlink()", "True", PACKING),
    _fault(
        *("runs have fewer threads side by side than alone", "_require_threads", "machine.jobs > 1", "False"),
        *(RUNNING, "-k", "fewer_threads"),
    ),
    _fault(
        *("what did not fit says how long others take", "Estimates.learn", "estimated and is_whole", "estimated"),
        *("tests/unit/studies/test_running_order.py", "-k", "did_not_fit"),
    ),
    _fault(
        *("a short run decides about all others", "Estimates._factor", "(PRIOR_SECONDS, PRIOR_SECONDS)", "(0.0, 0.0)"),
        *("tests/unit/studies/test_running_order.py", "-k", "says_little"),
    ),
    _core_fault(
        *("a series goes on after a signal that came too late", "foreground"),
        *("received and exit_code_of(process) < _OF_SIGNALS", "False", "tests/unit/commands/test_repeated_runs.py"),
    ),
    _fault("an invalid result is packed", "_Contents.add", "loaded.problems", "()", PACKING),
    _fault(
        *("a wrong result is a reference", "_metrics", 'loaded.document["numerics"]["state"] != "failed"', "True"),
        EXPORTS,
    ),
    _fault("a contract passes with fewer nodes", "_judge_clause", "len(results) < required", "False", ACCEPTANCE),
    _fault("a contract passes with fewer repeats", "_judge_row", "len(values) < contract.repeats", "False", ACCEPTANCE),
    _fault("a crash is no failure of a clause", "_judge_node", "state not in _NOT_TO_BLAME", "False", ACCEPTANCE),
    _fault("a prefix of a unit is lost", "Clause.value_in", "_PREFIXES[self.unit[0]]", "1.0", ACCEPTANCE),
    _fault(
        "repeats make up for sessions", "Design.error", "Part(self.between / self.sessions)", "Part(0.0)", ACCEPTANCE
    ),
    _fault("a clause takes any run as evidence", "gather", "clause is None", "False", ACCEPTANCE),
    _quick_fault("a faster node is named", "judged", "bad and far", "far"),
    _quick_fault("few screenings are as good as many", "limit_of", "count >= fewest", "True"),
    _quick_fault("a node that was named is part of the usual", "_counted", 'one["verdict"] != NAMED', "True"),
    _quick_fault("a counter that was high before is a fault", "Counters.rises", "earlier.get(device, 0)", "0"),
    _quick_fault("a fault of an earlier screening counts again", "faults_since", "number > sequence", "True"),
    _fault("what changed in vain explains as well", "_best_first", "each.without_effect", "0", HISTORY),
    _fault(
        *("a third kind of code is between two images", "_between"),
        *("values[label] in (first.labels.get(label), last.labels.get(label))", "True", HISTORY),
    ),
    _fault("the image made whatever happened", "_has_change", "not kept", "True", HISTORY),
)
