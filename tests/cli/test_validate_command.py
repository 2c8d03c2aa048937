"""unbubble validate: its answer, and its verdict where a figure is missed."""

from fractions import Fraction

from unbubble import validate
from unbubble.validate.figure import Figure


def test_the_keys_of_the_contract(unbubble):
    answer = unbubble("validate textbook --json").json
    assert {row["publication"] for row in answer["rows"]} == {"textbook"}
    assert answer["rows"][0] == {
        "publication": "textbook",
        "case": "gpipe p=4 m=8 F=1 B=2",
        "figure": "makespan",
        "theirs": 33,
        "ours": 33,
        "error": 0,
        "tolerance": 0.5,
        "at_most": False,
        "good": True,
        "source": "GPipe, arXiv 1811.06965; Megatron-LM, arXiv 2104.04473: (p−1)/(m+p−1)",
    }
    assert 0 < answer["mean_absolute_error"] < 0.001
    assert answer["bad"] == 0


def test_all_publications_take_a_line_each(unbubble):
    """They took 225 lines of up to 105 columns, of which only the last was an answer."""
    result = unbubble("validate")
    assert result.status == 0
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines[1:-2]] == list(validate.PUBLICATIONS)
    assert all(len(line) <= 80 for line in lines)
    assert "none beyond tolerance" in lines[-2]


def test_a_figure_that_is_missed_is_marked_and_ends_with_status_3(unbubble, monkeypatch):
    missed = Figure(case="p=4", what="bubble", theirs="0.25", ours=Fraction(3, 10), source="")
    monkeypatch.setitem(validate.PUBLICATIONS, "textbook", lambda: [missed])
    result = unbubble("validate textbook")
    assert result.status == 3
    assert "+0.0500  beyond its tolerance" in result.out
    assert "1 beyond tolerance" in result.out
    assert unbubble("validate textbook --json").status == 3
    assert "textbook     p=4   bubble    0.25   0.3  +0.0500" in unbubble("validate").out


def test_a_publication_that_is_none(refused):
    assert "no publication is called 'x'; known are textbook" in refused("validate x")
