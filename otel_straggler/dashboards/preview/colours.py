"""Colours by the names that pages use, for a dark and a light page, and the order of lines."""

from __future__ import annotations

from typing import Final

THEMES: Final = ("dark", "light")
_SHADES: Final = ("super-light-", "light-", "", "semi-dark-", "dark-")
_HUES: Final = {
    "red": ("#FFA6B0", "#FF7383", "#F2495C", "#E02F44", "#C4162A", "#AD0317"),
    "orange": ("#FFCB7D", "#FFB357", "#FF9830", "#FF780A", "#FA6400", "#E55400"),
    "yellow": ("#FFF899", "#FFEE52", "#FADE2A", "#F2CC0C", "#E0B400", "#CC9D00"),
    "green": ("#C8F2C2", "#96D98D", "#73BF69", "#56A64B", "#37872D", "#19730E"),
    "blue": ("#C0D8FF", "#8AB8FF", "#5794F2", "#3274D9", "#1F60C4", "#1250B0"),
    "purple": ("#DEB6F2", "#CA95E5", "#B877D9", "#A352CC", "#8F3BB8", "#7C2EA3"),
}
"""From light to dark; a light page uses each shade one step darker."""
_ORDER: Final = ("green", "yellow", "blue", "orange", "red", "purple")
_LINES: Final = (
    *(f"{shade}{hue}" for shade in ("", "dark-", "super-light-") for hue in _ORDER),
    *("#447EBC", "#C15C17", "#890F02", "#0A437C", "#6D1F62", "#584477", "#B7DBAB", "#F4D598"),
)
_PLAIN: Final = {"transparent": "rgba(0, 0, 0, 0)", "grey": "#808080", "gray": "#808080"}


class Palette:
    """
    >>> Palette("dark").named("dark-red"), Palette("light").named("dark-red")
    ('#C4162A', '#AD0317')
    """

    def __init__(self, theme: str) -> None:
        self.theme = theme
        self.text = "#CCCCDC" if theme == "dark" else "#24292E"
        self.grid = "rgba(240, 250, 255, 0.09)" if theme == "dark" else "rgba(0, 10, 23, 0.09)"
        darker = int(theme == "light")
        self._named = dict(_PLAIN) | {"text": self.text}
        for hue, shades in _HUES.items():
            for at, shade in enumerate(_SHADES):
                self._named[f"{shade}{hue}"] = shades[at + darker]

    def named(self, name: str) -> str:
        """The name itself where it is none of Grafana's: a CSS colour, if a page means one."""
        return self._named.get(name, name)

    def line(self, at: int) -> str:
        """Of the line number ``at``, in the order that Grafana draws them."""
        return self.named(_LINES[at % len(_LINES)])


def contrasting(colour: str) -> str:
    """Black or white, whichever is read better on a colour written as #RRGGBB.

    >>> contrasting("#73BF69"), contrasting("#C4162A")
    ('#000000', '#FFFFFF')
    """
    if len(colour) != 7 or not colour.startswith("#"):
        return "inherit"
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#000000" if luminance > 0.179 else "#FFFFFF"


def _linear(part: float) -> float:
    return float(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
