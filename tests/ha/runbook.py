"""A runbook in Markdown whose commands can be run: the blocks marked `sh`, in order, by section."""

import asyncio
import re
from collections import defaultdict

_HEADING = re.compile(r"^#{2,3} (.+)$")


class Runbook:
    """`ran`: the blocks that were run, as (section, number)."""

    def __init__(self, text):
        self._blocks = defaultdict(list)
        self.ran = set()
        section, block = "", None
        for line in text.splitlines():
            heading = _HEADING.match(line)
            if block is not None and line == "```":
                self._blocks[section].append("\n".join(block))
                block = None
            elif block is not None:
                block.append(line)
            elif line == "```sh":
                block = []
            elif heading:
                section = heading[1]

    @property
    def blocks(self):
        """All blocks, as (section, number)."""
        return {(section, number) for section, blocks in self._blocks.items() for number in range(len(blocks))}

    async def run(self, section, number, environment, directory, within=120.0):
        """Runs one block in a shell that ends with the first command that fails; what it printed."""
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-euo",
            "pipefail",
            "-c",
            self._blocks[section][number],
            env=environment,
            cwd=directory,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(within):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        text = output.decode()
        assert process.returncode == 0, f"{section}, block {number}: code {process.returncode}\n{text}"
        self.ran.add((section, number))
        return text
