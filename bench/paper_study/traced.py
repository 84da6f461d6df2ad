"""Which programs recipes are in a working tree: traced, not compiled.

`python -P bench/paper_study/traced.py ROOT` takes JSON, a list of recipes as TOML, from the standard input and writes a
line for each: a digest of its step and of its inference, or why there is none. The package is that of ROOT.
"""

import hashlib
import json
import sys
import tomllib
from collections.abc import Iterator, Sequence


def main() -> None:
    root = sys.argv[1]
    # Where the package is installed from another tree, Python would find it there first.
    sys.meta_path[:] = [each for each in sys.meta_path if "editable" not in type(each).__module__]
    sys.path.insert(0, root)
    for line in digests(json.load(sys.stdin)):
        print(line, flush=True)


def digests(recipes: Sequence[str]) -> Iterator[str]:
    """In the order of the recipes."""
    from jhgnn.config import Config
    from jhgnn.config.recipe import override
    from jhgnn.errors import InputError
    from jhgnn.runtime.jax_settings import configure_jax
    from jhgnn.training.prepare import prepare

    configure_jax()
    for recipe in recipes:
        try:
            execution = prepare(override(Config(), tomllib.loads(recipe), where="bench.paper"), progress=False)
        except InputError as error:
            yield f"none: {error}"
            continue
        text = execution.lower_update().as_text() + execution.lower_inference().as_text()
        yield hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    main()
