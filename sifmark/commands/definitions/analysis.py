"""Commands that analyse results of studies: scaling, nodes, the energy of whole jobs."""

from typing import Annotated

from sifmark.commands.definition import Argument, Format, Option, Strings, command
from sifmark.commands.definitions.main import Results
from sifmark.commands.definitions.study import ResultsFolder
from sifmark.core.settings import Settings

SomeResults = Annotated[
    Strings, Argument("Result files, folders of them, or quoted globs.", "RESULTS", completes="file")
]


@command("study.scaling", example="study.scaling results/")
def scaling(
    paths: SomeResults = (),
    study: Annotated[str, Option("Read the results of this study.", "STUDY")] = "",
    results: ResultsFolder = "results",
    limit: Annotated[float, Option("Efficiency below which a curve bends. [default: 0.9]", "FRACTION")] = 0.9,
    format_: Format = "table",
) -> None:
    """Show how throughput scales over devices and nodes.

    With speed-up and efficiency, where they bend, and what takes the time, as far as results show it.
    """
    from sifmark.commands.study.scaling import show_scaling

    show_scaling(paths, study, results, limit, format_)


@command("study.screen", example="study.screen results/screen/ --list bad.txt")
def screen(
    settings: Settings,
    paths: Results,
    nodes: Annotated[
        str, Option("Nodes that should have results, as Slurm writes them, or a file with names.", "NODES")
    ] = "",
    baseline: Annotated[
        str, Option("Also compare with these results, or kept ones.", "RESULTS|baseline:NAME", completes="file")
    ] = "",
    by: Annotated[str, Option("What names a node in results.", choices=("host", "site"))] = "host",
    level: Annotated[float, Option("Chance that a healthy fleet has an outlier. [default: 0.01]", "FRACTION")] = 0.01,
    least: Annotated[float, Option("Difference below which no node is named. [default: 0.02]", "FRACTION")] = 0.02,
    list_: Annotated[str, Option("Write the names of failed and worse nodes there.", "FILE", completes="file")] = "",
    fail: Annotated[bool, Option("Exit with 7 if a node is named.")] = False,
    format_: Format = "table",
) -> None:
    """Find nodes that fail, or differ from the others.

    By speed, energy, clocks and temperature, against the fleet and a baseline, with a list for a scheduler.
    """
    from sifmark.commands.study.screen import ScreenRequest, screen_nodes
    from sifmark.studies.analysis.screening import Limits

    request = ScreenRequest(tuple(paths), nodes, baseline, by, Limits(level, least), settings.baselines)
    screen_nodes(request, list_, form=format_, fail=fail)


@command("study.nodes", example="study.nodes screen --nodes 'n[01-16]' --image cuda")
def nodes(
    settings: Settings,
    study: Annotated[str, Argument("A study, by name or file.", "STUDY", completes="file")],
    nodes: Annotated[str, Option("The nodes, as Slurm writes them, or a file with names.", "NODES")] = "",
    partition: Annotated[str, Option("Partition of Slurm; without --nodes all of its nodes.", "NAME")] = "",
    image: Annotated[str, Option("Image of the nodes. [default: the study's]", "IMAGE", completes="image")] = "",
    devices: Annotated[int, Option("Devices of a node. [default: the study's]", "N", least=1)] = 0,
    output: Annotated[str, Option("Write the study there. [default: print it]", "FILE", completes="file")] = "",
) -> None:
    """Write a study that runs on every node at once."""
    from sifmark.commands.study.nodes import write_study

    write_study(study, nodes, partition, image, devices, output, settings)


@command("study.energy", example="study.energy results/ --pdu power.csv")
def energy(
    settings: Settings,
    paths: Results,
    sacct: Annotated[str, Option("Energy of jobs, as sacct --parsable2 wrote it.", "FILE", completes="file")] = "",
    job_ids: Annotated[str, Option("Ask sacct for these jobs, with commas.", "JOBS")] = "",
    pdu: Annotated[
        str, Option("Power over time: CSV with time, watts and perhaps node.", "FILE", completes="file")
    ] = "",
    pdu_covers: Annotated[str, Option("What the PDU measures: node, chassis, rack ...", "WHAT")] = "",
    time_zone: Annotated[str, Option("Zone of times in the file that have none.", "ZONE")] = "",
    clock_offset: Annotated[float, Option("Add these seconds to the times of the file.", "SECONDS")] = 0.0,
    price: Annotated[float, Option("Price of a kWh. [default: energy in sifmark.toml]", "NUMBER")] = 0.0,
    currency: Annotated[str, Option("Its currency.", "NAME")] = "",
    carbon: Annotated[float, Option("Grams of CO2 for a kWh. [default: energy in sifmark.toml]", "GRAMS")] = 0.0,
    pue: Annotated[float, Option("Energy of the facility over that of its computers.", "RATIO")] = 0.0,
    format_: Format = "table",
) -> None:
    """Compare the energy of whole jobs with that of meters.

    As Slurm or a power distribution unit (PDU) counted it, with cost and carbon by a site's own numbers.
    """
    from sifmark.commands.study.energy import EnergySource, show_energy
    from sifmark.studies.analysis.energy import prices_of

    own = {"price_per_kwh": price, "currency": currency, "co2_grams_per_kwh": carbon, "pue": pue}
    source = EnergySource(sacct, job_ids, pdu, pdu_covers, time_zone, clock_offset)
    show_energy(paths, source, prices_of(settings.energy, **own), format_)
