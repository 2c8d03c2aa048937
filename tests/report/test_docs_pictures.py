"""The pictures of README and docs are what the tool draws today."""

from pathlib import Path
from runpy import run_path

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"


def test_the_pictures_are_up_to_date():
    made = run_path(str(FOLDER / "make.py"))["pictures"]()
    assert {path.name for path in FOLDER.glob("*.svg")} == set(made)
    for name, picture in made.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == picture, (
            "run python docs/pictures/make.py"
        )
