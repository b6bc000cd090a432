"""Whether the last table may be served without a router: only while control moves no topic without this gateway.

Theory of operation
1. Control waits for a gateway that a router has reported and that has not said goodbye. So the table on disk of such a
   gateway can't become old: the gateway may start with this table where no router can be reached, as after a crash.
2. After the goodbye topics move without the gateway. So before the goodbye the gateway removes the file that says that
   control waits for it. The file comes back when a router has sent a table. The file goes before the goodbye is sent,
   because the router may hear the goodbye although its answer is lost.
3. The file bears the gateway's name: a worker that nobody has heard of can't rely on another worker. A gateway whose
   name has its process id has another name after a crash. So the file of any gateway of this folder counts that can't
   run beside this one. The next table from a router removes such a file: an operator may declare its gateway dead.
4. An operator who has no router left, and knows that no topic has moved, may create the file by hand.
"""

import re
from pathlib import Path

from mesh.whole_files import remove_files, replace_file

PREFIX = "awaited-"


class Awaited:
    """The file of one gateway, or of one of several workers, in the folder of the last table."""

    def __init__(self, state_dir: Path, name: str, *, is_worker: bool = False) -> None:
        """`is_worker`: the name ends with the worker's number, and other workers run beside this one."""
        self.path = state_dir / f"{PREFIX}{name}"
        worker = re.escape(name.rpartition("-")[0]) + r"-\d+" if is_worker else re.escape(name)
        self._beside = re.compile(worker)

    def __bool__(self) -> bool:
        """Whether control waits for this gateway, as far as the disk tells."""
        return self.path.exists() or bool(self._of_former_gateways())

    def write(self) -> None:
        """A router has sent a table, and reports this gateway to control."""
        replace_file(self.path, b"control moves no topic without this gateway: it may start without a router\n")
        remove_files(self._of_former_gateways())

    def remove(self) -> None:
        """When this returns, the next start waits for a router, even after a crash. OSError from the disk."""
        remove_files([self.path, *self._of_former_gateways()])

    def _of_former_gateways(self) -> list[Path]:
        found = self.path.parent.glob(f"{PREFIX}*")
        return [path for path in found if not self._beside.fullmatch(path.name.removeprefix(PREFIX))]
