"""The help of `recover`, with the commands grouped by purpose, and the new names of renamed options."""

import click

SECTIONS = {
    "Train": ("midtrain", "distill", "cycle", "resume", "demo"),
    "A model trained elsewhere": ("check", "repair"),
    "Evaluate": ("eval", "compare", "documents", "questions", "study"),
    "Decide": ("promote", "rollback", "export"),
    "Inspect": ("status", "runs", "show", "lineage", "dashboard", "report"),
    "Maintain": ("init", "doctor", "serve-plan", "cancel", "gc", "db"),
}
RENAMED_OPTIONS = {  # not --mix for its entries: an entry that --mix does not list is 0
    "--replay": "--set midtrain.mix.answers=SHARE",
    "--recollect": "--set midtrain.mix.texts=SHARE",
    "--rehearse": "--set midtrain.mix.earlier=SHARE",
    "--reword": "--set midtrain.mix.paraphrases=N",
    "--again": "--rerun",
    "--why": "--reason",
    "--against": "--decontaminate",
}


class Command(click.Command):
    """Says what a renamed option is called now."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in RENAMED_OPTIONS:
                raise
            raise click.UsageError(
                f"{error.message} It is called {RENAMED_OPTIONS[error.option_name]} now.", ctx
            ) from None


class SectionedGroup(click.Group):
    """Lists its commands under the headings of SECTIONS; commands without a section come last."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        listed = {name for section in SECTIONS.values() for name in section}
        sections = SECTIONS | {"Other": tuple(name for name in names if name not in listed)}
        width = max(map(len, names))
        limit = formatter.width - 6 - width
        for title, members in sections.items():
            rows = [(f"{name:<{width}}", self.commands[name].get_short_help_str(limit)) for name in members]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
