"""The event loop of a simulation: virtual time, and processes that can be stopped, resumed and killed.

A *process* is everything that runs in a context whose `OWNER` names it: its tasks, its timers, its callbacks. Code
whose context names nobody (the API server, the users) is never stopped.
"""

import asyncio
from contextvars import ContextVar, copy_context

from tests.virtualtime import VirtualTimeLoop

OWNER = ContextVar("owner", default="")


class _Callback:
    """A callback of a process: runs when its turn comes, or once its process is resumed."""

    __slots__ = ("args", "call", "context", "handle", "owner")

    def __init__(self, owner, call, args, context):
        self.owner = owner
        self.call = call
        self.args = args
        self.context = context
        self.handle = None


class SimulationLoop(VirtualTimeLoop):
    """Callbacks keep asyncio's order, first come first served; chance enters through times alone."""

    def __init__(self):
        super().__init__()
        self._tasks_of = {}
        self._stopped = {}
        self.failures = []
        """What nobody caught."""
        self.set_task_factory(self._new_task)
        self.set_exception_handler(self._uncaught)

    def burn(self, seconds):
        """Work takes time."""
        self._jumping.waited += seconds

    # --- processes ---------------------------------------------------------------------------------

    def stop_process(self, owner):
        """As SIGSTOP: nothing of it runs, while time, servers and networks go on."""
        self._stopped.setdefault(owner, [])

    def resume_process(self, owner):
        """As SIGCONT: what has become due meanwhile runs now, in the order in which it became due."""
        for callback in self._stopped.pop(owner, ()):
            self._soon(callback)

    def is_stopped(self, owner):
        return owner in self._stopped

    def tasks_of(self, owner):
        """The unfinished tasks of a process, oldest first."""
        return [task for task in self._tasks_of.get(owner, ()) if not task.done()]

    # --- asyncio -----------------------------------------------------------------------------------

    def call_soon(self, callback, *args, context=None):
        context = copy_context() if context is None else context
        owner = context.get(OWNER, "")
        if not owner:
            return super().call_soon(callback, *args, context=context)
        return self._soon(_Callback(owner, callback, args, context))

    def _soon(self, callback):
        handle = super().call_soon(self._step, callback, context=callback.context)
        callback.handle = callback.handle or handle
        return handle

    def call_at(self, when, callback, *args, context=None):
        context = copy_context() if context is None else context
        owner = context.get(OWNER, "")
        if not owner:
            return super().call_at(when, callback, *args, context=context)
        step = _Callback(owner, callback, args, context)
        step.handle = super().call_at(when, self._step, step, context=context)
        return step.handle

    def _step(self, callback):
        parked = self._stopped.get(callback.owner)
        if parked is not None:
            parked.append(callback)
        elif not callback.handle.cancelled():
            callback.call(*callback.args)

    def _new_task(self, loop, coroutine, **options):
        task = asyncio.Task(coroutine, loop=loop, **options)
        context = options.get("context")
        owner = context.get(OWNER, "") if context is not None else OWNER.get()
        if owner:
            tasks = self._tasks_of.setdefault(owner, {})
            tasks[task] = None
            task.add_done_callback(lambda done: tasks.pop(done, None))
        return task

    def _uncaught(self, loop, context):
        self.failures.append(f"{context['message']}: {context.get('exception')!r}")
