"""The kinds of actions of a plan."""

from enum import StrEnum


class Action(StrEnum):
    """The kind of action on one thing of the mesh."""

    CREATE = "create"
    UPDATE = "update"
    MOVE = "move"
    REMOVE = "remove"
    UNCHANGED = "unchanged"
