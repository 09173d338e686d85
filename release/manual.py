"""Man pages of all commands, and what shells complete them with. click-man and click write them; examples, which help
has and click-man leaves out, are added."""

import re
from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime
from pathlib import Path

import click
from click.shell_completion import get_completion_class
from click_man.core import generate_man_page

from latencyprobe.group import group

PROGRAM = "latencyprobe"
# Where shells look for them below the share/ of a prefix.
COMPLETIONS = {
    "bash": f"bash-completion/completions/{PROGRAM}",
    "zsh": f"zsh/site-functions/_{PROGRAM}",
    "fish": f"fish/vendor_completions.d/{PROGRAM}.fish",
}


def write(share: Path, version: str, epoch: int) -> None:
    """Fill a share/ with man pages and completions."""
    date = datetime.fromtimestamp(epoch, UTC).date().isoformat()
    for command, text in pages(version, date):
        page = share / f"man/man1/{command}.1"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
    for shell, place in COMPLETIONS.items():
        (share / place).parent.mkdir(parents=True, exist_ok=True)
        (share / place).write_text(completion(shell))


def completion(shell: str) -> str:
    """Return the script that a shell loads."""
    known = get_completion_class(shell)
    if known is None:
        raise ValueError(f"{shell}: click completes bash, zsh and fish")
    return known(group, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()


def pages(version: str, date: str) -> Iterator[tuple[str, str]]:
    """Yield (name without section, page) of the program and of each command; their extras must be installed."""
    yield from _below(click.Context(_told(group), info_name=PROGRAM), version, date)


def _below(ctx: click.Context, version: str, date: str) -> Iterator[tuple[str, str]]:
    above = f".SH SEE ALSO\n.BR {_name(ctx.parent)} (1)\n" if ctx.parent else ""
    yield _name(ctx), _page(ctx, version, date) + above
    for name, command in getattr(ctx.command, "commands", {}).items():
        yield from _below(click.Context(command, parent=ctx, info_name=name), version, date)


def _name(ctx: click.Context) -> str:
    return ctx.command_path.replace(" ", "-")


def _told(command: click.Command) -> click.Command:
    """Return a command as click-man wants it: its line whole, no marks for click's printing, those below it loaded."""
    told = copy(command)
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        found = {name: command.get_command(ctx, name) for name in command.list_commands(ctx)}
        below = {name: _told(one) for name, one in found.items() if one and not one.hidden}
        told = click.Group(command.name, below, help=command.help, epilog=command.epilog, params=command.params)
    told.short_help = command.get_short_help_str(200).rstrip(".")
    told.help = (command.help or "").replace("\b\n", "")
    return told


def _page(ctx: click.Context, version: str, date: str) -> str:
    title = ctx.command_path.upper()
    page = generate_man_page(ctx, version, date).replace(f'"{title}"', f'"{title.replace(" ", "-")}"', 1)
    return re.sub(r"^'", r"\\&'", page, flags=re.MULTILINE) + sections(ctx.command.epilog or "")


def sections(epilog: str) -> str:
    """Return an epilog as sections of a man page: a block that begins with `Title:` is one of that name, as it stands;
    others are paragraphs of NOTES."""
    titled, notes = "", ""
    for block in re.split(r"^\x08\n", epilog, flags=re.MULTILINE):
        title, _, rest = block.strip("\n").partition("\n")
        if re.fullmatch(r"[A-Z][a-z ]+:", title):
            titled += f".SH {title[:-1].upper()}\n.nf\n{_escaped(rest)}\n.fi\n"
        elif title:
            notes += f".PP\n{_escaped(block.strip())}\n"
    return titled + (f".SH NOTES\n{notes}" if notes else "")


def _escaped(text: str) -> str:
    """Return text that roff prints as it stands."""
    return re.sub(r"^([.'])", r"\\&\1", text.replace("\\", r"\e").replace("-", r"\-"), flags=re.MULTILINE)
