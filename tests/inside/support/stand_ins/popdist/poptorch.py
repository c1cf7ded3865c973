"""PopTorch's options of an instance: its replicas are those that poprun has given it."""

from __future__ import annotations

import poptorch
import torch.distributed as dist

import popdist


class Options(poptorch.Options):
    """As popdist.poptorch.Options."""

    def __init__(self, ipus_per_replica=1):
        super().__init__()
        super().note("replicationFactor", "poptorch.Options.replicationFactor", popdist.getNumLocalReplicas())
        self.__dict__["ipus_per_replica"] = ipus_per_replica

    def note(self, attribute, name, *arguments, **named):
        if attribute == "replicationFactor":
            raise RuntimeError("the replicas are those of poprun")
        return super().note(attribute, name, *arguments, **named)

    def reduce(self, model):
        """Average the gradients over the instances, each of which has the mean of its replicas."""
        for parameter in model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
                parameter.grad /= popdist.getNumInstances()
