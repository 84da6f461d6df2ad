"""Where a training step's time goes: stage by stage, traffic and memory beside it."""

# %% A recipe
# A recipe is a TOML file; what it leaves out has its default. This one trains HAN on a part of the synthetic ACM. HAN
# aggregates over metapaths: here papers of one author (PAP), and papers of one subject (PSP).
import json
import tempfile
from pathlib import Path

from jhgnn import profile

temporary = tempfile.TemporaryDirectory()
folder = Path(temporary.name)
(folder / "recipe.toml").write_text("""
[data]
preset = "acm"
scale = 0.3

[model]
name = "han"
metapaths = ["PAP", "PSP"]
""")

# %% A profile
# This is the command `python -m jhgnn.profile --config recipe.toml --run.dir profile`. A few training steps run under
# XLA's profiler, and every operation is attributed to a stage: feature projection (FP), neighbor aggregation (NA),
# semantic fusion (SF), the loss (LC), and the parameter update (PU). The table has time, floating-point operations and
# memory traffic for each, forward and backward.
code = profile.main(["--config", str(folder / "recipe.toml"), "--run.dir", str(folder / "profile"), "--steps", "5"])
assert code == 0

# %% The same figures, to compute with
# `profile.json` holds them; `report.html` beside it shows them in a browser.
figures = json.loads((folder / "profile" / "profile.json").read_text())
by_stage = {}
for row in figures["stages"]:
    by_stage[row["stage"]] = by_stage.get(row["stage"], 0.0) + row["share"]
slowest = max(by_stage, key=by_stage.get)
print(f"the stage that takes most of the step: {slowest}, {by_stage[slowest]:.0%}")
temporary.cleanup()
