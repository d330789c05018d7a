"""The command `dobrushin`: make a result from the shell."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
    _add_training(commands, output)
    return parser


def _add_training(commands: Any, output: argparse.ArgumentParser) -> None:
    training = commands.add_parser(
        "train", parents=[output], help="train FT-Transformer and measure it",
        description="Train FT-Transformer and measure its attention; a run that was stopped goes on where it was.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
    training.add_argument(
        "config", metavar="CONFIG",
        help="california-3, california-6, california-6-default, higgs-3, higgs-3-partial; or the baselines of a table: "
        "california-baselines, higgs-baselines, higgs-partial-baselines",
    )  # fmt: skip
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--data", type=Path, metavar="FOLDER", help="where the table's files lie (default: official source)")
    training.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), metavar="FOLDER")
    training.add_argument("--restart", action="store_true", help="forget an earlier checkpoint of this run")
    training.set_defaults(run=_train)


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


def _train(options: argparse.Namespace) -> Path:
    from dobrushin import tabular, tabular_data

    started = results.now()
    table_name = options.config.removesuffix("-baselines")
    if table_name != options.config and table_name in tabular_data.TABLES:
        prepared = tabular_data.prepare(tabular_data.load(table_name, options.data), options.seed)
        scores, how = tabular.baselines(prepared), tabular.baselines_provenance(prepared, options.seed)
        how |= {"command": _command("train", options.config, "--seed", options.seed), "started": started}
        return results.write(scores, how, f"ftt_{options.config}", options.output)
    if options.config not in tabular.CONFIGS:
        raise ValueError(f"configuration is {options.config!r}; expected one of {', '.join(tabular.CONFIGS)}, or TABLE-baselines")
    config = tabular.CONFIGS[options.config]
    prepared = tabular_data.prepare(tabular_data.load(config.table, options.data), options.seed)
    run = tabular.train(config, options.seed, prepared, options.checkpoints, restart=options.restart)
    command = _command("train", config.name, "--seed", options.seed)
    name = f"ftt_{config.name}_seed{options.seed}"
    learned = tabular.training_provenance(run, started=started, command=command)
    results.write(tabular.training_table(run), learned, f"{name}_training", options.output)
    table, how = tabular.result(run, started=started, command=command)
    print(pd.DataFrame(how["counts"]).groupby("scope")[["matrices", "holds"]].sum().to_string(), file=sys.stderr)
    return results.write(table, how, name, options.output)


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
