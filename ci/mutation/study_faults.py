"""Faults of studies."""

from __future__ import annotations

from faults import Fault

FILES, PLANS = "tests/unit/studies/test_study_files.py", "tests/unit/studies/test_study_plans.py"
JOBS = "tests/unit/studies/test_slurm.py"
ARCHIVES, EXPORTS = "tests/unit/results/test_archive.py", "tests/unit/studies/test_exports.py"
SCRIPTS = "tests/unit/studies/test_scripts.py"
PACKING = "tests/unit/studies/test_study_archive.py"


def _fault(name: str, symbol: str, was: str, becomes: str, *tests: str) -> Fault:
    return Fault(name, "sifmark/studies", symbol, was, becomes, tests, ".venv")


def _archive_fault(name: str, symbol: str, was: str, becomes: str) -> Fault:
    return Fault(name, "sifmark/results", symbol, was, becomes, (ARCHIVES,), ".venv")


def _script_fault(name: str, symbol: str, was: str, becomes: str) -> Fault:
    return Fault(name, "sifmark", symbol, was, becomes, (SCRIPTS,), ".venv")


STUDIES = (
    _script_fault("words of scripts are not quoted", "word", "shlex.quote(text)", "text"),
    _script_fault("a pattern of paths is a command", "pattern", "word(match[0])", "match[0]"),
    _script_fault("a folder of a script is code", "shell_files", "word(str(folder))", "str(folder)"),
    _script_fault("an option of a job loses backslashes", "_quoted", "text.replace('\\\\', '\\\\\\\\')", "text"),
    _script_fault("an option of a job has several lines", "_quoted", "require_line(str(value))", "str(value)"),
    _script_fault("a comma divides a path", "bind_list", "path.replace(',', r'\\,')", "path"),
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
    _script_fault("lines of a list end in it", "Submission.keys", "text.split('\\n')", "text.splitlines(True)"),
    _fault("weak scaling keeps the batch", "_batch_size", "int(size) * division.devices", "int(size)", FILES),
    _fault("a key depends on the order of a file", "arguments_of", "sorted(texts)", "texts", FILES),
    _fault("a cell that is excepted runs", "cells_of", "not _matches_any(cell, group.except_)", "True", FILES),
    _fault("repeats are left out", "expand", "run.repeats", "1", FILES),
    _fault("a million runs are expanded", "_require_size", "runs > MOST_RUNS", "False", FILES),
    _fault(
        "contradictions are left to the runs", "_require_possible", "not problem or number == MOST_TRIED", "True", FILES
    ),
    _fault("an invalid result is done", "entry_of", "result.problems", "()", PLANS),
    _fault("a failed run is done again unasked", "_state", "retry in (FAILED, kind)", "True", PLANS),
    _fault(
        "a changed result is not read again",
        "ResultIndex._read_result",
        "former[:2] != (status.st_size, status.st_mtime_ns)",
        "False",
        PLANS,
    ),
    _fault(
        *("more devices than a system has", "_place_problem", "system.devices * min(nodes, division.nodes)"),
        *("division.devices", PLANS),
    ),
    _fault("a precision that a device lacks", "_resolved", "configuration.precision not in supported", "False", PLANS),
    _fault(
        *("the folder of another study is used", "folder_of"),
        *('(owner.get("name"), owner.get("title")) != (study.name, _title(study))', "False", PLANS),
    ),
    _fault("a run that waits is submitted again", "_left", "each.key not in busy", "True", JOBS),
    _fault("a run that is done is submitted again", "_left", "_is_done(planned)", "False", JOBS),
    _fault("a result of another run is done", "ResultIndex.entry", "row[2].of_run(planned.identity)", "row[2]", PLANS),
    _fault("nodes take results of other runs", "_is_done", "entry.is_of_another", "False", JOBS),
    _fault("a node that fails makes a run fail", "_outcome", "state in _AGAIN", "False", JOBS),
    _fault("what ran out of time gets the same time", "limit_of", "max(wanted, at_least)", "wanted", JOBS),
    _fault("an array has more elements than allowed", "arrays_of", "options[shape.system].max_array_size", "9", JOBS),
    _fault("a tab divides an argument", "require_line", "_CONTROL.search(text)", "None", JOBS),
    _fault("a lost job is waited for", "_by_record", "not asked", "True", JOBS),
    _fault(
        "a refused array leaves files",
        "_remove",
        "(array.list, array.script, submission_path(array.folder, array.name))",
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
    _fault("an invalid result is packed", "_Contents.add", "loaded.problems", "()", PACKING),
    _fault(
        *("a wrong result is a reference", "_metrics", 'loaded.document["numerics"]["state"] != "failed"', "True"),
        EXPORTS,
    ),
)
