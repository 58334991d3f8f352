"""What DirectML itself computed: `docs/explanation/directml.md` says how, and where.

`answers.json.gz` has its results for calls of most operators; `cases.json` the small calls in which
it and dmlc of November 2026 gave something else, with both results, and what became of each:
`follow` is "yes", "differs" (a section of the operator says so) or "stack" (a fault of the
translation that it ran over, or of DirectML).
"""
