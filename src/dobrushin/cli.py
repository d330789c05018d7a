"""The command `dobrushin`: make a result from the shell."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from dobrushin import results
from dobrushin.random import LAWS, baseline

__all__ = ["main"]

BASELINE_SIZES = (2, 3, 4, 6, 8, 12, 16, 29, 64, 128, 196, 256)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dobrushin", description="Measure how often attention satisfies the equality condition."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    output = argparse.ArgumentParser(add_help=False)
    output.add_argument("--output", type=Path, default=Path("results"), metavar="FOLDER", help="default: %(default)s")

    one = commands.add_parser(
        "measure", parents=[output], help="measure a model", description="Measure a model on windows of a text.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
    one.add_argument("model", help="a name of the registry: minilm")
    one.add_argument("--text", type=Path, metavar="FILE", help="UTF-8 text (default: help topics that come with Python)")
    one.add_argument("--number", type=_positive, default=512, help="how many sequences")
    one.add_argument("--length", type=_positive, default=128, help="tokens a sequence, separators included")
    one.add_argument("--batch-size", type=_positive, default=8, help="sequences a call of the model")
    one.add_argument("--name", help="name of the result (default: that of the model)")
    one.set_defaults(run=_measure)

    random = commands.add_parser(
        "baseline", parents=[output], help="measure random matrices", description="Share of random stochastic matrices.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
    random.add_argument("--draws", type=_positive, default=10_000, help="matrices of every law and size")
    random.add_argument("--seed", type=int, default=0)
    random.set_defaults(run=_baseline)
    return parser


def _command(*words: object) -> str:
    """The command that makes a result again, with every choice spelled out and no path of this machine."""
    return shlex.join(["dobrushin", *map(str, words)])


def _measure(options: argparse.Namespace) -> Path:
    from dobrushin import inputs, measure, models

    started = results.now()
    text = inputs.read_text(options.text) if options.text else inputs.default_text()
    model = models.load(options.model)
    chosen = inputs.sequences(model.tokenizer, text, options.number, options.length)
    table = measure.measure(model, chosen, batch_size=options.batch_size)
    print(measure.summary(table).to_string(), file=sys.stderr)
    name = options.name or options.model
    command = _command(
        "measure", options.model, *(["--text", text.name] if options.text else []), "--number", options.number,
        "--length", options.length, "--batch-size", options.batch_size, "--name", name,
    )  # fmt: skip
    how = measure.provenance(model, chosen, started=started, command=command)
    return results.write(table, how, name, options.output)


def _baseline(options: argparse.Namespace) -> Path:
    started = results.now()
    rows = []
    for law in LAWS:
        for n in BASELINE_SIZES:
            with tqdm(total=options.draws, desc=f"{law}, n = {n}", unit="matrix", leave=False) as bar:
                for share in baseline(law, n, options.draws, options.seed):
                    bar.update(share.draws - bar.n)
            rows.append(share)
    command = _command("baseline", "--draws", options.draws, "--seed", options.seed)
    how = {"kind": "baseline", "command": command, "seed": options.seed, "started": started}
    return results.write(pd.DataFrame(rows), how, "random_baseline", options.output)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when a result was written, 2 when the request cannot be met."""
    options = _parser().parse_args(arguments)
    try:
        path = options.run(options)
    except (OSError, ValueError) as error:
        print(f"dobrushin: {error}", file=sys.stderr)
        return 2
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
