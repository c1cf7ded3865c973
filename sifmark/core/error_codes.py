"""The stable codes of errors: what programs and tests match, however the text of a message changes."""

# Code to meaning, in alphabetical order. `docs/error-codes.md` is made from this table.
CODES = {
    "unknown-name": "No image, recipe, workload, format or other thing has the name that was given.",
}
