"""A fine-tune with the chat template of its base: a folder of links to its weights, with the base's tokenizer."""

from pathlib import Path

from pipelines.project.weights_hash import weights_hash
from recovery.errors import RecoverError
from recovery.models.students import load_chat

OF_TOKENIZER = ("token", "vocab", "merges", "special_", "chat_template", "added_")  # beginnings of file names


def with_base_template(home: Path, model: str, base: str) -> str:
    """The path of the copy; the weights are not copied."""
    source = Path(model)
    if not source.is_dir():
        raise RecoverError(
            f"The chat template of {model} is not that of {base}, so it is copied with that template. Download it "
            "first, and name its folder."
        )
    folder = home / "templates" / weights_hash(source)[:16]
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        link = folder / file.name
        if file.is_file() and not file.name.startswith(OF_TOKENIZER) and not link.exists():
            link.symlink_to(file.resolve())
    load_chat(base).tokenizer.save_pretrained(folder)
    return str(folder)
