"""An example of a contract, to begin with."""

TEMPLATE = """\
title      = "Acceptance of the cluster alpha"
nodes      = 16               # each clause has to hold on each of them
repeats    = 5                # of each run on each node
confidence = 0.95             # of each interval
power      = 0.9              # with which this shortfall is to be detected ...
shortfall  = 0.1              # ... of what is required
spread     = 0.01             # of repeats, for the plan, until results show it
baseline   = "baseline:offer" # kept by study.baseline: what the supplier has shown

[[clause]]
name      = "training"
run       = { workload = "resnet50", task = "training", batch_size = 64, duration = "30s" }
metric    = "throughput"
value     = 2400
unit      = "images/s"
tolerance = 0.03

[[clause]]
name      = "latency"
run       = { workload = "bert_large", task = "inference", batch_size = 1, duration = "30s" }
metric    = "latency_p99"
value     = 12
unit      = "ms"

[[clause]]
name   = "matmul"
run    = { workload = "matmul" }
metric = "peak_flops"
ratio  = 0.95

[[clause]]
name   = "together"
run    = { workload = "gpt2", nodes = 16, strategy = "ddp", batch_size = 8, scaling = "weak", duration = "1m" }
metric = "throughput"
ratio  = 0.9
"""
