"""Where `auto` samples, and why."""

from jhgnn.sampling.plan import fan_out_plan
from jhgnn.sampling.side import choose_side, edge_bytes


def test_auto_says_why(graph) -> None:
    plan = fan_out_plan(graph, 3, 2)
    need = edge_bytes(graph, plan)
    assert need == 4 * (graph.num_edges + 4 * 301 + 201 + 554)
    assert choose_side(graph, plan, "cpu", 2**40)[0] == "host"
    side, why = choose_side(graph, plan, "gpu", 4 * need)
    assert (side, "within 25%" in why) == ("device", True)
    side, why = choose_side(graph, plan, "gpu", 4 * need - 1)
    assert (side, "over 25%" in why) == ("host", True)
    side, why = choose_side(graph, plan, "gpu")
    assert (side, "not known" in why) == ("host", True)
