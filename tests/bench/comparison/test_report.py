"""Tables that are drawn from stored results."""

import pytest

from bench.comparison.report import BEGIN, END, check_page, minibatch_table, target_table, write_tables
from bench.comparison.results import FileError


def test_tables_keep_the_text_around_them(tmp_path):
    page = tmp_path / "p.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    cell = {"epoch_ms": 2.0, "spread": 0.1, "first_epoch_s": 1.0}
    data = {
        "cells": {"han-acm": {"jhgnn": cell, "dgl": cell | {"epoch_ms": 20.0}, "pyg": {"missing": "no wheel"}}},
        "machine": {"processor": "p", "cores": 2, "memory_gib": 1, "load_average_at_start": 0},
        "settings": {"quick": True},
        "commit": "c",
        "complete": True,
        "missing": {"pyg": "no wheel", "dgl": ""},
    }
    write_tables(data, page, "r.json")
    text = page.read_text()
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| han-acm | 2.0 ± 0.2 | 20.0 ± 2.0 | no wheel | 10.0 |" in text


def test_the_time_to_a_target_is_of_the_variant_that_trained():
    run = {"epochs_to_target": 3, "target_f1": 0.8, "variant": "slow"}
    slow = {"epoch_ms": 500.0, "first_epoch_s": 2.0}
    cell = {"variant": "quick, another model", "epoch_ms": 1.0, "first_epoch_s": 1.0, "tried": {"slow": slow}}
    row = "| rgat-aifb | - | - | 3.00 (3 epochs) | 0.80 |"
    for shown in (cell, slow | {"variant": "slow"}):
        data = {"accuracy": {"rgat-aifb": {"pyg": {"0": run}}}, "cells": {"rgat-aifb": {"pyg": shown}}}
        assert row in target_table(data)
    data["cells"]["rgat-aifb"]["pyg"] = cell | {"tried": {}}
    assert target_table(data) == ""


def test_mini_batches_have_a_table_of_their_own():
    mode = {"batch_ms": 100.0, "spread": 0.1, "targets_per_s": 10240.0, "wait_share": 0.25}
    ours = {"variant": "ahead", "modes": {"in turn": mode | {"wait_share": 0.5}, "ahead": mode}}
    cells = {"rgcn-mag": {"jhgnn": ours | {"process_peak_bytes": 2**30}, "dgl": {"missing": "no wheel"}}}
    table = minibatch_table(cells)
    assert "| rgcn-mag | jhgnn | 100 | 50% | ahead | 100 ± 10 | 25% | 10,240 | 1,024 |" in table
    assert "| rgcn-mag | DGL | no wheel |" in table


@pytest.mark.parametrize("text", [None, "no markers", f"{END}\n{BEGIN}"])
def test_a_page_without_markers_is_refused(text, tmp_path):
    page = tmp_path / "page.md"
    if text is not None:
        page.write_text(text)
    with pytest.raises(FileError, match=r"--page .*page\.md: .*need a page with the lines <!--"):
        check_page(page)
