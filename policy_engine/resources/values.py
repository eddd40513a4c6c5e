"""Types of single values in declared state: names, durations, hex identifiers, country codes.

Each refuses what it cannot read with a sentence that says what to write. Nothing is guessed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, StringConstraints

UNITS_NS: Final = {
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)", re.ASCII)
_MAX_DURATION_NS: Final = 3650 * UNITS_NS["d"]

# ISO 3166-1 alpha-2, officially assigned codes.
_COUNTRY_TABLE: Final = """
    AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV
    BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES
    ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE
    IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY
    MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU
    NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM
    SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE
    VG VI VN VU WF WS YE YT ZA ZM ZW
"""
COUNTRIES: Final = frozenset(_COUNTRY_TABLE.split())


def parse_duration(value: Any) -> int:
    """Nanoseconds of `"250ms"`, `"15s"`, `"10m"`, `"24h"`, `"90d"`.

    Raises:
        ValueError: anything else, a bare number included (its unit would be a guess).
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError('needs a duration with its unit, such as "15s"')  # noqa: TRY004 - pydantic wants ValueError
    if isinstance(value, int):
        raise ValueError(f'has no unit: write "{value}s", "{value}m" or "{value}h"')  # noqa: TRY004
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ValueError('is no duration: one whole number and one unit of ms, s, m, h, d, such as "15s"')
    nanoseconds = int(match[1]) * UNITS_NS[match[2]]
    if nanoseconds > _MAX_DURATION_NS:
        raise ValueError("is longer than ten years")
    return nanoseconds


def format_duration(nanoseconds: int) -> str:
    """The shortest spelling that `parse_duration` reads back to the same value."""
    for unit in ("d", "h", "m", "s"):
        if nanoseconds and nanoseconds % UNITS_NS[unit] == 0:
            return f"{nanoseconds // UNITS_NS[unit]}{unit}"
    return f"{nanoseconds // UNITS_NS['ms']}ms"


def _country(value: str) -> str:
    if value in COUNTRIES:
        return value
    if value.upper() in COUNTRIES:
        raise ValueError(f'is no country code: write "{value.upper()}" (ISO 3166-1, two capitals)')
    hint = ' (the United Kingdom is "GB")' if value.upper() == "UK" else ""
    raise ValueError(f"is no ISO 3166-1 alpha-2 country code{hint}")


def _sci(value: str) -> str:
    if re.fullmatch(r"[0-9a-f]{16}", value) is None:
        raise ValueError(
            "is no SCI: 16 lower-case hex digits in quotes, 12 of the MAC address and 4 of the port"
        )
    if value == "0" * 16:
        raise ValueError("is all zero, which is no SCI")
    return value


def parse_day(value: Any) -> int:
    """Nanoseconds since 1970 of the end (UTC) of a quoted date `"2027-03-31"`.

    Raises:
        ValueError: not a calendar date in that form.
    """
    if not isinstance(value, str) or re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value) is None:
        raise ValueError('needs a date in quotes, such as "2027-03-31"; it ends with that day, UTC')
    try:
        day = datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise ValueError("is not in the calendar") from None
    return (int(day.timestamp()) + 86_400) * 1_000_000_000


def format_day(end_ns: int) -> str:
    """The date whose end `parse_day` returned."""
    return datetime.fromtimestamp(end_ns // 1_000_000_000 - 86_400, UTC).strftime("%Y-%m-%d")


Name = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63)
]
Region = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
Country = Annotated[str, AfterValidator(_country)]
Sci = Annotated[str, AfterValidator(_sci)]
DurationNs = Annotated[int, BeforeValidator(parse_duration), PlainSerializer(format_duration)]
DayEndNs = Annotated[int, BeforeValidator(parse_day), PlainSerializer(format_day)]
EtherType = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-f]{4}$")]
LabelValue = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", max_length=63)
]
