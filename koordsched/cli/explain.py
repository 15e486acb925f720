"""`koordsched explain NAMESPACE/POD`: every plugin's verdict and score on every node, and what could be done."""

from __future__ import annotations

import click

from koordsched.cli.clusteraccess import ClusterAccess
from koordsched.cli.clusterstate import read_pod
from koordsched.cli.decision_table import print_placed, print_rejection
from koordsched.cli.endpoint import EndpointError
from koordsched.cli.explanation_table import print_explanation
from koordsched.cli.objectfiles import InputError
from koordsched.cli.offline import AS_IF_PENDING, load_config
from koordsched.cli.output import STRUCTURED, WIDE, console, fail, output_option, print_notes, print_structured
from koordsched.cli.state_options import State, state_options
from koordsched.cluster.pod import TERMINAL
from koordsched.config.defaults import DEFAULT_SCHEDULER_NAME
from koordsched.scheduling.advice import Advised, with_advice
from koordsched.scheduling.answer import Answer
from koordsched.scheduling.offline import OfflineScheduler


@click.command("explain")
@click.argument("pod", metavar="[NAMESPACE/]POD")
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
    """Explain the scheduling of POD, node by node and plugin by plugin.

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
        key = pod if "/" in pod else f"{namespace or _namespace(state)}/{pod}"
        answer: Advised = _evaluated(key, state, notes) if state.is_evaluated else _asked(state, key)
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


def _namespace(state: State) -> str:
    """The namespace to use if none is given. Raises InputError."""
    return state.cluster.namespace() if state.cluster is not None else "default"


def _asked(state: State, key: str) -> Answer:
    """The answer of the running scheduler. Raises InputError, EndpointError."""
    with state.endpoint() as endpoint:
        return endpoint.ask("/debug/explain", {"pod": key, "advice": "true"}, Answer, "an explanation")


def _evaluated(key: str, state: State, notes: list[str]) -> Advised:
    """The evaluation on the cluster, or on the state in the files. Raises InputError."""
    name = DEFAULT_SCHEDULER_NAME
    if state.cluster is not None:
        name = _scheduler_of(key, state.cluster, notes)
    if name != DEFAULT_SCHEDULER_NAME and state.config_file is None:
        notes.append(
            f"without --config, the pod of scheduler {name} is evaluated with kube-scheduler's default plugins; "
            "if that is a koordsched, use --live to ask it"
        )
    resolved, warnings = load_config(state.config_file, scheduler_name=name)
    offline = state.prepare(resolved, lifted=key)
    scheduler = offline.scheduler
    if key not in scheduler.pending:
        raise InputError(_not_found(key, scheduler))
    notes += [*warnings, *offline.notes]
    pod = scheduler.pending[key]
    profile = scheduler.profiles[pod.shape.scheduler_name]
    return with_advice(profile, scheduler.cluster, pod, scheduler.explain(key))


def _scheduler_of(key: str, cluster: ClusterAccess, notes: list[str]) -> str:
    """The scheduler that the pod names, or named. Raises InputError if there is nothing to explain."""
    pod = read_pod(cluster, key)
    if pod.status.phase in TERMINAL:
        raise InputError(f"pod {key} has finished: {pod.status.phase}")
    if pod.spec.node_name:
        notes.append(AS_IF_PENDING.format(node=pod.spec.node_name))
    return pod.spec.scheduler_name


def _not_found(key: str, scheduler: OfflineScheduler) -> str:
    namespace, _, name = key.partition("/")
    near = [other for other in scheduler.pending if other.startswith(f"{namespace}/{name[:4]}")][:5]
    if near:
        return f"no pod {key} for this scheduler in the input; there is {', '.join(near)}"
    return (
        f"no pod {key} for this scheduler in the input (schedulerName must be one of {', '.join(scheduler.profiles)})"
    )
