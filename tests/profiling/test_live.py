"""The training step traced here: a stage that does its work twice, annotated host work, barriers, the command."""

import json
import shutil
import subprocess
from unittest import mock

import jax
import pytest

from jhgnn import profile as command
from jhgnn.nn import neighbor_aggregation
from jhgnn.nn.stage import barriers, border
from jhgnn.ops.neighbor_attention import neighbor_attention
from jhgnn.profiling import capture as capturing
from jhgnn.profiling import xplane
from jhgnn.profiling.stages import analyse
from tests.profiling.conftest import small_recipe


def by_stage(profile, key):
    sums = {}
    for row in profile["stages"]:
        sums[row["stage"]] = sums.get(row["stage"], 0.0) + row[key]
    return sums


def test_a_live_trace_is_attributed_and_adds_up(live):
    profile = analyse(live.folder)
    assert profile["attribution"]["attributed"] >= 0.97
    assert abs(profile["step"]["parts_over_measured"] - 1) < 0.05
    assert set(profile["preparation"]) == {"READ", "SGB", "LOAD", "COMPILE"}
    assert profile["cost_check"]["flops"] == pytest.approx(profile["cost_check"]["xla_flops"], rel=0.01)
    ceilings = profile["roofline"]["ceilings"]
    assert ceilings["copy_bytes_per_s"] > 1e8
    assert ceilings["matmul_flops_per_s"] > 1e8
    assert profile["run"]["rows"] == "all: han computes all rows"


@pytest.mark.slow
def test_twice_the_work_in_na_moves_na_and_nothing_else(live, tmp_path):
    def twice(graph, z, *arguments, **options):
        first = neighbor_attention(graph, z, *arguments, **options)
        again, _ = jax.lax.optimization_barrier((z * 1.5, first))
        return 0.5 * (first + neighbor_attention(graph, again, *arguments, **options))

    recipe = small_recipe(attention="segment", projection="segment")
    with mock.patch.object(neighbor_aggregation, "neighbor_attention", twice):
        slowed = capturing.capture(recipe, tmp_path, warm_up=1, steps=3, progress=False)
    before, after = analyse(live.folder), analyse(slowed.folder)
    for key in ("bytes", "flops"):
        plain, doubled = by_stage(before, key), by_stage(after, key)
        assert 1.7 < doubled["NA"] / plain["NA"] < 2.5
        for stage in ("FP", "SF", "LC", "PU"):
            assert doubled[stage] == pytest.approx(plain[stage], rel=0.1), (key, stage)


def test_annotated_host_work_in_a_step_is_a_part_of_it(live, tmp_path):
    def sampled(*arguments):
        with jax.profiler.TraceAnnotation("SAMPLE"):
            jax.random.normal(jax.random.key(0), (8,)).block_until_ready()
        return arguments[0]

    with capturing.tracing(tmp_path, host_level=2), jax.profiler.StepTraceAnnotation("train", step_num=0):
        sampled(0)
    trace = xplane.read(xplane.find_trace(tmp_path))
    assert [span.name for span in trace.host] == ["SAMPLE"]
    assert trace.steps[0].start_ns <= trace.host[0].start_ns <= trace.host[0].end_ns <= trace.steps[0].end_ns


@pytest.mark.slow
def test_borders_are_free_unless_asked_for():
    def lowered():
        return jax.jit(lambda x: border(x, "na_out") * 2).lower(1.0).as_text()

    assert "optimization_barrier" not in lowered()
    with barriers():
        assert "optimization_barrier" in lowered()
    jax.clear_caches()
    assert "optimization_barrier" not in lowered()


@pytest.mark.slow
def test_trace_and_compare(stored, tmp_path, capsys):
    assert command.main(["--trace", str(stored), "--run.dir", str(tmp_path / "a")]) == 0
    for name in (
        "profile.json",
        "report.html",
        "stages.png",
        "kernel_types.png",
        "traffic.png",
        "roofline.png",
        "memory.png",
    ):
        assert (tmp_path / "a" / name).stat().st_size > 0, name
    page = (tmp_path / "a" / "report.html").read_text()
    assert "http://" not in page
    assert "https://" not in page
    assert page.count("<svg") == 6
    assert command.main(["--compare", str(tmp_path / "a"), str(tmp_path / "a"), "--run.dir", str(tmp_path)]) == 0
    assert (tmp_path / "compare.html").exists()
    assert "1.00" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trace", "nowhere"], "--trace nowhere: there is no such file or folder"),
        (["--compare", "nowhere", "elsewhere"], "profile nowhere: No such file or directory"),
        (["--trace", "a", "--compare", "b", "c"], "give one of them"),
        (["--steps", "0"], "--steps 0 is too small"),
        (["--model.nme", "han"], "unknown option --model.nme; did you mean"),
    ],
)
def test_bad_input_is_one_line(arguments, message, capsys):
    assert command.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error


def test_another_schema_is_refused(tmp_path, capsys):
    (tmp_path / "profile.json").write_text(json.dumps({"schema": 0}))
    assert command.main(["--compare", str(tmp_path), str(tmp_path)]) == 2
    assert "schema is 0, need 1" in capsys.readouterr().err


CHECK = """<script>
const results = [];
document.querySelectorAll("table").forEach((table) => {
  const numeric = [...table.tHead.rows[0].cells].findIndex((_, column) =>
    table.tBodies[0].rows.length > 1 && table.tBodies[0].rows[0].cells[column].dataset.v !== undefined);
  if (numeric < 0) return;
  const read = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[numeric].dataset.v));
  const sorted = (values, sign) => values.every((value, at) => at === 0 || sign * (value - values[at - 1]) >= 0);
  table.tHead.rows[0].cells[numeric].click();
  const down = sorted(read(), -1);
  table.tHead.rows[0].cells[numeric].click();
  results.push(down && sorted(read(), 1));
});
const drawn = (each) => each.querySelectorAll("rect,circle,polygon").length;
const empty = [...document.querySelectorAll("svg")].filter((each) => drawn(each) < 2);
document.title = `tables ${results.length} ${results.every(Boolean)} empty ${empty.length}`
  + ` wide ${document.documentElement.scrollWidth > window.innerWidth}`;
</script>"""


@pytest.mark.parametrize("width", [1280, 500])
def test_the_report_in_a_browser(stored, tmp_path, width):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium to open the report in")
    assert command.main(["--trace", str(stored), "--run.dir", str(tmp_path)]) == 0
    page = tmp_path / "checked.html"
    page.write_text((tmp_path / "report.html").read_text().replace("</body>", CHECK + "</body>"))
    options = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        f"--window-size={width},900",
    )
    found = subprocess.run(
        [browser, *options, f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in found.stderr
    title = found.stdout.partition("<title>")[2].partition("</title>")[0].split()
    assert int(title[1]) >= 5
    assert title[2:] == ["true", "empty", "0", "wide", "false"]
