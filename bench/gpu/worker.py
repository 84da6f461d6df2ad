"""Compiles the programs of one recipe, in the environment that can: `python -m bench.gpu.worker REQUEST`.

The request is JSON: `recipe` (TOML text), `gpus`, `devices` (several), `hlo`, a folder to save the programs in or
nothing, and `trace`, whether they are traced alone. Each program is one line of JSON on the standard output, with a
digest of what was traced; what else is said goes to standard error.
"""

import hashlib
import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import jax

from bench.gpu.facts import facts_of
from bench.gpu.programs import on_cpus, prepared, programs, sizes
from jhgnn.config import Config
from jhgnn.config.recipe import override
from jhgnn.errors import InputError
from jhgnn.profiling.hlo import parse


def main() -> None:
    request = json.loads(sys.argv[1])
    jax.config.update("jax_num_cpu_devices", max(request["devices"]))
    config = override(Config(), tomllib.loads(request["recipe"]), where="bench.gpu")
    try:
        execution = prepared(config)
    except InputError as error:
        print(json.dumps({"skipped": str(error)}), flush=True)
        return
    shared = {"implementations": sorted({choice.implementation for choice in execution.choices})}
    for devices in request["devices"]:
        for gpu in request["gpus"]:
            for program in programs(execution, devices):
                start = time.perf_counter()
                lowered = program.lower(gpu)
                traced = time.perf_counter()
                row: dict[str, Any] = {"gpu": gpu, "devices": devices, "program": program.name} | shared
                row["traced"] = digest(lowered)
                if request["trace"]:
                    print(json.dumps(row), flush=True)
                    continue
                compiled = lowered.compile()
                row |= {"trace_s": round(traced - start, 2), "compile_s": round(time.perf_counter() - traced, 2)}
                memory: Any = compiled.memory_analysis()
                for kind in ("argument", "output", "alias", "temp"):
                    row[f"{kind}_bytes"] = int(getattr(memory, f"{kind}_size_in_bytes"))
                text = compiled.as_text() or ""
                if request["hlo"]:
                    name = f"{request['name']}-{program.name}-{gpu}-{devices}.hlo.txt"
                    (Path(request["hlo"]) / name).write_text(text, encoding="utf-8")
                row |= facts_of(parse(text), sizes(execution), config.model.hidden)
                print(json.dumps(row), flush=True)
        if devices > 1 and config.sampling.batch_size:
            lowered = on_cpus(config, devices)
            row = {"gpu": "cpu", "devices": devices, "program": "update", "traced": digest(lowered)}
            if not request["trace"]:
                row |= facts_of(parse(lowered.compile().as_text() or ""), {}, 1)
            print(json.dumps(row), flush=True)


def digest(lowered: jax.stages.Lowered) -> str:
    """Of a traced program; those of one digest compile to the same."""
    return hashlib.sha256(lowered.as_text().encode()).hexdigest()[:16]


if __name__ == "__main__":
    main()
