"""Where Intel's software for Gaudi writes its logs."""

from __future__ import annotations

import contextlib
import os
from types import SimpleNamespace
from typing import Any

import pytest

from entrypoints.system import logs
from entrypoints.worker import child


@pytest.fixture(autouse=True)
def temporary(monkeypatch):
    monkeypatch.setattr(logs.tempfile, "gettempdir", lambda: "/tmp")


def test_a_folder_of_this_user_is_kept_and_made(tmp_path):
    folder = tmp_path / "habana" / "logs"
    assert logs.moved({"HABANA_LOGS": str(folder)}) == {} and folder.is_dir()
    assert logs.moved({"HABANA_LOGS": str(folder)}) == {}


@pytest.mark.parametrize("variable", ["/proc/absent", "another's"])
def test_logs_that_cannot_be_written_go_to_a_folder_of_this_user(tmp_path, monkeypatch, variable):
    own = {"HABANA_LOGS": f"/tmp/habana_logs-{os.getuid()}"}
    if variable == "another's":
        monkeypatch.setattr(logs.os, "getuid", lambda: os.geteuid() + 1)
        own = {"HABANA_LOGS": f"/tmp/habana_logs-{os.geteuid() + 1}"}
        variable = str(tmp_path)
    assert logs.moved({"HABANA_LOGS": variable}) == own


def test_nothing_moves_where_nothing_is_named():
    assert logs.moved({}) == {}


def test_a_process_moves_them_before_it_imports_a_framework(monkeypatch):
    monkeypatch.setenv("HABANA_LOGS", "/proc/absent")
    configuration: Any = SimpleNamespace(device="cpu", compile=None)
    child.place_files(configuration, contextlib.ExitStack())
    assert os.environ["HABANA_LOGS"] == f"/tmp/habana_logs-{os.getuid()}"
