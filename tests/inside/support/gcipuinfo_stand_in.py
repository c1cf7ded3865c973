"""Graphcore's gcipuinfo without IPUs: what it shows of them is made up."""

from __future__ import annotations


class Attributes:
    """What gcipuinfo shows of an IPU: like a dict, and none."""

    def __init__(self, values):
        self.values = values

    def keys(self):
        return self.values.keys()

    def __getitem__(self, name):
        return self.values[name]

    def __iter__(self):
        return iter(self.values)


class Inventory:
    """gcipuinfo as its documentation has it: what was read first, unless it is told to read anew."""

    SIMULATED = True

    def __init__(self, readings):
        self.readings, self.at, self.updates = readings, 0, False

    def gcipuinfo(self):
        return self

    def setUpdateMode(self, mode):  # noqa: N802
        self.updates = mode

    def getDevices(self):  # noqa: N802
        devices = self.readings[min(self.at, len(self.readings) - 1)]
        self.at += self.updates
        return list(map(Attributes, devices))
