"""`python -m tests.simulation`: many seeds, or one of them step by step."""

import gc
import logging
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import click

from tests.simulation import occurrences, simulation

PROGRESS = 250
"""Seeds after which a long run says how it goes."""


@click.command()
@click.option("--seed", help="Run this one alone.")
@click.option("--trace", is_flag=True, help="With --seed: print every step, and what the scheduler logs.")
@click.option("--seeds", default=300, show_default=True, help="How many to run.")
@click.option("--first", default=0, show_default=True, help="The first of them.")
@click.option("--with", "features", multiple=True, help="What every world is to have: reservations, devices, ...")
@click.option("--jobs", default=2, show_default=True, help="Processes to run them in.")
@click.option("--keep-going", is_flag=True, help="Do not end at the first seed that fails.")
@click.option("--count", is_flag=True, help="Print how often each fault occurs and is noticed, and judge nothing.")
def main(seed, trace, seeds, first, features, jobs, keep_going, count):
    """Simulates a cluster under faults; the exit code is 1 if an invariant was violated."""
    if seed is not None:
        sys.exit(replay("+".join((seed, *features)), trace))
    chosen = ["+".join((str(number), *features)) for number in range(first, first + seeds)]
    if count:
        sys.exit(count_faults(chosen, jobs))
    sys.exit(run_many(chosen, jobs, keep_going))


def replay(seed, trace):
    """Runs one seed; returns the exit code."""
    length, level = (None, logging.DEBUG) if trace else (400, logging.ERROR)
    outcome = simulation.run(seed, trace_length=length, log_level=level)
    if trace:
        print("\n".join(outcome.trace))
        print("\n".join(outcome.log[-200:]))
    print(outcome.report() if outcome.failed else outcome)
    return int(outcome.failed)


def run_many(seeds, jobs, keep_going):
    """Runs the seeds; returns the exit code."""
    began, failed, done, bindings, steps, virtual = time.monotonic(), [], 0, 0, 0, 0.0

    def tell(text=""):
        hours = f"{virtual / 3600:.1f} virtual hours in {time.monotonic() - began:.0f} s"
        print(f"{text}{done} seeds, {len(failed)} failed, {bindings} bindings, {steps} steps, {hours}", flush=True)

    # The collector need not look into worlds that run, nor again and again at modules.
    with ProcessPoolExecutor(jobs, initializer=gc.disable) as pool:
        for outcome in pool.map(run_one, seeds, chunksize=5):
            done += 1
            bindings += outcome.bindings
            steps += outcome.steps
            virtual += outcome.virtual
            if outcome.failed:
                failed.append(outcome)
                print(outcome.report() if len(failed) == 1 else f"seed {outcome.seed}: {outcome.violations[:2]}")
                if not keep_going:
                    pool.shutdown(cancel_futures=True)
                    break
            if done % PROGRESS == 0 and done < len(seeds):
                tell("so far: ")
    tell()
    return int(bool(failed))


def run_one(seed):
    """Runs a seed, and collects what is left of it."""
    outcome = simulation.run(seed)
    gc.collect()
    if not gc.get_freeze_count():
        gc.freeze()  # the modules, all of which have been imported by now
    return outcome


def count_faults(seeds, jobs):
    """Runs the seeds; returns the exit code: 1 if there is a kind of fault that never occurs."""
    times, worlds = Counter(), Counter()
    with ProcessPoolExecutor(jobs) as pool:
        for found in pool.map(occurrences.count, seeds, chunksize=5):
            times += found
            worlds.update(found.keys())
    for kind in occurrences.KINDS:
        print(f"{kind:38} {times[kind]:7} times in {worlds[kind]:5} of {len(seeds)} seeds")
    return int(len(times) < len(occurrences.KINDS))


if __name__ == "__main__":
    main()
