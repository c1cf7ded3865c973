"""The CPU threads of PyTorch, which every kind of device needs on the host."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch

SQUARE = 1024  # side of a matrix whose product outlasts the start of the other threads
ROUNDS = 5  # on a busy host one thread came too late in 1 round of 60


def compute_on(threads: int, streams: int = 1) -> None:
    """Let the host compute with `threads` threads per stream, and its BLAS allocate its workspaces now.

    OpenBLAS before 0.3.31 retries forever if it cannot allocate a workspace, and nothing can stop it
    (https://github.com/OpenMathLib/OpenBLAS/issues/5289). It keeps the workspaces that it has, one per concurrent
    product. So products start together here, several times, since a late one may reuse another's workspace.
    """
    torch.set_num_threads(threads)
    square, start = torch.ones(SQUARE, SQUARE), Barrier(streams)

    def multiply(_stream: int) -> None:
        torch.get_num_threads()  # `set_num_threads` reaches only threads that asked before; others take all cores
        for _ in range(ROUNDS):
            start.wait()
            torch.mm(square, square)

    with ThreadPoolExecutor(streams) as pool:
        list(pool.map(multiply, range(streams)))
