"""`koordsched explain NAMESPACE/POD`, or `reservation/NAME`: every plugin's verdict and score on every node, and what
could be done."""

from __future__ import annotations

import click

from koordsched.cli.clusteraccess import ClusterAccess
from koordsched.cli.clusterstate import read_target
from koordsched.cli.decision_table import print_placed, print_rejection
from koordsched.cli.endpoint import EndpointError
from koordsched.cli.explanation_table import print_explanation
from koordsched.cli.objectfiles import InputError
from koordsched.cli.offline import as_if_pending, load_config
from koordsched.cli.output import STRUCTURED, WIDE, console, fail, output_option, print_notes, print_structured
from koordsched.cli.state_options import State, state_options
from koordsched.cli.target import Target, node_of, phase_over, scheduler_of, target_of
from koordsched.config.defaults import DEFAULT_SCHEDULER_NAME
from koordsched.scheduling.advice import Advised, with_advice
from koordsched.scheduling.answer import Answer
from koordsched.scheduling.offline import OfflineScheduler


@click.command("explain")
@click.argument("pod", metavar="[NAMESPACE/]POD|reservation/NAME")
@click.option(
    "-n", "--namespace", help="The pod's namespace, if it is not part of POD.  [default: that of the context]"
)
@state_options
@click.option(
    "--top",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Number of feasible nodes to show in the table.",
)
@output_option
def explain(
    pod: str,
    namespace: str | None,
    state: State,
    top: int,
    output: str,
) -> None:
    """Explain the scheduling of POD, or of a Reservation, node by node and plugin by plugin.

    Reads the cluster of the kubeconfig, whatever scheduler runs there, or files (-f), and evaluates the pod locally. A
    pod that is already on a node is explained as if it were pending. With --live or --server, asks a running
    koordsched, which also says what it decided and when.

    \b
    Would one more node like worker-1 help?
      koordsched explain shop/web-1 --nodes 1 --like worker-1
    """
    if namespace and "/" in pod:
        raise click.UsageError(f"the namespace is given twice: {pod} and -n {namespace}")
    notes: list[str] = []
    try:
        target = _target(pod, namespace, state)
        answer: Advised = _evaluated(target, state, notes) if state.is_evaluated else _asked(state, target)
    except (InputError, EndpointError) as error:
        fail(error)
    print_notes(notes)
    if output in STRUCTURED:
        print_structured(answer, output)
        return
    out = console(output)
    if isinstance(answer, Answer) and answer.node:
        print_placed(out, answer)
        return
    print_explanation(out, answer, answer.advice, top, wide=output == WIDE)
    if isinstance(answer, Answer) and answer.rejection is not None:
        out.print()
        print_rejection(out, answer.rejection, answer.message)


def _target(text: str, namespace: str | None, state: State) -> Target:
    """What is to be explained. Raises InputError."""
    if namespace is None and "/" not in text and state.cluster is not None:
        namespace = state.cluster.namespace()
    return target_of(text, namespace, "default")


def _asked(state: State, target: Target) -> Answer:
    """The answer of the running scheduler. Raises InputError, EndpointError."""
    with state.endpoint() as endpoint:
        return endpoint.ask("/debug/explain", {"pod": target.query, "advice": "true"}, Answer, "an explanation")


def _evaluated(target: Target, state: State, notes: list[str]) -> Advised:
    """The evaluation on the cluster, or on the state in the files. Raises InputError."""
    name, plugin = DEFAULT_SCHEDULER_NAME, "" if target.is_pod else target.kind.need.plugins[0]
    if state.cluster is not None:
        name = _scheduler_of(target, state.cluster, notes)
    if name != DEFAULT_SCHEDULER_NAME and state.config_file is None:
        notes.append(
            f"without --config, {'the pod' if target.is_pod else target.title} of scheduler {name} is evaluated with "
            f"kube-scheduler's default plugins{'' if target.is_pod else f' and {plugin}'}; "
            "if that is a koordsched, use --live to ask it"
        )
    resolved, warnings = load_config(state.config_file, gates=state.gates, scheduler_name=name, plugin=plugin)
    offline = state.prepare(resolved, lifted=target)
    scheduler = offline.scheduler
    pod = next((pod for pod in scheduler.pending.values() if target.is_key_of(pod)), None)
    if pod is None:
        raise InputError(_not_found(target, scheduler))
    notes += [*warnings, *offline.notes]
    profile = scheduler.profiles[pod.shape.scheduler_name]
    return with_advice(profile, scheduler.cluster, pod, scheduler.explain(pod.key))


def _scheduler_of(target: Target, cluster: ClusterAccess, notes: list[str]) -> str:
    """The scheduler that it names, or named. Raises InputError if there is nothing to explain."""
    thing = read_target(cluster, target)
    if over := phase_over(thing):
        raise InputError(f"{'pod ' * target.is_pod}{target.title} has finished: {over}")
    if node := node_of(thing):
        notes.append(as_if_pending(target, node))
    return scheduler_of(thing) or DEFAULT_SCHEDULER_NAME


def _not_found(target: Target, scheduler: OfflineScheduler) -> str:
    start = target._replace(name=target.name[:4]).title
    what = f"{'pod ' * target.is_pod}{target.title}"
    pods = scheduler.pending.values()
    near = [pod.title for pod in pods if pod.virtual != target.is_pod and pod.title.startswith(start)][:5]
    if near:
        return f"no {what} for this scheduler in the input; there is {', '.join(near)}"
    return f"no {what} for this scheduler in the input (schedulerName must be one of {', '.join(scheduler.profiles)})"
