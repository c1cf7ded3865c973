"""What parent, child, devices and workloads agree on: sessions, messages, states, cards and references."""
