"""The list that is read after a server went back in time is handed on as such, and no other is."""

import asyncio

from tests.client.apifake import reply
from tests.client.widgets import WIDGETS, RecordingSink, Setup, widget
from tests.virtualtime import run


class Noting(RecordingSink):
    """Notes of which objects it was said that they are read anew."""

    def __init__(self):
        super().__init__()
        self.said = []

    def upsert(self, obj, anew=False):
        super().upsert(obj)
        self.said.append((obj.metadata.name, anew))

    def heard(self):
        said, self.said = self.said, []
        return said


def test_one_list_is_read_anew():
    async def main():
        setup = Setup(sink=Noting())
        setup.api.put(WIDGETS, widget("a", 1))
        async with setup:
            await setup.reflector.synced.wait()
            assert setup.sink.heard() == [("a", False)]
            await setup.reflector.relist(anew=True)
            setup.api.put(WIDGETS, widget("b", 1))
            await asyncio.sleep(1)
            assert setup.sink.heard() == [("a", True), ("b", False)]
            await setup.reflector.relist()
            assert setup.sink.heard() == [("a", False), ("b", False)]

    run(main())


def test_a_list_that_breaks_off_or_is_refused_is_still_to_be_read_anew():
    async def main():
        answers = []

        async def fault(call, proceed):
            if "watch" not in call.query and answers:
                return answers.pop(0)
            return await proceed()

        setup = Setup(sink=Noting(), fault=fault, page_size=1)
        setup.api.put(WIDGETS, widget("a", 1))
        async with setup:
            await setup.reflector.synced.wait()
            setup.sink.heard()
            answers += [reply(500, "InternalError"), reply(403, "Forbidden")]
            await setup.reflector.relist(if_served=True, anew=True)
            assert (setup.sink.heard(), setup.reflector.anew) == ([], True)
            await asyncio.sleep(60)
            assert (setup.sink.heard(), setup.reflector.anew) == ([("a", True)], False)

    run(main())


def test_what_is_refused_all_the_time_is_read_anew_later():
    async def main():
        refused = True

        async def fault(call, proceed):
            return reply(403, "Forbidden") if refused else await proceed()

        setup = Setup(sink=Noting(), fault=fault)
        setup.api.put(WIDGETS, widget("a", 1))
        async with setup:
            await asyncio.sleep(5)
            await setup.reflector.relist(if_served=True, anew=True)
            refused = False
            await asyncio.sleep(60)
            assert setup.sink.heard() == [("a", True)]

    run(main())
