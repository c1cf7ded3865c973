"""The names of what a proof leaves in its folder, which hosts read too."""

from __future__ import annotations

PROOF, PAGE = "proof.json", "proof.html"
DOCTOR = "doctor.json"  # checks of the host, which `sifmark device.prove` has made before
RESULTS, LOGS = "results", "logs"  # folders
