"""The picture that `tensai sweep --plot` draws."""

from __future__ import annotations

from pathlib import Path

from wgpu_native_py.paths import replacing

from .crossover import Row

WAYS = (
    ("gpu+transfer", "transfer", "o-", "tab:blue"),
    ("gpu, resident", "resident", "s--", "tab:cyan"),
    ("cpu (NumPy)", "cpu", "^-", "tab:orange"),
)


def check(path: Path) -> None:
    """Raise before minutes are spent on a picture that can't be drawn, or not be put there.

    ImportError, which names the extra, without matplotlib; ValueError for the path.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as error:
        raise ImportError(
            "--plot needs the matplotlib package: pip install tensai[plot]", name="matplotlib"
        ) from error
    kinds = sorted(FigureCanvasAgg.get_supported_filetypes())
    if _kind(path) not in kinds:
        raise ValueError(f"{path} can't be drawn; a picture's name ends in {', '.join(kinds)}")
    if path.is_dir() or not path.parent.is_dir():
        what = "it is a folder" if path.is_dir() else "its folder does not exist"
        raise ValueError(f"{path} can't be written: {what}")


def draw(path: Path, title: str, rows: list[Row], crossover: float | None) -> None:
    """Time over MFLOP, both logarithmic, the crossover marked. Needs no display."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    rows = [row for row in rows if row.ratio is not None]
    figure = Figure(figsize=(8, 5.5), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log")
    axes.set_yscale("log")
    works = [row.size.work * 2e-6 for row in rows]
    for label, name, style, color in WAYS:
        axes.plot(
            works, [getattr(row, name) * 1e3 for row in rows], style, color=color, label=label
        )
    if crossover is None:
        axes.plot([], [], " ", label="no crossover")
    else:
        label = f"crossover: {crossover * 2e-6:,.3g} MFLOP"
        axes.axvline(crossover * 2e-6, color="tab:red", linestyle=":", label=label)
    axes.set_xlabel("work of a product (MFLOP)")
    axes.set_ylabel("time of a product (ms)")
    axes.grid(True, which="major", alpha=0.4)
    axes.legend()
    names = axes.secondary_xaxis("top")
    names.set_xticks(works, [row.size.name for row in rows], rotation=40, ha="left")
    names.xaxis.set_minor_locator(NullLocator())
    figure.suptitle(title, fontsize="medium", wrap=True)

    try:
        with replacing(path) as part:
            figure.savefig(part, format=_kind(path))
    except OSError as error:
        raise ValueError(f"{path} can't be written: {error.strerror or error}") from error


def _kind(path: Path) -> str:
    return path.suffix[1:].lower() or "png"
