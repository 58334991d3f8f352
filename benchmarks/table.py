"""Times as a table in Markdown, each with its ratio to what all are held against."""

from __future__ import annotations

from collections.abc import Mapping

LIMIT = "machine's limit"


def show_time(seconds: float) -> str:
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def show_table(title: str, columns: Mapping[str, Mapping[str, float]], limit: str = LIMIT) -> str:
    """A Markdown table of what was timed in each column: the time, and in brackets its ratio to the
    limit, if that was timed."""
    names = dict.fromkeys(name for times in columns.values() for name in times)
    rows = [[title, *columns]]
    rows += [
        [name, *(show_cell(t[name], t.get(limit)) for t in columns.values())] for name in names
    ]
    return lay_out(rows)


def show_rows(title: str, rows: Mapping[str, Mapping[str, float]], limit: str) -> str:
    """A Markdown table of what was timed in each row: the time, and in brackets its ratio to the
    limit, if that was timed. A dash stands for what was not."""
    names = dict.fromkeys(name for times in rows.values() for name in times)
    cells = [[title, *names]]
    for row, times in rows.items():
        shown = (show_cell(times[n], times.get(limit)) if n in times else "-" for n in names)
        cells.append([row, *shown])
    return lay_out(cells)


def lay_out(rows: list[list[str]]) -> str:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    rows = [rows[0], ["-" * width for width in widths], *rows[1:]]
    padded = ([c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in padded)


def show_cell(seconds: float, limit: float | None) -> str:
    """A time with its ratio to the limit, where there is one."""
    if limit is None:
        return show_time(seconds)
    ratio = seconds / limit
    return f"{show_time(seconds)} ({ratio:{'.2f' if ratio < 10 else '.0f'}})"
