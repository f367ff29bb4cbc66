"""How the help shows arguments: by their names in capitals, without the types that Python has for them."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument, TyperGroup


class Group(TyperGroup):
    """The command with its subcommands."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        for one in getattr(found, "params", ()):
            if isinstance(one, TyperArgument):
                one.display_type_rich = _no_type  # type: ignore[method-assign]
        return found


def _no_type(ctx: Any) -> None:
    return None
