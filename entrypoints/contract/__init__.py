"""What parent, child, devices and workloads share: sessions, messages, statuses, cards and references."""
