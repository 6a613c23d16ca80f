"""The help of `recover`, with the commands grouped by purpose."""

import click

SECTIONS = {
    "Train": ("plan", "midtrain", "distill", "cycle", "resume", "demo"),
    "A model trained elsewhere": ("check", "repair"),
    "Evaluate": ("eval", "compare", "documents", "questions", "study"),
    "Decide": ("promote", "rollback", "export"),
    "Inspect": ("status", "runs", "show", "lineage", "dashboard", "report"),
    "Maintain": ("init", "doctor", "serve-plan", "cancel", "gc", "db"),
}


class SectionedGroup(click.Group):
    """Lists its commands under the headings of SECTIONS; commands without a section come last."""

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
