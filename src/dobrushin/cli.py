"""The command `dobrushin`: make a result from the shell."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from dobrushin import results
from dobrushin.random import LAWS, baseline

__all__ = ["main"]

BASELINE_SIZES = (2, 3, 4, 6, 8, 12, 16, 29, 64, 128, 196, 256)
_NOTHING_KEPT = "nothing was kept, and the same command starts again"


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows the default of every option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return super()._get_help_string(action) if action.default not in (None, False) else action.help


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _positive(text: str) -> int:
    value = _integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def _seed(text: str) -> int:
    value = _integer(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"{value} is not a seed; expected a number from 0 to 2^32 - 1")
    return value


def _name(text: str) -> str:
    if not text or Path(text).name != text or text.startswith("."):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name; expected a file's, without a folder (which is --output)")
    return text


def _new_folder(text: str) -> Path:
    """A folder to write to, there or to be made: what cannot be one is refused before the work, not after it."""
    folder = Path(text)
    there = next(path for path in (folder, *folder.parents) if os.access(path, os.F_OK))
    if not there.is_dir():
        raise argparse.ArgumentTypeError(f"{there} is a file; expected a folder, which is made where it is missing")
    if not os.access(there, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"this user may not write to {there}; name another folder")
    return folder


def _new_file(text: str) -> Path:
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a folder; expected the name of a file, such as {path / 'attention.html'}")
    _new_folder(str(path.parent))
    return path


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(map(_seed, text.split(","))))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dobrushin", description="Measure how often attention satisfies the equality condition."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('dobrushin')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    output = argparse.ArgumentParser(add_help=False)
    output.add_argument("--output", type=_new_folder, default="results", metavar="FOLDER", help="where results go")

    one = commands.add_parser(
        "measure", parents=[output], help="measure a model",
        description="Measure a model on images or texts. A run that was stopped goes on when the command is given again.",
        formatter_class=_Help,
    )  # fmt: skip
    _add_inputs(one, number=512, length=128)
    one.add_argument("--lines", action="store_true", help="one input a line of the text, of its own length (no averages)")
    one.add_argument("--batch-size", type=_positive, default=8, help="inputs a call of the model")
    one.add_argument("--device", default="cpu", help="cpu, cuda or mps")
    one.add_argument("--scopes", type=lambda text: text.split(","), help="some of the scopes, by commas (default: all)")
    one.add_argument("--name", type=_name, help="name of the result (default: that of the model)")
    one.add_argument("--scheduler", metavar="ADDRESS", help="run on the Dask cluster of that scheduler, such as tcp://HOST:8786")
    one.set_defaults(run=_measure, stopped="finished batches are kept, and the same command goes on after them")

    seen = commands.add_parser(
        "show", help="write a page that shows single inputs",
        description="Write a page, in one file, that shows a model's attention on single inputs, layer by layer.",
        formatter_class=_Help,
    )  # fmt: skip
    _add_inputs(seen, number=4, length=48)
    seen.add_argument("--output", type=_new_file, default="attention.html", metavar="FILE", help="where the page goes")
    seen.set_defaults(run=_show, stopped=_NOTHING_KEPT)

    listed = commands.add_parser("models", help="list the models of the registry", description="List the models of the registry.")
    listed.set_defaults(run=_models, stopped=_NOTHING_KEPT)

    report = commands.add_parser(
        "report", help="print the tables of the results", description="Print the tables of the results in a folder.",
        formatter_class=_Help,
    )  # fmt: skip
    report.add_argument("folder", type=Path, nargs="?", default=Path("results"), help="where results lie")
    report.set_defaults(run=_report, stopped=_NOTHING_KEPT)

    random = commands.add_parser(
        "baseline", parents=[output], help="measure random matrices", description="Share of random stochastic matrices.",
        formatter_class=_Help,
    )  # fmt: skip
    random.add_argument("--draws", type=_positive, default=10_000, help="matrices of every law and size")
    random.add_argument("--seed", type=_seed, default=0, help="of the random matrices")
    random.set_defaults(run=_baseline, stopped=_NOTHING_KEPT)
    _add_training(commands, output)
    return parser


def _add_inputs(command: argparse.ArgumentParser, *, number: int, length: int) -> None:
    command.add_argument("model", help="a name that `dobrushin models` lists, timm:NAME-or-folder or hf:ID-or-folder")
    command.add_argument("--images", type=Path, metavar="FOLDER", help="photographs (default: crops of scikit-learn's two)")
    command.add_argument("--text", type=Path, metavar="FILE", help="UTF-8 text (default: help topics that come with Python)")
    command.add_argument("--number", type=_positive, default=number, help="how many images or sequences")
    command.add_argument("--size", type=_positive, help="pixels a side (default: the model's)")
    command.add_argument("--length", type=_positive, default=length, help="tokens a sequence at most, separators included")
    command.add_argument("--seed", type=_seed, default=0, help="of untrained weights and of the default images")
    command.add_argument("--untrained", action="store_true", help="weights drawn from the model's initialiser")
    command.add_argument("--download", action="store_true", help="fetch a checkpoint that is not on this machine")


def _add_training(commands: Any, output: argparse.ArgumentParser) -> None:
    training = commands.add_parser(
        "train", parents=[output], help="train FT-Transformer and measure it",
        description="Train FT-Transformer and measure its attention; a run that was stopped goes on where it was.",
        formatter_class=_Help,
    )  # fmt: skip
    training.add_argument(
        "config", metavar="CONFIG",
        help="california-3, california-6, california-6-default, higgs-3, higgs-3-partial; or the baselines of a table: "
        "california-baselines, higgs-baselines, higgs-partial-baselines",
    )  # fmt: skip
    training.add_argument("--seed", type=_seed, default=0, help="of weights, batches, dropout and noise")
    training.add_argument("--restart", action="store_true", help="forget an earlier checkpoint of this run")
    training.set_defaults(
        run=_train,
        stopped="finished epochs are kept, and the same command without --restart goes on after them; baselines start again",
    )

    study = commands.add_parser(
        "variants", parents=[output], help="measure trained FT-Transformers in other ways",
        description="Measure trained FT-Transformers under every reading that the paper leaves open.",
        formatter_class=_Help,
    )  # fmt: skip
    study.add_argument("config", metavar="CONFIG", help="as for train")
    study.add_argument("--seeds", type=_seeds, default=(0, 1, 2), help="of networks that were trained, by commas")
    study.set_defaults(run=_variants, stopped=_NOTHING_KEPT)

    for command, kind in ((training, _new_folder), (study, Path)):
        command.add_argument("--data", type=Path, metavar="FOLDER", help="where the table's files lie (default: official source)")
        command.add_argument("--checkpoints", type=kind, default="checkpoints", metavar="FOLDER", help="where they lie")


def _command(*words: object) -> str:
    """The command that makes a result again, with every choice spelled out and no path of this machine."""
    return shlex.join(["dobrushin", *map(str, words)])


def _measure(options: argparse.Namespace) -> Path:
    from dobrushin import cluster, models

    which = {name: getattr(options, name) for name in ("untrained", "size", "seed", "download")}
    if options.scheduler is None:
        models.check_device(options.device)
        return _measure_model(options, models.load(options.model, **which), None)
    with cluster.connected(options.scheduler) as client:
        return _measure_model(options, models.load(options.model, **which), cluster.Cluster(client, options.model, **which))


def _measure_model(options: argparse.Namespace, model: Any, cluster: Any) -> Path:
    from dobrushin import measure, models
    from dobrushin.work import Work

    chosen, words = _inputs(options, model)
    name = options.name or re.sub(
        r"[^A-Za-z0-9._-]+", "-", options.model if options.model in models.REGISTRY else model.spec.title
    )
    if options.untrained and not options.name:
        name += "-untrained"
    words += ["--batch-size", options.batch_size, *(["--device", options.device] if options.device != "cpu" else [])]
    words += ["--untrained", "--seed", options.seed] if options.untrained else []
    words += ["--scopes", ",".join(options.scopes)] if options.scopes else []
    asked = options.model if options.model in models.REGISTRY else f"{options.model.partition(':')[0]}:{model.spec.title}"
    command = _command("measure", asked, *words, "--name", name)

    how = measure.provenance(model, chosen, started="", command=command)
    results.refuse_another_run(how, name, options.output)
    run = {k: how[k] for k in ("command", "model", "inputs")} | {"commit": results.git_commit(), "versions": results.versions()}
    work = Work(options.output / f"{name}.unfinished", run)
    try:
        if work.done:
            print(f"goes on after {work.done} finished batches", file=sys.stderr)
        table = measure.measure(
            model, chosen, batch_size=options.batch_size, scopes=options.scopes, device=options.device, work=work, run=cluster
        )
        how = measure.provenance(model, chosen, started=work.started, command=command)
        how |= cluster.provenance() if cluster is not None else {}
        path = results.write(table, how, name, options.output)
        work.delete()
    finally:
        work.close()
    print(measure.summary(table).to_string(), file=sys.stderr)
    return path


def _show(options: argparse.Namespace) -> Path:
    from dobrushin import models, show

    model = models.load(
        options.model, untrained=options.untrained, size=options.size, seed=options.seed, download=options.download
    )
    options.lines = model.takes == "text"
    chosen, _ = _inputs(options, model)
    examples = [show.describe(model, chosen, k) for k in tqdm(range(options.number), unit="input", leave=False)]
    given = chosen.describe()
    source = given.get("text") or given.get("images")
    weights = "untrained weights" if options.untrained else f"weights: {model.spec.status}, SHA-256 {model.weights_sha256[:12]}"
    note = f"{model.spec.title}; {weights}. Inputs: {options.number} of {source}."
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(show.page(model.spec.title, note, examples), encoding="utf-8")
    return options.output


def _inputs(options: argparse.Namespace, model: Any) -> tuple[Any, list[object]]:
    """The inputs, and the words of the command that choose them again."""
    from dobrushin import images, inputs

    if model.takes == "images":
        if options.text or options.lines:
            raise ValueError(f"{model.spec.title} takes images, not text; name a folder with --images")
        if options.images:
            pictures = images.folder(options.images, options.number)
            source: list[object] = ["--images", pictures.name]
        else:
            pictures = images.default_pictures(options.number, options.seed)
            source = [] if options.untrained else ["--seed", options.seed]
        return images.images(model, pictures), [*source, "--number", options.number, "--size", model.size]
    if options.images or options.size:
        raise ValueError(f"{model.spec.title} takes text, not images; name a file with --text and its length with --length")
    text = inputs.read_text(options.text) if options.text else inputs.default_text()
    cut = inputs.lines if options.lines else inputs.sequences
    source = ["--text", text.name] if options.text else []
    source += ["--lines"] if options.lines else []
    return cut(model.tokenizer, text, options.number, options.length), [
        *source,
        "--number",
        options.number,
        "--length",
        options.length,
    ]


def _models(options: argparse.Namespace) -> None:
    from dobrushin import tables

    print(tables.registry().to_string())


def _report(options: argparse.Namespace) -> None:
    from dobrushin import networks, tables

    trained = networks.networks(options.folder)
    parts = [("FT-Transformers, by seed", networks.by_seed(trained).set_index(["Configuration", "Seed"]))] if trained else []
    try:
        parts = tables.report(options.folder) + parts
    except FileNotFoundError:  # no measurement of a model
        if not parts:
            raise
    for title, table in parts:
        print(f"{title}\n\n{table.to_string(na_rep='–')}\n")


def _baseline(options: argparse.Namespace) -> Path:
    started = results.now()
    command = _command("baseline", "--draws", options.draws, "--seed", options.seed)
    how = {"kind": "baseline", "command": command, "seed": options.seed, "started": started}
    results.refuse_another_run(how, "random_baseline", options.output)
    rows = []
    for law in LAWS:
        for n in BASELINE_SIZES:
            with tqdm(total=options.draws, desc=f"{law}, n = {n}", unit="matrix", leave=False) as bar:
                for share in baseline(law, n, options.draws, options.seed):
                    bar.update(share.draws - bar.n)
            rows.append(share)
    return results.write(pd.DataFrame(rows), how, "random_baseline", options.output)


def _train(options: argparse.Namespace) -> Path:
    from dobrushin import tabular, tabular_data, tabular_results

    started = results.now()
    table_name = options.config.removesuffix("-baselines")
    if table_name != options.config and table_name in tabular_data.TABLES:
        prepared = tabular_data.prepare(tabular_data.load(table_name, options.data), options.seed)
        how = tabular_results.baselines_provenance(prepared, options.seed)
        how |= {"command": _command("train", options.config, "--seed", options.seed), "started": started}
        results.refuse_another_run(how, f"ftt_{options.config}", options.output)
        return results.write(tabular_results.baselines(prepared), how, f"ftt_{options.config}", options.output)
    config = _training_config(options.config, " or TABLE-baselines")
    prepared = tabular_data.prepare(tabular_data.load(config.table, options.data), options.seed)
    command = _command("train", config.name, "--seed", options.seed)
    name = f"ftt_{config.name}_seed{options.seed}"
    asked = {"command": command, "data": {"split_sha256": prepared.table.split_sha256}}
    for result in (f"{name}_training", name):
        results.refuse_another_run(asked, result, options.output)
    run = tabular.train(config, options.seed, prepared, options.checkpoints, restart=options.restart)
    learned = tabular_results.training_provenance(run, started=started, command=command)
    results.write(tabular_results.training_table(run), learned, f"{name}_training", options.output)
    table, how = tabular_results.result(run, started=started, command=command)
    print(pd.DataFrame(how["counts"]).groupby("scope")[["matrices", "holds"]].sum().to_string(), file=sys.stderr)
    return results.write(table, how, name, options.output)


def _variants(options: argparse.Namespace) -> Path:
    from dobrushin import tabular, tabular_data, tabular_results, tabular_variants

    started, config = results.now(), _training_config(options.config)
    paths = {seed: tabular.checkpoint_path(options.checkpoints, config, seed) for seed in options.seeds}
    for seed, path in paths.items():
        if not path.exists() or not tabular.is_finished(path):
            raise ValueError(f"{path} holds no finished run; train first: {_command('train', config.name, '--seed', seed)}")
    command = _command("variants", config.name, "--seeds", ",".join(map(str, options.seeds)))
    for study in ("matrices", "variants"):
        results.refuse_another_run({"command": command}, f"ftt_{config.name}_{study}", options.output)
    table = tabular_data.load(config.table, options.data)
    parts, looks, networks = [], [], []
    for seed in options.seeds:
        prepared = tabular_data.prepare(table, seed)
        run = tabular.train(config, seed, prepared, options.checkpoints)
        parts.append(tabular_variants.study(run).assign(seed=seed))
        looks.append(tabular_variants.matrices(run).assign(seed=seed))
        networks.append(tabular_results.describe(run))
    how: dict[str, Any] = {"command": command, "networks": networks, "device": "cpu", "started": started}
    shown = pd.concat(looks, ignore_index=True)
    results.write(shown, {"kind": "tabular-matrices", **how}, f"ftt_{config.name}_matrices", options.output)
    how |= {"kind": "tabular-variants", "variants": tabular_variants.TITLES}
    return results.write(pd.concat(parts, ignore_index=True), how, f"ftt_{config.name}_variants", options.output)


def _training_config(name: str, more: str = "") -> Any:
    from dobrushin.tabular import CONFIGS

    if name not in CONFIGS:
        raise ValueError(f"configuration is {name!r}; expected one of {', '.join(CONFIGS)}{more}")
    return CONFIGS[name]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when it was done, 2 when the request cannot be met, 130 when it was interrupted."""
    options = _parser().parse_args(arguments)
    try:
        path = options.run(options)
    except (OSError, ValueError) as error:
        print(f"dobrushin: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"dobrushin: stopped; {options.stopped}", file=sys.stderr)
        return 130
    if path is not None:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
