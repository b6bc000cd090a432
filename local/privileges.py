"""Runs a program as a user who is not root, in folders that only root may enter.

PostgreSQL refuses to run as root, and wants its data folder to belong to the user it runs as. The checkout may be below
a folder that this user may not enter (root's home, a test's temporary folder). The process then keeps one capability,
to pass folders and read files, instead of widening the permissions of folders that are not ours.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys
from pathlib import Path

UNPRIVILEGED_USERS = ("postgres", "nobody")

# From linux/prctl.h and linux/capability.h.
PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAPABILITY_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def unprivileged_user() -> pwd.struct_passwd:
    for name in UNPRIVILEGED_USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise OSError(f"none of the users {', '.join(UNPRIVILEGED_USERS)} exists, and PostgreSQL does not run as root")


def may_enter(user: pwd.struct_passwd, path: Path) -> bool:
    """Whether `user`, as owner or as anybody, may pass every folder down to `path`."""
    for folder in (path, *path.parents):
        mode = folder.stat()
        needed = 0o100 if mode.st_uid == user.pw_uid else 0o001
        if folder.is_dir() and not mode.st_mode & needed:
            return False
    return True


def become(user: pwd.struct_passwd, *, pass_folders: bool) -> None:
    """Give up root for good; with `pass_folders`, keep the one capability that passes closed folders (Linux only)."""
    keep = pass_folders and sys.platform == "linux"
    death_signal = _death_signal()
    if keep:
        _prctl(PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    if keep:
        _keep_only(CAP_DAC_OVERRIDE)
    if death_signal:
        _prctl(PR_SET_PDEATHSIG, death_signal)  # the kernel forgets it when the user changes


def _keep_only(capability: int) -> None:
    bit = 1 << capability
    sets = (_Sets * 2)(_Sets(bit, bit, bit), _Sets(0, 0, 0))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(ctypes.byref(_Header(CAPABILITY_VERSION_3, 0)), ctypes.byref(sets)) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)


def _death_signal() -> int:
    if sys.platform != "linux":
        return 0
    get_death_signal = 2
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(get_death_signal, ctypes.byref(found))
    return found.value


def _prctl(option: int, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    if libc.prctl(option, *padded) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")
