"""A schema's file, ready for use: its messages in a descriptor pool that no other schema shares.

Two schemas may use one name for different messages, so no schema goes into the process's own pool.
"""

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from mesh.schemas.protobuf.message_path import FIRST, MessagePath
from mesh.schemas.protobuf.sources import sources_of
from mesh.schemas.schema import FormatError, RegisteredSchema, SchemaError

MAX_KEPT = 64
"""Files that stay for further messages of a schema, and for the same text under another id. A codec keeps its own."""
MAX_NAMES_SHOWN = 10


class SchemaFile:
    """The messages of one schema. The constructor blocks, and raises SchemaError when the schema cannot be used; the
    other methods do not block."""

    def __init__(self, schema: RegisteredSchema) -> None:
        sources = sources_of(schema)
        if not sources.messages:
            raise SchemaError("the schema has no message")
        self.pool = DescriptorPool()
        try:
            for file in sources.files:
                self.pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise SchemaError(f"not a valid Protobuf schema: {error}") from None
        self._names = sources.messages
        self._paths = {name: path for path, name in sources.messages.items()}
        self._package = sources.files[-1].package
        self._classes: dict[MessagePath, type[Message]] = {}

    def path_of(self, name: str | None) -> MessagePath:
        """The path of a message by its full name, or its name in the package (`Outer.Inner`); by default the first."""
        if not name:
            return FIRST
        path = self._paths.get(name.removeprefix("."), self._paths.get(f"{self._package}.{name}"))
        if path is None:
            names = ", ".join(list(self._paths)[:MAX_NAMES_SHOWN])
            more = f" and {len(self._paths) - MAX_NAMES_SHOWN} more" if len(self._paths) > MAX_NAMES_SHOWN else ""
            raise SchemaError(f"the schema has no message {name[:200]!r}; it has {names}{more}")
        return path

    def message_class(self, path: MessagePath) -> type[Message]:
        """The class of the message at this path. FormatError when the file has no such path."""
        found = self._classes.get(path)
        if found is None:
            name = self._names.get(path)
            if name is None:
                raise FormatError(f"its message indexes {list(path)} name no message of the schema")
            found = self._classes[path] = GetMessageClass(self.pool.FindMessageTypeByName(name))
        return found


class SchemaFiles:
    """The files that were used last. Each file is made once; callers that want it meanwhile wait for it."""

    def __init__(self, most: int = MAX_KEPT, made: Callable[[float], object] = lambda seconds: None) -> None:
        """`made` hears how long the making of each file has taken."""
        self._most, self._made = most, made
        self._files: OrderedDict[bytes, Future[SchemaFile]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, schema: RegisteredSchema) -> SchemaFile:
        """The file of a schema. SchemaError when the schema cannot be used. May block as long as the compiler takes."""
        key = _digest(schema)
        with self._lock:
            file = self._files.get(key)
            is_mine = file is None
            if file is None:
                file = self._files[key] = Future()
            self._files.move_to_end(key)
            while len(self._files) > self._most:
                self._files.popitem(last=False)
        if is_mine:
            started = time.monotonic()
            try:
                file.set_result(SchemaFile(schema))
            except BaseException as error:  # noqa: BLE001  # the callers that wait must get every error
                with self._lock:
                    self._files.pop(key, None)  # the compiler may only have been busy
                file.set_exception(error)
            finally:
                self._made(time.monotonic() - started)
        return file.result()


def _digest(schema: RegisteredSchema) -> bytes:
    """The digest of a schema's text with its references."""
    digest = hashlib.sha256()
    for name, one in (("", schema), *sorted(schema.references.items(), key=lambda item: item[0])):
        for part in (name, one.kind.value, one.text):
            encoded = part.encode(errors="surrogatepass")
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.digest()
