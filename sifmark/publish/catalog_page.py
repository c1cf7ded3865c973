"""The catalog as an HTML page: a card for each image, readable without a network and without JavaScript."""

import html
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sifmark.core.files import human_size

_SHORT = 12  # hexadecimal digits of a hash that are shown; the rest appears on hover and in what is copied

Entry = Mapping[str, Any]


def catalog_page(document: Mapping[str, Any], pull_command: str, keys: Sequence[str], written: datetime) -> str:
    """Return a catalog as a page. `keys` are the names of the keys that readers should trust.

    The catalog quotes annotations that anyone may have written, so everything is escaped.
    """
    cards = "\n".join(_card(entry, document["place"], pull_command) for entry in document["images"])
    trusted = f"Trusted keys of this site: {_codes(keys)}." if keys else "This site names no key to trust."
    return _PAGE.format(
        place=_text(document["place"]), trusted=trusted, written=f"{written:%Y-%m-%d %H:%M} UTC", cards=cards
    )


def _card(entry: Entry, place: str, pull_command: str) -> str:
    words = [entry["recipe"], entry["device"], entry["framework"], entry["title"], *entry["names"]]
    return _CARD.format(
        words=_text(" ".join(filter(None, words)).lower()),
        title=_text(entry["title"] or entry["recipe"]),
        badges=_badges(entry),
        facts="".join(f"<dt>{label}</dt><dd>{value}</dd>" for label, value in _facts(entry).items()),
        commands="\n".join(map(_command, _commands(entry, place, pull_command))),
        count=len(entry["names"]),
        names=_codes(entry["names"]),
        details="".join(f"<dt>{label}</dt><dd>{value}</dd>" for label, value in _details(entry).items()),
    )


def _badges(entry: Entry) -> str:
    signed = ("signed", "ok") if entry["signed"] else ("not signed", "warning")
    badges = [signed, *([("test base: for tests only", "warning")] if entry["stand_in"] else [])]
    return "".join(f'<span class="badge {kind}">{text}</span>' for text, kind in badges)


def _facts(entry: Entry) -> dict[str, str]:
    framework = " ".join(filter(None, (entry["framework"], entry["framework_version"])))
    return {
        "Recipe": f"<code>{_text(entry['recipe'])}</code>",
        "Framework": _text(framework or "unknown"),
        "Platform": _text(entry["platform"] or "unknown"),
        "Size": human_size(entry["size"]),
        "Version": _text(entry["version"] or "unknown"),
        "Date": _text((entry["created"] or "unknown").partition("T")[0]),
    }


def _details(entry: Entry) -> dict[str, str]:
    return {
        "Image ID": _hash(entry["identity"]),
        "Manifest": _hash(entry["digest"]),
        "File": _hash(entry["file"]),
        "Base": f"{_text(entry['base'] or 'unknown')} {_hash(entry['base_digest'])}",
        "Licence of the base": _text(entry["base_licence"] or "unknown"),
        "Commit": _hash(entry["revision"]),
        "SBOMs, provenance": "in the SIF: <code>apptainer sif list FILE</code>; of Docker images, in the registry",
    }


def _commands(entry: Entry, place: str, pull_command: str) -> list[str]:
    """Return how to pull and run an image; `place` is HOST/PATH/NAME:TAG, or FOLDER: NAME:TAG, not for other tools."""
    folder, is_folder, _ = place.partition(": NAME")
    registry = folder if is_folder else place.rpartition("/NAME")[0]
    name = next((name for name in entry["names"] if name.startswith("resnet50-")), entry["recipe"])
    plain = [] if is_folder else [f"{pull_command}{entry['reference']}"]
    return [
        f"sifmark registry.pull {entry['recipe']} --registry {shlex.quote(registry)}",
        *plain,
        f"sifmark run {name}",
    ]


def _command(command: str) -> str:
    return f'<div class="command"><code>{_text(command)}</code><button type="button" hidden>copy</button></div>'


def _hash(value: str | None) -> str:
    if not value:
        return "unknown"
    short = value.removeprefix("sha256:")[:_SHORT]
    return f'<code title="{_text(value)}">{_text(short)}</code>'


def _codes(values: Sequence[str]) -> str:
    return ", ".join(f"<code>{_text(value)}</code>" for value in values)


def _text(value: str) -> str:
    return html.escape(str(value))


_CARD = """<article data-words="{words}">
<h2>{title}</h2>
<p class="badges">{badges}</p>
<dl class="facts">{facts}</dl>
{commands}
<details><summary>{count} workloads</summary><p>{names}</p></details>
<details><summary>Hashes, base, licence</summary><dl>{details}</dl></details>
</article>"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>sifmark images</title>
<style>
:root {{ color-scheme: light dark; --line: #8886; --soft: #8882; --ok: #1a7f37; --warning: #9a6700 }}
@media (prefers-color-scheme: dark) {{ :root {{ --ok: #4ac26b; --warning: #d4a72c }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 0 auto; padding: 1rem }}
main {{ display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(24rem, 100%), 1fr)) }}
article {{ border: 1px solid var(--line); border-radius: 8px; padding: 1rem; min-width: 0 }}
article[hidden] {{ display: none }}
h2 {{ font-size: 1.1rem; margin: 0 }}
code {{ font: 0.85em ui-monospace, monospace; overflow-wrap: anywhere }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1rem; margin: 0.5rem 0 }}
dd {{ margin: 0; min-width: 0; overflow-wrap: anywhere }}
dt, footer {{ opacity: 0.75 }}
.badges {{ margin: 0.3rem 0 }}
.badge {{ border: 1px solid; border-radius: 1em; padding: 0 0.6em; margin-right: 0.5em; font-size: 0.85rem }}
.ok {{ color: var(--ok) }}
.warning {{ color: var(--warning) }}
.command {{ display: flex; gap: 0.5rem; align-items: start; background: var(--soft); border-radius: 6px }}
.command {{ padding: 0.3rem 0.6rem; margin: 0.3rem 0 }}
.command code {{ flex: 1 }}
input {{ font: inherit; width: 100%; max-width: 30rem; padding: 0.3rem 0.6rem; margin-bottom: 1rem }}
</style>
</head>
<body>
<h1>sifmark images</h1>
<p>Images at <code>{place}</code>. {trusted} <code>sifmark registry.pull</code> checks digest and signature.</p>
<input type="search" placeholder="Filter: device, framework or workload" aria-label="Filter" hidden>
<main>
{cards}
</main>
<footer><p>Written {written}. For programs: <a href="catalog.json">catalog.json</a>.</p></footer>
<script>
const filter = document.querySelector("input");
filter.hidden = false;
filter.addEventListener("input", () => {{
  const words = filter.value.toLowerCase().split(/\\s+/);
  for (const card of document.querySelectorAll("article"))
    card.hidden = !words.every(word => card.dataset.words.includes(word));
}});
for (const button of document.querySelectorAll("button")) {{
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {{
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    button.textContent = "copied";
  }});
}}
</script>
</body>
</html>
"""
