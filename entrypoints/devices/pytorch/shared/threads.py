"""The processors of the host as PyTorch computes on them: they go with every kind of hardware that it reaches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch

SQUARE = 1024  # of a product that mostly outlasts the start of the threads beside it
ROUNDS = 5  # on a busy host one of the threads came too late for 1 round in 60


def compute_on(threads: int, streams: int = 1) -> None:
    """Let the host compute with so many threads for each stream, and its BLAS take what room it needs for that.

    OpenBLAS before 0.3.31 asks for a workspace without end where it gets none, and nothing can stop it
    (https://github.com/OpenMathLib/OpenBLAS/issues/5289). What it once has, it keeps: one for each product at a time.
    Hence products that begin together, several times: where one begins late, it may find another's workspace free.
    """
    torch.set_num_threads(threads)
    square, start = torch.ones(SQUARE, SQUARE), Barrier(streams)

    def multiply(_stream: int) -> None:
        torch.get_num_threads()  # a thread that never asked is not told of `set_num_threads`: it takes all cores
        for _ in range(ROUNDS):
            start.wait()
            torch.mm(square, square)

    with ThreadPoolExecutor(streams) as pool:
        list(pool.map(multiply, range(streams)))
