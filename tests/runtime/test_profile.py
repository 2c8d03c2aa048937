import pytest

from unbubble import Duration, InputError
from unbubble.costs_file import format_costs, parse_costs
from unbubble.runtime.profile import (
    Exchange,
    LayerProfile,
    Posts,
    Profile,
    ProfileResult,
    Samples,
    costs_of,
    profile,
)


def layer(name, F, output_bytes=1000):
    return LayerProfile(
        name=name,
        F=F,
        B=[400, 600],
        I=[350, 350],
        W=[10, 20],
        saved_bytes=300,
        saved_after_input_bytes=200,
        output_bytes=output_bytes,
        weight_bytes=64,
    )


def exchange(size, arrival, late=False):
    return Exchange(size_bytes=size, late=late, send=[5, 7, 6], recv=[3, 3, 9], arrival=[arrival])


SAMPLES = ProfileResult(
    layers=[layer("a", [100, 300]), layer("b", [150, 150], 4)],
    overhead=Samples(F=[40, 60], B=[70, 90], I=[100], W=[30]),
    posts=Posts(send=[5, 7, 6], recv=[1, 1, 7]),
    exchanges=[exchange(1000, 1100), exchange(2000, 2100), exchange(3000, 3100, late=True)],
)


def test_layers_cost_their_mean_less_the_overhead_of_an_action():
    costs = costs_of(SAMPLES)
    first, second = costs.stages
    assert first.forward == Duration(200 - 50)
    assert first.backward == Duration(500 - 80)
    assert first.backward_input == Duration(350 - 100)
    assert first.backward_weight == Duration(0)  # never below nothing
    assert second.forward == Duration(100)
    assert costs.action_overhead == (50 + 80) // 2
    assert (first.held_until_input_bytes, first.held_until_weight_bytes) == (100, 200)


def test_transfers_are_a_line_through_the_sizes():
    costs = costs_of(SAMPLES)
    assert costs.edge.transfer(2500) == 2600
    assert (costs.send_host, costs.recv_host) == (6, 3)


def test_the_costs_file_reads_back_equal():
    found = Profile(costs=costs_of(SAMPLES), samples=SAMPLES)
    text = format_costs(
        found.costs, rows="layers", notes=found.notes("m:f"), row_notes=found.row_notes()
    )
    assert parse_costs(text) == found.costs
    assert len(found.table().splitlines()) == 4


def test_a_real_profile():
    found = profile("unbubble.runtime.decoder:tiny", processes=2, rounds=2, warmup=1)
    layers = found.samples.layers
    assert [row.name.split()[1] for row in layers] == ["Embedding", *["Block"] * 6, "Head"]
    assert all(
        len(getattr(row, kind)) == (8 if kind == "F" else 4) for row in layers for kind in "FBIW"
    )
    block, head = layers[1], layers[-1]
    assert block.output_bytes == 2 * 16 * 32 * 4
    assert block.weight_bytes == 4 * (12 * 32 * 32 + 13 * 32)
    # the logits' softmax is kept for the loss, and PyTorch keeps all of it to the end of W
    assert head.saved_bytes > 2 * 16 * 1024 * 4
    assert 0 < head.saved_after_input_bytes <= head.saved_bytes
    assert block.saved_bytes > 10 * block.output_bytes
    assert layers[0].saved_bytes == 2 * 16 * 8  # the tokens
    assert found.costs.stages[3].backward.total > 0
    assert {e.late for e in found.samples.exchanges} == {False, True}
    assert found.costs.send_host > 0
    assert found.costs.action_overhead < 10**7


def test_what_cannot_be_profiled_is_refused():
    with pytest.raises(InputError, match="at least 1 process and 2 rounds"):
        profile("m:f", rounds=1)
