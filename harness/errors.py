"""Every exception that reaches a user: one line with the cause and the mend."""

from __future__ import annotations


class KvconformError(Exception):
    """The call cannot be carried out as it stands. The command line prints the one line and ends with exit code 2."""


class ProgramError(KvconformError):
    """A program that cannot be parsed, or an op that is not legal where it stands."""


class TargetError(KvconformError):
    """A target string that names nothing, or something that cannot be loaded."""


class UnsupportedTarget(TargetError):
    """A target that is known and cannot be had here, for a reason that is not the user's: no failure of what it names."""


class ResultError(KvconformError):
    """A result file that cannot be read or written."""


class TraceError(KvconformError):
    """A file of logits that cannot be read, written, or held against another."""


class Unsupported(Exception):
    """Raised by an adapter: the implementation cannot do this, with its own reason. Not a failure."""


class Spent(Unsupported):
    """The budget of forward passes is over, so that nothing more can be asked."""


class AdapterError(Exception):
    """The adapter between harness and implementation went wrong, so that nothing can be said of the implementation."""


class Lost(AdapterError):
    """The implementation was lost in the middle of a program, which says nothing of its logits. The run goes on."""


class TimeLimit(Lost):
    """A program took longer than it may."""


class MemoryLimit(Lost):
    """The process that the implementation runs in took more memory than it may."""


class Died(Lost):
    """The process that the implementation runs in ended, or the implementation tried to end it."""


class Broken(Lost):
    """What an engine wrote is no reply of the line protocol; what it would write next cannot be told apart from it."""
