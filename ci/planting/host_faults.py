"""Faults of the host side."""

from __future__ import annotations

from faults import Fault


def _fault(name: str, symbol: str, was: str, becomes: str, *tests: str, side: str = "") -> Fault:
    return Fault(name, f"sifmark{side}", symbol, was, becomes, tests, ".venv")


REGISTRY, LAYERS, TRUST = "tests/unit/test_registry.py", "tests/unit/layers", "tests/unit/trust"
HOST = (
    _fault("a download's digest is not compared", "Registry.download", "arrival.digest != digest", "False", REGISTRY),
    _fault("a document's digest is not compared", "Registry.blob", "actual != digest", "False", REGISTRY),
    _fault(
        *("a redirect takes the login along", "rebuild_auth", 'prepared_request.headers.pop("Authorization", None)'),
        *("None", REGISTRY),
    ),
    _fault(
        *("a wheel in the cache is believed", "_checked", 'digest != f"sha256:{wheel.sha256}"', "False"),
        *(LAYERS, "tests/unit/recipes"),
    ),
    _fault("an entry of the cache is not compared with its seal", "Entry.use", "self._matches(seal)", "True", LAYERS),
    _fault(
        *("locks exclude nobody", "file_lock", "fcntl.LOCK_SH if shared else fcntl.LOCK_EX", "fcntl.LOCK_SH"),
        *(LAYERS, "tests/unit/core", "tests/unit/publish"),
    ),
    _fault(
        *("a required signature is not looked for", "check_signature"),
        *("image.inspection.signer(keys) if wanted else None", "None", TRUST),
    ),
    _fault("provenance of another image is taken", "check_provenance", "stated != subjects", "False", TRUST),
    _fault(
        *("a signature that is not valid is taken", "_fingerprint", 'signer["KeyCheck"] and signer["DataCheck"]'),
        *("True", "tests/unit/engines", TRUST, "tests/unit/publish"),
    ),
    _fault(
        *(
            "what is pulled need not be as announced",
            "pull",
            "_require_announced(image, recipe, published.annotations)",
        ),
        *("None", "tests/unit/publish"),
        side="/publish",
    ),
    _fault("the build key leaves out the code", "build_key", "code_hash()", '"0"', "tests/unit/recipes"),
    _fault(
        *("a gate passes what keeps its limit in part", "Gate.keeps", "len(kept) == 1", "True"),
        "tests/unit/results/test_gate.py",
    ),
    _fault(
        *("intervals of half the width", "mean", "student_quantile(count - 1) * math.sqrt(_variance(numbers) / count)"),
        *("student_quantile(count - 1) * math.sqrt(_variance(numbers) / count) / 2", "tests/unit/results"),
        side="/results",
    ),
    _fault(
        *("a difference that is not shown is one", "verdict", "self.low <= 1 <= self.high", "False"),
        "tests/unit/results",
        side="/results",
    ),
    _fault(
        *("what a command started outlives it", "stop_process", "os.killpg(process.pid, signal.SIGKILL)"),
        *("process.kill()", "tests/unit/core/test_process.py"),
        side="/core",
    ),
)
