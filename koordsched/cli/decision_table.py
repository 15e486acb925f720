"""What a scheduler recorded of a pod: where it was placed and what the best nodes scored, or why it was not."""

from __future__ import annotations

from rich.console import Console

from koordsched.cli.dumptime import time_text
from koordsched.cli.explanation_table import titled
from koordsched.cli.output import counted, table
from koordsched.scheduling.answer import Answer
from koordsched.scheduling.decisions import Decision, Rejection


def print_placed(out: Console, answer: Answer) -> None:
    """Prints the record of a pod that has a node."""
    out.print(f"{titled(answer)}, profile {answer.profile}", style="bold")
    if answer.decision is None:
        out.print(
            f"On node {answer.node}. There is no record of the decision: another scheduler made it, or it is too old.",
            soft_wrap=True,
        )
    else:
        _print_decision(out, answer.decision)
    if answer.rejection is not None:
        out.print()
        print_rejection(out, answer.rejection)


def _print_decision(out: Console, decision: Decision) -> None:
    feasible = counted(decision.feasible, "node") + " feasible"
    scored = f", total {decision.total}" if decision.total is not None else ", which is taken without scoring"
    out.print(f"Placed on {decision.node}, {time_text(decision.time)}: {feasible}{scored}.", soft_wrap=True)
    if not decision.top:
        if decision.total is not None:
            out.print("The scores of each plugin were not recorded: too many pods were placed at the time.")
        return
    plugins = list(decision.top[0].scores)
    differing = [name for name in plugins if len({ranked.scores[name] for ranked in decision.top}) > 1]
    rows = table("NODE", "TOTAL", *differing, right=["TOTAL", *differing])
    for ranked in decision.top:
        rows.add_row(ranked.node, str(ranked.total), *(str(ranked.scores[name]) for name in differing))
    out.print()
    out.print(rows)
    alike = [f"{name} {decision.top[0].scores[name]}" for name in plugins if name not in differing]
    if alike:
        out.print(f"The same on all of them: {', '.join(alike)}")


def print_rejection(out: Console, rejection: Rejection, now: str = "") -> None:
    """Prints the last attempt that failed; its message only if it is not the one of `now`."""
    last, first = time_text(rejection.time), time_text(rejection.first_time)
    text = f"Last refused {last}, attempt {rejection.attempts}, first {first}"
    if rejection.message == now:
        out.print(f"{text}, with the same message.")
        return
    out.print(f"{text}:")
    out.print(f"  {rejection.reason}: {rejection.message}", soft_wrap=True)
