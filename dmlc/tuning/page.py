"""Report of a tuning: the candidates tried on which device, and the winners with their gains."""

from __future__ import annotations

from collections.abc import Sequence

from dmlc.tuning.judge import TrialStatus
from dmlc.tuning.session import Record, Tried

_SAID = {
    TrialStatus.WRONG: "wrong results",
    TrialStatus.FAILED: "did not run",
    TrialStatus.HUNG: "the device hung",
    TrialStatus.UNFINISHED: "not finished",
}


def write_page(records: Sequence[Record], rows: str) -> str:
    """Report, in Markdown, of all tunings whose rows are in a file."""
    lines = [
        f"# What was tried for `{rows}`",
        "",
        "Each candidate was first compared with the reference, within the bounds of errors. Only "
        "then was it timed, in rounds with the kernels that there are without it. Times are "
        "medians, and so is how many times as fast it was in a round. The winner was quicker in "
        "three quarters of the rounds, twice.",
    ]
    for record in records:
        lines += ["", f"## {record.title}", "", f"On {record.device}, as `{record.device_class}`."]
        if record.hung:
            lines += ["", f"**The device hung** on `{record.hung}`, and was left alone from there."]
        for kernel in dict.fromkeys(each.kernel for each in record.tried):
            lines += ["", f"### `{kernel}`", "", *_list_kernel(record, kernel)]
    return "\n".join(lines) + "\n"


def _list_kernel(record: Record, kernel: str) -> list[str]:
    own = [each for each in record.tried if each.kernel == kernel]
    won = record.confirmed.get(kernel)
    lines = ["| numbers | modelled | before | after | times as fast | |",
             "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    for each in sorted(own, key=lambda e: -e.outcome.gain):
        is_best = won is not None and each.numbers == won.numbers
        lines.append(_write_line(each, "chosen" if is_best else ""))
    if won is None:
        lines += ["", "None was quicker than the usual numbers twice: there is no row."]
    else:
        lines += ["", f"Timed again: {_show(won.outcome.own)} in place of "
                  f"{_show(won.outcome.usual)}, {won.outcome.gain:.2f} times as fast, by the clock "
                  f"of the {won.outcome.clock}."]  # fmt: skip
    return lines


def _write_line(each: Tried, note: str) -> str:
    outcome = each.outcome
    modelled = "" if each.modelled is None else _show(each.modelled)
    if outcome.status is TrialStatus.TIMED:
        cells = [_show(outcome.usual), _show(outcome.own), f"{outcome.gain:.2f}", note]
    else:
        why = " ".join(outcome.said.split()).replace("|", "\\|")
        cells = ["", "", "", f"{_SAID[outcome.status]}: {why}"]
    return f"| `{each.numbers}` | {modelled} | {' | '.join(cells)} |"


def _show(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} us"
