"""Compiles the programs of one recipe, in the environment that can: `python -m bench.gpu.worker REQUEST`.

The request is JSON: `recipe` (TOML text), `gpus`, `devices` (several), and `hlo`, a folder to save the programs in or
nothing. Each program compiled is one line of JSON on the standard output; what else is said goes to standard error.
"""

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
                compiled = lowered.compile()
                row: dict[str, Any] = {"gpu": gpu, "devices": devices, "program": program.name} | shared
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
            text = on_cpus(config, devices).compile().as_text() or ""
            own = facts_of(parse(text), {}, 1)
            print(json.dumps({"gpu": "cpu", "devices": devices, "program": "update"} | own), flush=True)


if __name__ == "__main__":
    main()
