"""Drawing runs in progress on a terminal: throughput, loss, power, memory and time left."""
