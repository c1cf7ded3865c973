"""The memory of the workload's process: kept, unless its user wants it otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

from entrypoints.system import allocator

PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("GLIBC_", "MALLOC_", "LD_PRELOAD"))}
BLOCK = 64 * 2**20  # bytes: glibc never keeps as much by itself
TOUCH = f"""
import mmap, resource
def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = b"x" * {BLOCK}
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
pages()
print(pages() / ({BLOCK} / mmap.PAGESIZE))
"""


def faulted(environment):
    """The share of a block's pages that the kernel has to give when a process asks for the block a second time."""
    command = [sys.executable, "-S", "-c", TOUCH]
    return float(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def test_a_block_is_asked_for_once():
    assert faulted(PLAIN) > 0.9
    assert faulted(allocator.with_tunables(PLAIN)) < 0.05


def test_what_the_user_set_counts():
    theirs = {**PLAIN, "GLIBC_TUNABLES": "glibc.malloc.mmap_max=65536:glibc.malloc.hugetlb=0"}
    assert faulted(allocator.with_tunables(theirs)) > 0.9
    assert allocator.with_tunables(PLAIN)["PATH"] == PLAIN["PATH"]


def test_a_result_says_what_was_told_and_loaded(double):
    said = double.result("resnet50", "--smoke")["conditions"]["memory_allocator"]
    assert said["value"].startswith("glibc.malloc.mmap_max=0:")
    assert allocator.described({"LD_PRELOAD": "/lib/other.so"}).endswith("hugetlb=1; LD_PRELOAD=/lib/other.so")
