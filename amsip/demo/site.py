"""The map of the site: wells, wetland, and a river that the test has placed only roughly."""

import torch
from jaxtyping import Float
from torch import Tensor

from amsip.demo.aquifer import OBSERVATION_WELLS, TRUTH
from amsip.demo.wellfield import WELLS, WETLAND
from amsip.report import svg

WIDTH, HEIGHT = 760.0, 330.0
EAST = (-800.0, 1700.0)
NORTH = (-350.0, 760.0)


def site_map(samples: Float[Tensor, "n 4"]) -> str:
    """The site, with the central 90% of the river's position as a band."""
    x, y = svg.Scale(*EAST, 20.0, WIDTH - 20.0), svg.Scale(*NORTH, HEIGHT - 34.0, 10.0)
    levels = torch.tensor([0.05, 0.5, 0.95], dtype=samples.dtype)
    low, middle, high = (10.0 ** samples[:, 2]).quantile(levels).tolist()
    parts = [svg.area(_strip(x, y, EAST[0], EAST[1]), "frame")]
    parts.append(svg.area(_strip(x, y, low, min(high, EAST[1])), "river-band"))
    parts.append(svg.area(_strip(x, y, middle - 12.0, middle + 12.0), "river"))
    parts.append(svg.text(x(middle) + 14.0, y(NORTH[1]) + 22.0, "river: median, and 90% of the draws", "label"))
    parts.append(svg.line([(x(10.0 ** TRUTH[2]), y(v)) for v in NORTH], "truth"))
    parts.append(svg.circle(x(float(WETLAND[0])), y(float(WETLAND[1])), 13.0, "wetland"))
    parts.append(svg.text(x(float(WETLAND[0])) - 20.0, y(float(WETLAND[1])) + 4.0, "wetland", "end"))
    for index, (east, north) in enumerate(WELLS.tolist()):
        parts.append(svg.circle(x(east), y(north), 6.0, "well"))
        parts.append(svg.text(x(east) - 11.0, y(north) + 4.0, f"well {index + 1}", "end"))
    for east, north in OBSERVATION_WELLS.tolist():
        parts.append(svg.circle(x(east), y(north), 4.0, "observation", "observation well of the test"))
    parts.append(svg.line([(x(-700.0), y(NORTH[0]) - 14.0), (x(-200.0), y(NORTH[0]) - 14.0)], "tick"))
    parts.append(svg.text(x(-450.0), y(NORTH[0]) - 19.0, "500 m", "middle"))
    return svg.drawing(WIDTH, HEIGHT - 24.0, parts, "Map of the wells, the wetland and the river")


def _strip(x: svg.Scale, y: svg.Scale, west: float, east: float) -> list[tuple[float, float]]:
    south, north = NORTH
    return [(x(west), y(south)), (x(west), y(north)), (x(east), y(north)), (x(east), y(south))]
